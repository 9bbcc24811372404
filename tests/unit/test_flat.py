"""The flat table: what hops cost by op, key and kernel, from the rows to the terminal."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from frames import TraceBuilder, hop
from gpu_trace import PATH
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from examples import examples
from tracer.analysis.flat import RunningFlat, flat_table, ranked, whole_ns
from tracer.cli.top import _included
from tracer.report.flat import flat_lines
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.tree import plain


def rows(table: pl.DataFrame, *names: str) -> list[tuple[object, ...]]:
    return [tuple(str(v) if isinstance(v, str) else v for v in row) for row in table.select(names).rows()]


def small_trace() -> TraceBuilder:
    builder = TraceBuilder()
    builder.calls(
        hop("aten::mm", "AutogradCPU", hop("aten::mm", "CPU", hop("aten::empty", "CPU")), source="a.py:1"),
        times=2,
    )
    builder.calls(hop("aten::empty", "CPU", source="a.py:2"))
    return builder


def test_a_row_for_each_op_key_and_kernel() -> None:
    table = ranked(flat_table(small_trace().trace()), "hops")
    measured = ("op", "key", "kernel", "calls", "hops", "total_ns", "self_ns", "median_ns")
    assert rows(table, *measured) == [
        ("aten::empty", "CPU", "empty_CPU", 3, 3, 3000, 3000, 1000),
        ("aten::mm", "AutogradCPU", "mm_AutogradCPU", 2, 2, 6000, 2000, 3000),
        ("aten::mm", "CPU", "mm_CPU", 0, 2, 4000, 2000, 2000),
    ]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        # the redispatch within an op stands in its total once
        ("op", [("aten::mm", 2, 4, 6000, 4000, 3000), ("aten::empty", 3, 3, 3000, 3000, 1000)]),
        ("key", [("CPU", 3, 5, 5000, 5000, 2000), ("AutogradCPU", 2, 2, 6000, 2000, 3000)]),
        ("source", [("a.py:1", 4, 6, 6000, 6000, 3000), ("a.py:2", 1, 1, 1000, 1000, 1000)]),
    ],
)
def test_no_time_is_in_a_total_twice(by: str, expected: list[tuple[object, ...]]) -> None:
    table = ranked(flat_table(small_trace().trace(), by=by), "self")
    assert rows(table, by, "calls", "hops", "total_ns", "self_ns", "median_ns") == expected


def test_an_op_that_calls_itself_counts_once_in_the_report_too() -> None:
    inner = hop("a::f", "CPU", hop("a::g", "CPU"), self_ns=3000)
    trace = TraceBuilder().calls(hop("a::f", "CPU", inner, self_ns=1000), times=2).trace()
    assert rows(flat_table(trace, by="op").head(1), "op", "calls", "total_ns", "longest_ns") == [
        ("a::f", 2, 10_000, 5000)
    ]
    section = render(Reading(trace, "x.trace", sections=["ops"]))
    assert "| 10.00 us | 8.00 us | 80.0 % | 5.00 us | 5.00 us | 5.00 us | 2 | 4 | `a::f` |" in " ".join(
        section.split()
    )


def test_only_chosen_hops_count_and_only_they_hide_others() -> None:
    trace = small_trace().trace()
    hops = trace.hops
    inner = (hops["key"] == "CPU").to_numpy() & (hops["op"] == "aten::mm").to_numpy()
    table = flat_table(trace, inner, "op")
    assert rows(table, "op", "calls", "hops", "total_ns", "self_ns") == [("aten::mm", 0, 2, 4000, 2000)]
    assert whole_ns(trace, inner) == 4000


def test_sorting() -> None:
    table = flat_table(small_trace().trace())
    for by, column in (("total", "total_ns"), ("calls", "calls"), ("median", "median_ns")):
        values = ranked(table, by)[column].to_list()
        assert all(a >= b for a, b in pairwise(values)), by


def test_time_on_the_gpu_is_that_of_the_hop_that_caused_it(gpu_sample) -> None:  # type: ignore[no-untyped-def]
    trace = gpu_sample.trace
    table = flat_table(trace, by="op")
    caused = trace.gpu_activities.filter(pl.col("hop").is_not_null())
    assert table["gpu_ns"].sum() == (caused["end_ns"] - caused["start_ns"]).sum() > 0
    assert table.filter(pl.col("op") == "aten::t")["gpu_ns"].to_list() in ([], [0])


@pytest.fixture(scope="module")
def gpu_sample():  # type: ignore[no-untyped-def]
    from gpu_trace import Sample

    return Sample()


# ---- what it looks like --------------------------------------------------------------------------


def test_lines_fit_a_terminal_of_80_columns() -> None:
    builder = TraceBuilder()
    long = hop("aten::_native_batch_norm_legit_functional", "AutogradCPU")
    long.columns["kernel"] = "torch::autograd::VariableType::" + "a_very_long_name_of_a_kernel" * 3
    builder.calls(long, times=12_345)
    builder.calls(hop("aten::mm", "CPU"))
    table = ranked(flat_table(builder.trace()))
    lines = [plain(line) for line in flat_lines(table, "hop", width=80)]
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:7] == ["total", "self", "of", "self", "median", "calls", "hops"]
    assert "12,345" in lines[1]
    assert lines[2].startswith("    aten::_native_batch_norm_legit_functional [AutogradCPU] ...")
    assert lines[3].endswith("aten::mm [CPU] mm_CPU")
    whole = [plain(line) for line in flat_lines(table, "hop")]
    assert whole[1].endswith("a_very_long_name_of_a_kernel" * 3)


@pytest.mark.parametrize(
    ("sort", "share"),
    [
        ("self", "of self 57.1 %"),
        ("total", "of total 85.7 %"),
        ("calls", "of calls 60.0 %"),
        ("hops", "of hops 57.1 %"),
        ("median", "of self 57.1 %"),
    ],
)
def test_the_share_is_of_the_column_that_sorts(sort: str, share: str) -> None:
    """Rows that total time sorted had the share of their self time."""
    trace = small_trace().trace()
    table = ranked(flat_table(trace, by="op"), sort)
    lines = flat_lines(table, "op", sort=sort, whole_ns=whole_ns(trace), limit=1)
    titles, row = [plain(line).split() for line in lines]
    assert " ".join([*titles[2:4], *row[4:6]]) == share


def test_by_kernel_function_there_are_hops_and_no_calls() -> None:
    table = ranked(flat_table(small_trace().trace(), by="kernel"), "hops")
    lines = [plain(line).split() for line in flat_lines(table, "kernel", sort="hops")]
    assert lines[0] == ["total", "self", "of", "hops", "median", "hops", "kernel", "function"]
    assert [line[-2:] for line in lines[1:]] == [
        ["3", "empty_CPU"],
        ["2", "mm_AutogradCPU"],
        ["2", "mm_CPU"],
    ]


def tracer(*arguments: str) -> Result:
    from tracer.cli.app import app

    return CliRunner().invoke(app, list(arguments))


def test_command_on_a_recording_from_a_gpu() -> None:
    result = tracer("top", str(PATH), "--by", "op", "--limit", "5")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["total", "self", "of", "self", "median", "GPU", "calls", "hops", "op"]
    assert len(lines) == 7
    assert re.fullmatch(r"Shown: 5 of \d+ rows\. More: --limit 0\.", lines[-1])
    shares = [float(line.split(" %")[0].split()[-1]) for line in lines[1:6]]
    assert shares == sorted(shares, reverse=True)
    everything = tracer("top", str(PATH), "--by", "op", "--limit", "0").stdout
    assert "Shown:" not in everything
    shares = [float(line.split(" %")[0].split()[-1]) for line in everything.splitlines()[1:]]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))


def test_filters_choose_the_hops_that_are_counted() -> None:
    result = tracer("top", str(PATH), "--op", "mm", "--key", "CUDA")
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("aten::mm [CUDA] wrapper_CUDA_mm")
    outermost = tracer("top", str(PATH), "--depth", "1", "--by", "key").stdout
    whole = tracer("top", str(PATH), "--by", "key").stdout
    assert 1 < len(outermost.splitlines()) < len(whole.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by", "colour"], "--by colour: choose hop, op, key, source, module, kernel or range"),
        (["--sort", "totl"], "calls, hops or median (did you mean total?)"),
        (["--sort", "name"], "--sort name: choose self, total, calls, hops or median"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = tracer("top", str(PATH), *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


# ---- in batches ----------------------------------------------------------------------------------


def _open(hops: pl.DataFrame, rows: np.ndarray) -> pl.DataFrame:
    return hops.with_columns(open=pl.Series(rows))


@examples(40)
@given(data=st.data())
def test_batches_count_as_the_whole(data: st.DataObject) -> None:
    builder = TraceBuilder()
    for _ in range(data.draw(st.integers(1, 6))):
        leaf = hop(data.draw(st.sampled_from(["a::x", "a::y"])), "CPU")
        middle = hop(data.draw(st.sampled_from(["a::x", "a::z"])), "CPU", leaf)
        builder.calls(hop(data.draw(st.sampled_from(["a::x", "a::y"])), "AutogradCPU", middle))
    trace = builder.trace()
    hops = trace.hops
    running = RunningFlat("op")
    ended = np.zeros(len(hops), bool)
    for _ in range(3):  # some hops end in each batch, and what encloses them is there
        now = ~ended & np.array([data.draw(st.booleans()) for _ in range(len(hops))])
        running.add(_open(hops, ~now), now)
        ended |= now
    running.add(_open(hops, ended), ~ended)
    names = ("op", "calls", "hops", "self_ns")
    assert sorted(rows(running.table(), *names)) == sorted(rows(flat_table(trace, by="op"), *names))


def test_totals_and_medians_of_batches() -> None:
    trace = small_trace().trace()
    hops = trace.hops
    running = RunningFlat("op")
    for root in np.flatnonzero(hops["parent"].is_null().to_numpy()).tolist():
        inside = hops.filter(pl.col("id").is_between(root, root + (2 if root < 6 else 0)))
        running.add(inside, np.ones(len(inside), bool))
    found = {row[0]: row[1:] for row in rows(running.table(), "op", "total_ns", "median_ns")}
    for op, total, median in rows(flat_table(trace, by="op"), "op", "total_ns", "median_ns"):
        assert found[op][0] == total
        assert found[op][1] == pytest.approx(median, rel=0.023)


def test_nothing_was_added() -> None:
    table = RunningFlat("hop").table()
    assert len(ranked(table)) == 0
    assert [plain(line) for line in flat_lines(table, "hop")] == [
        "total  self  of self  median  calls  hops  op [key] kernel function"
    ]


def test_top_says_that_its_times_have_warm_up_steps_in_them() -> None:
    phases = ["warmup"] * 2 + ["steady"] * 10
    said = _included(SimpleNamespace(steps=pl.DataFrame({"phase": phases})))
    assert said == "of the whole recording: 12 steps, 2 of them warm-up; one step: --step N"
    assert _included(SimpleNamespace(steps=pl.DataFrame({"phase": [None]}))) == ""
