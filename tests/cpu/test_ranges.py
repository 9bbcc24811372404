"""What torch.profiler.record_function marks: the table, the section, the headings of a tree."""

from __future__ import annotations

import polars as pl
import pytest
from launching import Launcher
from stored import recorded_once

import tracer
from tracer.analysis.call_tree import call_tree
from tracer.analysis.phases import RANGE_OPS
from tracer.analysis.ranges import range_times
from tracer.report.html import timeline
from tracer.report.html.columns import unpacked
from tracer.report.reading import Reading
from tracer.trace import Trace

SCRIPT = """\
import threading, time, torch
from torch.profiler import record_function

weight = torch.randn(8, 8, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)

def work():
    with record_function("other thread"):
        torch.ones(2).neg()

for _ in range(3):
    with record_function("data/load"):
        time.sleep(0.003)
    with record_function("model"):
        for part in ("encoder", "decoder"):
            with record_function(part):
                y = torch.ones(4, 8) @ weight
    y.sum().backward()
    optimizer.step()
thread = threading.Thread(target=work)
thread.start()
thread.join()
never = record_function("never ends")
never.__enter__()
torch.ones(3).cos()
"""


def make(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    assert launcher.record("-o", "run.trace", "script.py").status == 0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return recorded_once(tmp_path_factory.mktemp("ranges"), make)


@pytest.fixture(scope="module")
def trace(recorded: Launcher) -> Trace:
    return tracer.load(recorded.folder / "run.trace")


def read(launcher: Launcher, *arguments: str) -> str:
    run = launcher.run([str(launcher.tracer), *arguments])
    assert run.status == 0, run.err
    return run.out


def test_each_range_is_a_row(trace: Trace) -> None:
    ranges = trace.ranges.with_columns(pl.col("name").cast(pl.String))
    mine = ranges.filter(~pl.col("name").str.contains("#"))
    names = ["data/load", "model", "encoder", "decoder"]
    assert mine["name"].to_list() == [*names * 3, "never ends", "other thread"]
    around = [None if parent is None else ranges["name"][parent] for parent in mine["parent"]]
    assert around == [*[None, None, "model", "model"] * 3, None, None]
    assert mine["open"].to_list() == [False] * 12 + [True, False]
    assert mine["step"].to_list()[:12] == [step for step in range(3) for _ in range(4)]
    assert mine["thread"].n_unique() == 2
    assert (mine["end_ns"] >= mine["start_ns"]).all()


def test_the_times_are_those_of_the_hops_inside(trace: Trace) -> None:
    hops = trace.hops.filter(pl.col("range").cast(pl.String) == "encoder")
    hops = hops.filter(~pl.col("op").cast(pl.String).str.starts_with(RANGE_OPS))  # one of them ends the range
    ranges = trace.ranges.filter(pl.col("name").cast(pl.String) == "encoder")
    count = 0
    for start, end in ranges.select("start_ns", "end_ns").iter_rows():
        inside = hops.filter(pl.col("start_ns").is_between(start, end))
        assert inside["end_ns"].max() <= end
        count += len(inside)
    assert count == len(hops) > 6


def test_what_each_took(trace: Trace) -> None:
    times = range_times(trace.ranges)
    rows = list(times.iter_rows(named=True))[:4]
    assert [(row["depth"], row["name"]) for row in rows] == [
        *((0, "data/load"), (0, "model"), (1, "encoder"), (1, "decoder"))
    ]
    load, model, encoder, decoder = rows
    assert load["calls"] == 3
    assert load["median_ns"] > 3e6
    assert model["own_ns"] == model["total_ns"] - encoder["total_ns"] - decoder["total_ns"]


@pytest.mark.promise("tree", "report", "docs/report.md")
def test_headings_rows_and_section(recorded: Launcher) -> None:
    tree = read(recorded, "tree", "run.trace", "--depth", "1")
    assert "in range model > encoder  3 op calls" not in tree  # the line is also that of torch.ones
    assert "script.py:17 in range model > encoder  6 op calls" in tree
    assert "in range model > decoder" in tree
    assert "Optimizer" not in tree
    flat = read(recorded, "top", "run.trace", "--by", "range")
    assert {"encoder", "decoder", "model", "data/load", "other thread"} <= {
        line.rpartition("  ")[2] for line in flat.splitlines()
    }
    report = read(recorded, "report", "run.trace")
    rows = report.partition("### Ranges")[2].partition("## ")[0]
    assert "| `data/load` " in rows
    assert "| -> `encoder`" in rows
    assert "Optimizer.step#SGD.step" in rows


def test_torchs_own_ranges_alone_make_no_section(launcher: Launcher) -> None:
    launcher.write(
        SCRIPT.replace("record_function(", "open_nothing(").replace(
            "from torch.profiler import record_function", "from contextlib import nullcontext as open_nothing"
        )
    )
    assert launcher.record("-o", "run.trace", "script.py").status == 0
    assert len(tracer.load(launcher.folder / "run.trace").ranges) > 0
    assert "### Ranges" not in read(launcher, "report", "run.trace")


def test_follow_has_no_ranges(recorded: Launcher) -> None:
    run = recorded.run([str(recorded.tracer), "watch", "run.trace", "--table", "--by", "range"])
    assert run.status == 2
    assert "--by range needs a recording that has ended" in run.err


def test_the_timeline_of_the_page_has_the_ranges_of_each_step(trace: Trace) -> None:
    _, meta = timeline_of(trace)
    steps = [step for step in meta["steps"] if step["step"].isdigit()]
    assert len(steps) == 3
    for step in steps:
        names = [drawn["name"].split("#")[0] for drawn in step["ranges"]]
        rest = ["Optimizer.step"] if step["step"] != "0" else []  # a step ends shortly before its optimizer's
        assert names == [*rest, "data/load", "model", "encoder", "decoder", "Optimizer.step"]
        model = names.index("model")
        assert [drawn["parent"] for drawn in step["ranges"]][len(rest) :] == [-1, -1, model, model, -1]
        assert all(0 <= drawn["start"] <= step["wall_ns"] - drawn["length"] for drawn in step["ranges"])
        assert step["ranges"][model - 1]["length"] >= 3_000_000  # the sleep in it
        assert step["ranges_left_out"] == 0
    after = next(step for step in meta["steps"] if not step["step"].isdigit())
    tracks = {drawn["name"]: drawn["track"] for drawn in after["ranges"]}
    assert tracks.keys() >= {"other thread", "never ends"}
    assert meta["tracks"][tracks["other thread"]] != meta["tracks"][tracks["never ends"]]


def test_of_too_many_ranges_the_longest_are_drawn(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_RANGES", 2)
    _, meta = timeline_of(trace)
    for step in meta["steps"][1:3]:
        assert "data/load" in [drawn["name"] for drawn in step["ranges"]]
        assert len(step["ranges"]) == 2
        assert step["ranges_left_out"] == 4


def timeline_of(trace: Trace) -> tuple[dict, dict]:
    reading = Reading(trace, "run.trace")
    forest = reading.part
    return unpacked(timeline.packed_timeline(reading, forest, call_tree(forest, reading.phases).node_of))
