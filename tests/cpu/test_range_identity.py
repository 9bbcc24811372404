"""Ranges that overlap, of tasks and threads, and those that were open when a window of steps began."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher

import tracer

TASKS = """
import asyncio, torch
from torch.profiler import record_function

async def answer(number, op, turn, next_turn):
    with record_function(f"answer {number}"):
        for _ in range(3):
            await turn.acquire()
            op(torch.ones(number))
            with record_function(f"part {number}"):
                op(torch.ones(number))
            next_turn.release()
        await turn.acquire()
    op(torch.ones(number))
    next_turn.release()

async def idle(steps):
    for _ in range(steps):
        torch.tan(torch.ones(9))
        await asyncio.sleep(0)

async def both():
    first, second = asyncio.Semaphore(1), asyncio.Semaphore(0)
    await asyncio.gather(answer(1, torch.sin, first, second), answer(2, torch.cos, second, first), idle(20))

with record_function("whole"):
    asyncio.run(both())
asyncio.run(idle(2))
"""
GENERATORS = """
import torch
from torch.profiler import record_function
def lines(name, op):
    with record_function(name):
        yield op(torch.ones(2))
        yield op(torch.ones(2))
first, second = lines("first", torch.sin), lines("second", torch.cos)
next(first); next(second)
next(first); next(second)
next(first, 0); torch.neg(torch.ones(1)); next(second, 0)
torch.abs(torch.ones(1))
"""
THREADS = """
import threading, torch
from torch.profiler import record_function

def begin(name):
    r = record_function(name)
    r.__enter__()
    return r

def run(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

mine = begin("by main")
torch.ones(1).sin()
def answer():
    with record_function("around"):
        mine.__exit__(None, None, None)
        torch.ones(1).tan()
run(answer)
torch.ones(1).cos()
theirs = []
def ask():
    theirs.append(begin("by a thread that has gone"))
    torch.ones(1).exp()
run(ask)
torch.ones(1).log()
run(lambda: torch.ones(1).neg())
theirs[0].__exit__(None, None, None)
for _ in range(300):  # more than are looked through at once
    r = begin("short")
    run(lambda: r.__exit__(None, None, None))
torch.ones(1).abs()
"""
WINDOW = """
import threading, torch, tracer
from torch import nn
from torch.profiler import record_function
class Trainer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 2)
        self.inner = Loop(self)
    def forward(self):
        self.inner()
        torch.ones(3).neg()
class Loop(nn.Module):
    def __init__(self, trainer):
        super().__init__()
        self.optimizer = torch.optim.SGD(trainer.net.parameters(), 0.1)
        self.one = [trainer.net]
    def forward(self):
        for step in range(5):
            torch.ones(5).tan()
            with record_function("batch"):
                self.one[0](torch.ones(1, 2)).sum().backward()
            torch.ones(4).sin()
            self.optimizer.step()
        torch.ones(2).cos()
with record_function("gone before"):
    torch.ones(1).abs()
with record_function("epoch"):
    Trainer()()
"""
RING = """
import torch
from torch.profiler import record_function
rows = torch.ones(2)
with record_function("short"):
    rows.cos()
with record_function("long"):
    for _ in range(160000):
        rows.neg()
"""
FORK = """
import os, torch
from torch.profiler import record_function
with record_function("of the parent"):
    torch.ones(1).sin()
    if os.fork() == 0:
        torch.ones(1).cos()
        with record_function("of the child"):
            torch.ones(1).neg()
    else:
        os.wait()
