"""An operator that torch calls with another C++ signature than tracer was built for gets boxed hops."""

from __future__ import annotations

from pathlib import Path

import pytest
from launching import Launcher
from table_words import build

import tracer

SCRIPT = f"""\
import sys

sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from table_words import TableWords

words = TableWords("./table_words.so")


def sums():  # torch compares signatures itself, at the first call
    return torch.mm(torch.ones(2, 3), torch.ones(3, 2)).sum().item(), torch.ones(2).neg().sum().item()


sums()
for operator in sys.argv[1:]:
    words.call_otherwise(operator)
import tracer

with tracer.record("run.trace"):
    print(*sums())
    print(*sorted({{"aten::mm", "aten::neg", "aten::sum"}} & words.typed()))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words") / "table_words.so"
    build(path)
    return path


def recorded(launcher: Launcher, library: Path, *others: str) -> tuple[list[str], tracer.Trace]:
    (launcher.folder / "table_words.so").symlink_to(library)
    launcher.write(SCRIPT)
    run = launcher.python("script.py", *others)
    assert run.status == 0, run.err
    return run.out.splitlines(), tracer.load(launcher.folder / "run.trace")


def test_an_operator_with_another_signature_has_boxed_hops(launcher: Launcher, library: Path) -> None:
    (numbers, typed), trace = recorded(launcher, library, "aten::mm", "aten::neg")
    assert numbers == "12.0 -2.0"
    assert typed == "aten::sum", "the others are boxed"
    assert {"aten::mm", "aten::neg"} <= set(trace.hops["op"].to_list())
    certificate = trace.certificate
    line = (
        "2 operators have another C++ signature than tracer was built for, so boxed hops record them: "
        "aten::mm, aten::neg"
    )
    assert certificate["complete"]
    assert line in certificate["why"]


def test_each_signature_of_this_torch_is_the_one_that_its_typed_hop_was_made_for(
    launcher: Launcher, library: Path
) -> None:
    (_, typed), trace = recorded(launcher, library)
    assert typed == "aten::mm aten::neg aten::sum"
    assert trace.certificate["other_signatures"] == []
    assert not any("signature" in line for line in trace.certificate["why"])
