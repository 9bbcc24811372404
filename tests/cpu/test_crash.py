"""Processes that die while they are recorded: what was entered before is there, and says what was open."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import polars as pl
import pytest
from killed import CALLS_BEFORE_STOP, OPS, Progress
from launching import Launcher
from recorded import chain

import tracer

pytestmark = pytest.mark.fresh

SCRIPT = str(Path(__file__).parent / "killed.py")
KILLS_OF_A_PROCESS = 15


def kill(launcher: Launcher, moments: list[str]) -> list[tuple[Progress, Path]]:
    left = []
    for first in range(0, len(moments), KILLS_OF_A_PROCESS):
        folder = launcher.folder / f"from {first}"
        folder.mkdir()
        batch = moments[first : first + KILLS_OF_A_PROCESS]
        done = launcher.python(SCRIPT, str(folder), *batch)
        assert (done.status, done.err) == (0, "")
        left += [(Progress(folder / f"{n}.progress"), folder / f"{n}.trace") for n in range(len(batch))]
    return left


def assert_all_there(progress: Progress, path: Path) -> None:
    """Every op call entered before the kill is in the trace, but one that was being written."""
    trace = tracer.load(path)
    hops = trace.hops.with_columns(pl.col("op").cast(pl.String))
    for thread, op in enumerate(OPS):
        begun, ended = (progress.get(thread, field) for field in (Progress.BEGUN, Progress.ENDED))
        own = hops.filter(pl.col("thread") == progress.get(thread, Progress.THREAD_ID))
        seen = own.filter((pl.col("op") == op) & (pl.col("kind") == "call") & pl.col("parent").is_null())
        where = f"{op}: {begun} begun, {ended} ended, {len(seen)} in {trace}"
        assert begun - 1 <= len(seen) <= begun, where
        assert (~seen["open"]).sum() >= ended, where
        # only the last op call of a thread can be open: one chain, from its outermost hop down
        still_open = own.filter(pl.col("open"))
        assert still_open["parent"].to_list() == [None, *still_open["id"]][: len(still_open)], where
        assert (
            still_open.is_empty() or still_open["id"][0] == own.filter(pl.col("parent").is_null())["id"][-1]
        ), where
    for count in ("damaged_chunks", "undefined_hops", "unmatched_exits", "lost_exits", "missing_bytes"):
        assert trace.certificate[count] == 0, count
    assert trace.certificate["torn_events"] <= len(OPS)
    assert trace.certificate["unresolved_kernels"] == 0  # the reader named them
    assert hops["kernel"].null_count() == 0


def kill_at_random(launcher: Launcher, kills: int, phase: str, longest: float) -> None:
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    moments = [f"{phase}:{draw.uniform(0, longest)}" for _ in range(kills)]
    for moment, (progress, path) in zip(moments, kill(launcher, moments), strict=True):
        try:
            assert_all_there(progress, path)
            if phase == "run":
                assert tracer.load(path).certificate["closed_in_order"] == {0: False}
            else:
                assert all(
                    progress.get(thread, Progress.ENDED) == CALLS_BEFORE_STOP for thread in range(len(OPS))
                )
        except AssertionError as error:
            raise AssertionError(f"killed at {moment} (seed {seed})") from error


PHASES = [("run", 0.4), ("stop", 0.2), ("trim", 0.005)]


@pytest.mark.parametrize(("phase", "longest"), PHASES)
def test_kill_at_random_moments(launcher: Launcher, phase: str, longest: float) -> None:
    kill_at_random(launcher, 12 if phase == "run" else 5, phase, longest)


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "longest"), PHASES)
def test_kill_at_many_random_moments(launcher: Launcher, phase: str, longest: float) -> None:
    kill_at_random(launcher, 60, phase, longest)


# ---- a crash in a kernel -------------------------------------------------------------------------

CRASH = """
import ctypes, torch
library = torch.library.Library("crashing", "DEF")
library.define("op(Tensor x) -> Tensor")

def kernel(x):
    torch.neg(x)
    ctypes.string_at(0)

library.impl("op", kernel, "CPU")
torch.ones(2)
print("so far", flush=True)
torch.ops.crashing.op(torch.ones(3))
"""


def test_segfault_in_a_custom_op(launcher: Launcher) -> None:
    launcher.write(CRASH)
    traced = launcher.same("script.py")
    assert (traced.status, traced.out) == (-signal.SIGSEGV, "so far\n")
    trace = tracer.load(launcher.folder / "both.trace")
    opened = trace.hops.filter(pl.col("open"))
    assert chain(opened) == [("crashing::op", "AutogradCPU", "call"), ("crashing::op", "CPU", "redispatch")]
    innermost = opened.row(-1, named=True)
    assert innermost["kernel"].startswith("__main__.kernel (")
    assert innermost["source"].endswith("script.py:13")
    assert trace.certificate["closed_in_order"] == {0: False}
    assert trace.certificate["open_hops"] == 2
    assert trace.certificate["verdict"].startswith("killed, or ended without a stop: ")
    inside = trace.hops.filter(pl.col("parent") == innermost["id"])
    assert set(inside["op"].cast(pl.String)) == {"aten::neg"}
    assert inside["kernel"].cast(pl.String).to_list() == [
        "torch::autograd::VariableType::neg"
    ]  # the reader named it


@pytest.mark.promise("record", "tree", "report", "docs/reliability.md")
def test_verbs_on_the_trace_of_a_crash(launcher: Launcher) -> None:
    launcher.write(CRASH)
    launcher.record("-o", "run.trace", "script.py")
    tree = launcher.python("-m", "tracer.cli.app", "tree", "run.trace")
    assert tree.status == 0
    lines = [line for line in tree.out.splitlines() if "crashing::op" in line]
    assert len(lines) == 2
    assert all("open" in line for line in lines)
    assert "__main__.kernel" in lines[1]
    size = (launcher.folder / "run.trace").stat().st_size
    report = launcher.python("-m", "tracer.cli.app", "report", "run.trace")
    assert report.status == 0
    assert "1 process ended without a stop" in report.out
    assert "crashing::op" in report.out
    assert (launcher.folder / "run.trace").stat().st_size == size  # names were added once
