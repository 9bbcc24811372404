"""Entries of examples/gallery that compile: what their reports show is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from compiler_cache import use_cache
from launching import Launcher

import tracer

pytestmark = [pytest.mark.gallery, pytest.mark.slow]  # they compile C++

GALLERY = Path(__file__).resolve().parents[2] / "examples" / "gallery"
Recorded = tuple[str, tracer.Trace]


@pytest.fixture
def recorded(launcher: Launcher) -> Callable[[str], Recorded]:
    """Records an entry with an empty cache; its output, and its trace, in which nothing is missing."""
    launcher.environment["CUDA_VISIBLE_DEVICES"] = ""
    use_cache(launcher, launcher.folder / "inductor")

    def record(name: str) -> Recorded:
        run = launcher.record("-o", f"{name}.trace", str(GALLERY / f"{name}.py"))
        assert run.status == 0, run.err
        trace = tracer.load(launcher.folder / f"{name}.trace")
        assert trace.certificate["complete"]
        return run.out, trace

    return record


def test_compiled_block(recorded: Callable[[str], Recorded]) -> None:
    """Every kernel leads to lines of the block, those of the backward too."""
    out, trace = recorded("compiled_block")
    assert out == "the same numbers\n"
    texts = (GALLERY / "compiled_block.py").read_text().splitlines()
    first = next(number for number, text in enumerate(texts, 1) if "def forward" in text)
    lines = trace.compiled_kernels["source"].cast(pl.String).str.extract(r"compiled_block\.py:(\d+)$")
    assert set(lines.cast(pl.Int64)) <= set(range(first + 1, first + 7))
    calls = trace.compiled_calls
    assert calls["direction"].cast(pl.String).value_counts().sort("direction").rows() == [
        ("backward", 4),
        ("forward", 4),
    ]
    assert set(calls["step"]) == {4, 5, 6, 7}


def test_graph_breaks(recorded: Callable[[str], Recorded]) -> None:
    out, trace = recorded("graph_breaks")
    assert out == "gelu is done\n" * 3 + "the same numbers\n"
    breaks = trace.certificate["compiled"]["breaks"]
    lines = (GALLERY / "graph_breaks.py").read_text().splitlines()
    texts = [lines[int(one["source"].rpartition(":")[2]) - 1].strip() for one in breaks]
    assert texts == ['print("gelu is done")', "if x.sum().item() > 0:"]
    in_step = trace.compiled_calls.group_by("step").len().sort("step")["len"].to_list()
    assert in_step == [3, 3, 3, 1, 1, 1]


def test_dynamic_shapes(recorded: Callable[[str], Recorded]) -> None:
    out, trace = recorded("dynamic_shapes")
    assert out.count("the same numbers") == 5
    calls = trace.compiled_calls.sort("start_ns")
    assert calls["compile_id"].to_list() == ["0/0"] * 2 + ["0/1"] * 6 + ["0/2"] * 2
    reasons = dict(calls.select(pl.col("compile_id").cast(pl.String), "recompiled").iter_rows())
    assert reasons["0/0"] is None
    assert "size mismatch at index 0. expected 8, actual 16" in reasons["0/1"]
    assert "dtype mismatch" in reasons["0/2"]
