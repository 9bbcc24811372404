"""The built-in overrides by their names: switched, recorded, and off again."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from lazily import torch

import tracer
from tracer.overrides import registered, use

WATCHED = ("aten::mm", "aten::addmm", "aten::cat", "aten::_cudnn_rnn", "aten::_cudnn_rnn_backward")


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


def tables() -> list[str]:
    return [torch._C._dispatch_dump_table(name) for name in WATCHED]


def test_they_leave_the_tables_as_they_were() -> None:
    before = tables()
    for names in (("mm",), ("gru:force",), ("cat:force", "mm:force", "gru")):
        with use(*names):
            assert tables() != before
            assert registered()[names[0].partition(":")[0]].is_on
        assert tables() == before


def test_a_mode_within_another_mode() -> None:
    parts = [torch.randn(64, 512, device="cuda") for _ in range(2)]
    cat = registered()["cat"]
    with use("cat"):
        cat.reset_counts()
        torch.cat(parts)
        assert cat.ran()["aten::cat"] + sum(cat.handed_over()["aten::cat"].values()) == 1
        with use("cat:force"):
            cat.reset_counts()
            assert torch.equal(torch.cat(parts), torch.cat(parts))
            assert cat.ran()["aten::cat"] == 2


def test_recorded(launcher: Launcher) -> None:
    launcher.write(
        "import torch\n"
        "a = torch.randn(8, 1536, device='cuda')\n"
        "w = torch.randn(5893, 1536, device='cuda')\n"
        "torch.mm(a, w.t()); torch.mm(a.double(), w.double().t()); torch.cuda.synchronize()\n"
    )
    run = launcher.record("-o", "x.trace", "--override", "mm:force,cat", "script.py")
    assert run.status == 0, run.err
    assert "  override mm: aten::mm 1 call, 1 call handed over to stock\n" in run.err
    trace = tracer.load(launcher.folder / "x.trace")
    hops = trace.hops.filter(pl.col("override").is_not_null())
    assert hops["override"].cast(pl.String).to_list() == ["mm", "mm"]
    said = {(one["name"], one["operator"]): one for one in trace.certificate["overrides"]}
    assert said["mm", "aten::mm"]["ran"] == 1
    assert said["cat", "aten::cat"]["never_ran"] == "aten::cat was never called"
