"""A recording changes no result: outputs, gradients and mutated inputs keep every byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from op_samples import DTYPES, Results, changed, operator_of, run_samples, thrice

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo

UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


def compare(folder: Path, operators: Sequence[OpInfo], samples: int, dtypes: int) -> Results:
    """Requires the same results alone and recorded, and returns them."""
    alone, recorded, hops = thrice(lambda: run_samples(operators, samples, dtypes), folder)
    aside = sorted({operator_of(run) for run, result in alone.items() if result == "aside"})
    print(f"{len(operators)} operators, {len(alone)} runs, {hops} hops; differ from themselves: {aside}")
    assert hops > 10 * len(alone)
    assert not changed(alone, recorded)
    return alone


def check_coverage(results: Results) -> None:
    """Nearly all operators returned something, and only those differ from themselves that may."""
    returned = {operator_of(run) for run, result in results.items() if ": " not in result}
    print(f"{len(results):,} runs, {len(returned)} operators")
    assert len(returned) > 0.95 * len({operator_of(run) for run in results})
    assert {operator_of(run) for run, result in results.items() if result == "aside"} == UNINITIALISED


@pytest.mark.promise("tracer.record", "docs/reliability.md")
def test_all_operators_once(tmp_path: Path) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    check_coverage(compare(tmp_path, op_db, samples=2, dtypes=1))


@pytest.mark.slow
def test_all_operators_often(tmp_path: Path) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    check_coverage(compare(tmp_path, op_db, samples=12, dtypes=len(DTYPES)))


@pytest.mark.slow
def test_nested_operators(tmp_path: Path) -> None:
    from torch.testing._internal.opinfo.definitions.nested import njt_op_db

    compare(tmp_path, njt_op_db, samples=2, dtypes=1)
