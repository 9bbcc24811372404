"""What ranges took, with those inside: by name in the flat table, and by the headings of a tree."""

from __future__ import annotations

import polars as pl
import pytest
from frames import FakeTrace, TraceBuilder, hop

from tracer.analysis.flat import flat_table
from tracer.analysis.ranges import headings
from tracer.report.flat import flat_lines
from tracer.report.tree import plain


def nested_ranges() -> FakeTrace:
    """epoch > step > epoch, all with ops; epoch > load has none; another epoch is on thread 7.

    0         epoch                                             9000
      1 mm 2    3 step             7      8 load 8.5              (thousands of ns)
                  4 neg 5
                    5.5 epoch 6.5
                      5.6 neg 6.6
    """
    builder = TraceBuilder()
    starts = (1000, 4000, 5600, 9500)
    for op, name in (("mm", "epoch"), ("neg", "step"), ("neg", "epoch"), ("add", None)):
        builder.calls(hop(f"aten::{op}", "CPU", range=name))
    builder.calls(hop("aten::sin", "CPU", range="epoch"), thread=101)
    builder.calls(hop("aten::cos", "CPU", range="lost"), thread=102)
    trace = builder.trace()
    start = pl.Series([*starts, 1000, 1000])
    trace.hops = trace.hops.with_columns(start_ns=start, end_ns=start + 1000)
    rows = [
        (0, "epoch", 0, 100, None, 0, 9000),
        (1, "step", 0, 100, 0, 3000, 7000),
        (2, "epoch", 0, 100, 1, 5500, 6700),
        (3, "load", 0, 100, 0, 8000, 8500),
        (4, "epoch", 0, 101, None, 500, 2500),
    ]
    columns = ("id", "name", "process", "thread", "parent", "start_ns", "end_ns")
    made = [dict(zip(columns, row, strict=True)) for row in rows]
    trace.ranges = pl.DataFrame(made, schema=trace.ranges.schema)
    return trace


def test_a_range_has_the_time_of_the_ranges_inside_once_and_its_own_wall_time() -> None:
    table = flat_table(nested_ranges(), by="range").sort("range", nulls_last=True)
    assert table.select("range", "calls", "self_ns", "total_ns", "wall_ns").rows() == [
        ("epoch", 3, 3000, 4000, 9000 + 2000),
        ("load", 0, 0, 0, 500),
        ("lost", 1, 1000, 1000, 0),
        ("step", 1, 1000, 2000, 4000),
        (None, 1, 1000, 1000, 0),
    ]
    lines = [plain(line).split() for line in flat_lines(table, "range")]
    assert lines[0] == ["wall", "total", "self", "of", "self", "op", "calls", "hops", "range"]
    assert lines[1] == "11.0 us 4.0 us 3.0 us 50.0 % 3 3 epoch".split()


def test_of_chosen_hops_only_their_ranges_are_rows() -> None:
    trace = nested_ranges()
    table = flat_table(trace, (trace.hops["op"] == "aten::neg").to_numpy(), "range").sort("range")
    assert table.select("range", "self_ns", "total_ns", "wall_ns").rows() == [
        ("epoch", 1000, 2000, 11_000),
        ("step", 1000, 2000, 4000),
    ]


@pytest.mark.parametrize("own", [False, True])
def test_headings_name_the_ranges_around_but_not_those_of_torch(own: bool) -> None:
    trace = nested_ranges()
    names = pl.col("name").cast(pl.String)
    if own:
        trace.ranges = trace.ranges.with_columns(
            name=pl.when(names == "step").then(pl.lit("Optimizer.step#SGD.step")).otherwise(names)
        )
        trace.hops = trace.hops.with_columns(
            range=pl.col("range").cast(pl.String).replace("step", "Optimizer.step#SGD.step")
        )
    inner = "epoch > epoch" if own else "epoch > step > epoch"
    step = "epoch" if own else "epoch > step"
    assert headings(trace.hops, trace.ranges).to_list() == ["epoch", step, inner, None, "epoch", "lost"]