"""


def recorded(launcher: Launcher, script: str, *options: str) -> tracer.Trace:
    launcher.write(script)
    run = launcher.record("-o", "run.trace", *options, "script.py")
    assert run.status == 0, run.err
    return tracer.load(launcher.folder / "run.trace")


def ranges_of(trace: tracer.Trace, **ops: str) -> dict[str, list[str | None]]:
    """By short names of ops the ranges of their calls, in order."""
    calls = trace.hops.filter(pl.col("kind") == "call").with_columns(pl.col("op", "range").cast(pl.String))
    return {name: calls.filter(pl.col("op") == f"aten::{op}")["range"].to_list() for name, op in ops.items()}


def ranges(trace: tracer.Trace) -> pl.DataFrame:
    return trace.ranges.with_columns(pl.col("name").cast(pl.String)).filter(~pl.col("name").str.contains("#"))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Launcher, tracer.Trace]:
    launcher = Launcher(tmp_path_factory.mktemp("tasks"))
    return launcher, recorded(launcher, TASKS)


def test_the_ranges_of_tasks_have_their_times_and_their_ops(tasks: tuple[Launcher, tracer.Trace]) -> None:
    trace = tasks[1]
    assert ranges_of(trace, sin="sin", cos="cos", tan="tan") == {
        "sin": ["answer 1", "part 1"] * 3 + ["whole"],
        "cos": ["answer 2", "part 2"] * 3 + ["whole"],
        "tan": ["whole"] * 20 + [None] * 2,
    }
    table = ranges(trace)
    assert not table["open"].any()
    names = table["name"].to_list()
    around = [None if parent is None else names[parent] for parent in table["parent"]]
    assert dict(zip(names, around, strict=True)) == {
        "whole": None,
        "answer 1": "whole",
        "answer 2": "whole",
        "part 1": "answer 1",
        "part 2": "answer 2",
    }
    whole, first, second = (
        table.row(names.index(name), named=True) for name in ("whole", "answer 1", "answer 2")
    )
    assert whole["start_ns"] < first["start_ns"] < second["start_ns"]
    assert first["end_ns"] < second["end_ns"] < whole["end_ns"]


@pytest.mark.promise("docs/export.md")
def test_an_export_draws_them_beside_each_other(tasks: tuple[Launcher, tracer.Trace]) -> None:
    launcher, _ = tasks
    launcher.run([str(launcher.tracer), "export", "run.trace", "--to", "chrome", "-o", "out.json"])
    events = json.loads((launcher.folder / "out.json").read_text())["traceEvents"]
    drawn = [event for event in events if event.get("cat") == "range"]
    tracks: dict[int, list[tuple[float, float]]] = {}
    for event in sorted(drawn, key=lambda event: (event["ts"], -event["dur"])):
        open_now = tracks.setdefault(event["tid"], [])
        while open_now and open_now[-1][1] <= event["ts"]:
            open_now.pop()
        assert not open_now or event["ts"] + event["dur"] <= open_now[-1][1] + 1e-3
        open_now.append((event["ts"], event["ts"] + event["dur"]))
    assert len(drawn) == 9
    assert len(tracks) == 2


def test_generators_that_take_turns(launcher: Launcher) -> None:
    trace = recorded(launcher, GENERATORS)
    assert ranges_of(trace, sin="sin", cos="cos", neg="neg", abs="abs") == {
        "sin": ["first", None],
        "cos": [None, None],
        "neg": ["second"],
        "abs": [None],
    }
    (said,) = [line for line in trace.certificate["not_visible"] if "cross" in line]
    assert trace.certificate["complete"], said


def test_another_thread_ends_a_range(launcher: Launcher) -> None:
    trace = recorded(launcher, THREADS)
    names = {name: name for name in ("sin", "tan", "cos", "exp", "log", "neg", "abs")}
    assert ranges_of(trace, **names) == {
        "sin": ["by main"],
        "tan": ["around"],
        "cos": [None],
        "log": [None],
        "neg": [None],
        "abs": [None],
        "exp": ["by a thread that has gone"],
    }
    table = ranges(trace)
    assert len(table) == 303
    assert not table["open"].any()
    assert (table["end_ns"] > table["start_ns"]).all()


@pytest.mark.promise("docs/record.md")
def test_a_window_finds_the_ranges_and_modules_around_it(launcher: Launcher) -> None:
    whole = recorded(launcher, WINDOW)
    window = recorded(launcher, WINDOW, "--force", "--steps", "2:4")
    columns = [pl.col(name).cast(pl.String) for name in ("op", "range", "module", "key", "kind")]
    chosen = pl.col("step").is_between(2, 3)
    expected = whole.hops.filter(chosen).select("step", *columns)
    found = window.hops.filter(chosen).select("step", *columns)
    of_range = pl.col("op").str.starts_with("profiler::")  # the last one ends after the window
    assert found.filter(~of_range).equals(expected.filter(~of_range))
    assert set(found["module"].drop_nulls()) == {"net", "inner"}
    table = window.ranges.with_columns(pl.col("name").cast(pl.String))
    assert not table["open"].any()
    assert "gone before" not in table["name"]
    (epoch,) = table.filter(pl.col("name") == "epoch").iter_rows(named=True)
    assert epoch["step"] is None
    assert epoch["start_ns"] < window.hops["start_ns"].min()
    assert epoch["end_ns"] > window.hops["end_ns"].max()
    assert table.filter(pl.col("name") == "batch")["parent"].to_list() == [epoch["id"]] * 2


def test_a_ring_knows_the_ranges_whose_begins_it_has_overwritten(launcher: Launcher) -> None:
    trace = recorded(launcher, RING, "--max-size", "16M")
    assert trace.certificate["overwritten_hops"] > 0
    calls = trace.hops.filter((pl.col("op") == "aten::neg") & (pl.col("kind") == "call"))
    # Until the next outermost op of a chunk nothing was said in it.
    assert calls["range"].cast(pl.String).to_list()[1:] == ["long"] * (len(calls) - 1)
    table = ranges(trace)
    assert table["name"].to_list() == ["long"]
    assert table["start_ns"][0] < trace.hops["start_ns"].min()


def test_a_forked_child_is_in_no_range_of_its_parent(launcher: Launcher) -> None:
    trace = recorded(launcher, FORK)
    assert ranges_of(trace, sin="sin", cos="cos", neg="neg") == {
        "sin": ["of the parent"],
        "cos": [None],
        "neg": ["of the child"],
    }
    assert ranges(trace).select("name", "process", "open").rows() == [
        ("of the parent", 0, False),
        ("of the child", 1, False),
    ]


def test_the_program_does_not_notice(launcher: Launcher, tmp_path: Path) -> None:
    """Contexts are looked at, and no more."""
    launcher.write(
        TASKS.replace(
            "asyncio.run(idle(2))", "import contextvars\nprint(list(contextvars.copy_context().items()))"
        )
    )
    assert launcher.same("script.py").status == 0
