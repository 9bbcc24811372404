"""Names and texts of torch that tracer relies on, in the installed torch."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest
from lazily import torch

import tracer
from tracer.dispatch.table import read_table

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake" / "checks"))
import private_names  # noqa: E402


@pytest.mark.promise("docs/versions.md")
def test_the_installed_torch_has_them() -> None:
    folder = Path(torch.__file__).parent
    assert private_names.missing_in_headers(folder / "include") == []
    assert private_names.missing_in_libraries(folder / "lib") == []
    assert private_names.missing_in_python_files(folder.parent) == []


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert len(private_names.missing_in_headers(tmp_path)) == sum(map(len, private_names.HEADERS.values()))
    for library in private_names.LIBRARIES:
        (tmp_path / library).write_bytes(b"PythonKernelHolder")
    missing = private_names.missing_in_libraries(tmp_path)
    assert "libtorch_python.so has no N5torch8autograd6PyNodeE" in missing
    assert "libtorch_python.so has no PythonKernelHolder" not in missing


def test_registrations_are_those_of_the_dumped_table(tmp_path: Path) -> None:
    """What csrc/torch_abi/computed_entry.h reads, and the dump that tracer/base/torch_abi.py reads."""
    with tracer.record(tmp_path / "run.trace"):
        torch.nn.Linear(3, 2)(torch.ones(4, 3)).relu().sum().backward()
    hops = tracer.load(tmp_path / "run.trace").hops
    rows = hops.select("op", "key", "registered_at", "rule").cast(pl.String).unique().rows()
    assert len(rows) > 20
    for op, key, registered_at, rule in rows:
        entry = read_table(op).entry(key)
        assert entry is not None, (op, key)
        assert (entry.registered_at, entry.rule) == (registered_at, rule), (op, key)
