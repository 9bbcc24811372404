"""Partial tables of a rank, and what they add up to."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from rank_traces import add_rank, write_rank
from synthetic import TraceWriter
from typer.testing import CliRunner

from tracer.analysis.fleet.across import across
from tracer.analysis.fleet.fold import OPS, folded
from tracer.analysis.fleet.merge import merge
from tracer.analysis.fleet.partial import NO_RANK, SCHEMAS, partial_tables, parts_of, unread_tables
from tracer.analysis.job.lateness import late_ranks
from tracer.analysis.job.lines_before import LINES
from tracer.fleet.gather import gather
from tracer.fleet.parts import Kept, Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.fleet.work import parquet
from tracer.trace import load


def tables_of(path: Path) -> dict[str, pl.DataFrame]:
    trace = load(path)
    (part,) = parts_of(trace)
    return partial_tables(part, trace, path.name)


def gathered(folder: Path, out: Path) -> list[Kept]:
    parts = Parts(out)
    assert gather(parts, find([str(folder)]), Processes(1)).errors == {}
    return parts.all()


def test_the_tables_of_a_rank(tmp_path: Path) -> None:
    tables = tables_of(write_rank(tmp_path / "rank3.trace", 3, 8, collectives=2, ops=4))
    rank = tables["ranks"].row(0, named=True)
    assert (rank["trace"], rank["ranks"], rank["boot"], rank["error"]) == ("rank3.trace", 8, "clock", None)
    assert (rank["hops"], rank["op_calls"], rank["collective_calls"]) == (10, 10, 2)
    assert tables["ops"].select("op", "key", "calls", "hops", "self_ns", "longest_ns").rows() == [
        ("aten::mm", "CPU", 8, 8, 8 * 10, 10),
        ("c10d::allreduce_", "CPU", 2, 2, 2 * 10, 10),
    ]
    assert tables["groups"].select("group", "op", "calls", "bytes").rows() == [
        ("0", "c10d::allreduce_", 2, 2 * 16)
    ]
    assert tables["calls"].select("group", "number", "source").rows() == [
        ("0", 0, "/work/train.py:2"),
        ("0", 1, "/work/train.py:2"),
    ]
    assert '"complete": true' in tables["certificates"]["certificate"][0]


def test_every_table_has_its_columns_also_of_a_trace_that_was_not_read(tmp_path: Path) -> None:
    for tables in (tables_of(write_rank(tmp_path / "a.trace")), unread_tables("a.trace", "is cut")):
        assert {name: dict(table.schema) for name, table in tables.items()} == {
            name: dict(pl.DataFrame(schema=schema).schema) for name, schema in SCHEMAS.items()
        }
    assert tables["ranks"].select("trace", "complete", "error").row(0) == ("a.trace", False, "is cut")


def test_a_trace_of_a_launcher_has_several_ranks_and_one_that_says_none_is_one_part(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process(0)
    for process, rank in ((1, 1), (2, 0)):
        add_rank(writer, process, rank)
    assert [part.rank for part in parts_of(load(writer.write(tmp_path / "job.trace")))] == [1, 0]
    alone = parts_of(load(write_rank(tmp_path / "alone.trace", None)))
    assert [(part.rank, part.process) for part in alone] == [(NO_RANK, 0)]


def rows(rank: int, **hops: int) -> pl.DataFrame:
    values = [("j", "h", rank, f"aten::{op}", "CPU", 1, n, 10 * n, 10 * n, n, 0) for op, n in hops.items()]
    names = [
        "job",
        "host",
        "rank",
        "op",
        "key",
        "calls",
        "hops",
        "self_ns",
        "total_ns",
        "longest_ns",
        "gpu_ns",
    ]
    return pl.DataFrame(values, names, orient="row")


def test_ranks_add_up_and_the_first_of_two_with_the_most_is_named() -> None:
    table = folded([rows(0, mm=3, add=1), rows(1, mm=7), rows(2, mm=7)], OPS)
    columns = ("op", "ranks", "hops", "self_ns", "longest_ns", "least_hops", "most_hops", "most_rank")
    assert table.select(columns).rows() == [
        ("aten::add", 1, 1, 10, 1, 1, 1, 0),
        ("aten::mm", 3, 17, 170, 7, 3, 7, 1),
    ]


def test_how_many_ranks_are_added_at_a_time_changes_nothing() -> None:
    tables = [rows(rank, mm=rank % 3, add=5) for rank in range(7)]
    assert folded(tables, OPS).equals(folded([pl.concat(tables)], OPS))
    assert folded(tables, OPS).equals(folded([pl.concat(tables[:3]), pl.concat(tables[3:])], OPS))


def test_collectives_in_blocks_are_those_of_all_at_once(tmp_path: Path) -> None:
    for rank in range(3):
        write_rank(tmp_path / "job" / f"rank{rank}.trace", rank, 3, late=rank, collectives=5)
    parts = gathered(tmp_path / "job", tmp_path / "out")
    ranks = [Clock(part.rank or 0) for part in parts]
    asked = []

    def calls_of(place: int, first: int, end: int) -> pl.DataFrame:
        asked.append((first, end))
        return parts[place].table("calls", first, end)

    whole = across(ranks, 5, 1, calls_of)
    assert whole.collectives["ranks"].to_list() == [3] * 5
    assert whole.collectives["last"].to_list() == [2] * 5
    asked.clear()
    blocks = across(ranks, 5, 1, calls_of, at_once=6)
    assert {end - first for first, end in asked} == {2}, "two numbers of three ranks are six calls"
    assert blocks.collectives.equals(whole.collectives)
    first, second, last = merge(parts)["ranks"]["waited_ns"]
    assert first > second > last == 0


class Clock:
    boot, began_ns = "clock", 5000

    def __init__(self, rank: int) -> None:
        self.rank = rank


def test_merged_tables_do_not_depend_on_how_many_ranks_are_in_memory(tmp_path: Path) -> None:
    for rank in range(5):
        write_rank(tmp_path / "job" / f"rank{rank}.trace", rank, 5, late=7 * rank, ops=1 + rank % 2)
    parts = gathered(tmp_path / "job", tmp_path / "out")
    one, all_ = (
        {name: parquet(table) for name, table in merge(parts, at_once).items()} for at_once in (1, 64)
    )
    assert one == all_
    assert len(one) == 15


def test_the_late_rank_and_the_lines_in_which_it_lost_the_time(tmp_path: Path) -> None:
    for rank in range(3):
        path = tmp_path / "job" / f"rank{rank}.trace"
        write_rank(path, rank, 3, late=4_000 * (rank == 1), collectives=4)
    late = merge(gathered(tmp_path / "job", tmp_path / "out"))["late"].row(0, named=True)
    assert (late["rank"], late["times"], late["collectives"]) == (1, 3, 3)
    assert (late["before"], late["after"], late["op"]) == ("/work/train.py:1", "/work/train.py:2", None)
    assert late["excess_ns"] == 3 * 40_010, "the 10 ns of the others are less than a microsecond"


def test_what_does_not_explain_the_lateness_is_left_out() -> None:
    collectives = pl.DataFrame(
        {
            "group": ["0", "0"],
            "number": [1, 2],
            "ranks": [2, 2],
            "came_ns": [1_000_000, 2_000_000],
            "steady": [False, False],
            "last": [1, 1],
            "late_ns": [90_000, 90_000],
            "source": ["a", "a"],
        }
    )
    clocks = pl.DataFrame({"rank": [0, 1], "offset_ns": [0, 0]})
    for own, at, explained in (
        (200_000, "x:1", True),
        (1_000, "x:1", False),
        (900_000, "x:1", False),
        (200_000, None, False),
    ):
        row = {"group": "0", "number": 1, "at": "host", "before": at, "after": at}
        lines = [
            pl.DataFrame([{**row, "rank": rank, "total_ns": took}], {"rank": pl.Int64, **LINES})
            for rank, took in ((0, 100), (1, own))
        ]
        (late,) = late_ranks(collectives, lines, clocks).iter_rows(named=True)
        assert (late["before"], late["excess_ns"]) == ((at, own - 100) if explained else (None, None))


def test_hosts_without_a_known_clock_are_not_matched(tmp_path: Path) -> None:
    for rank, boot in enumerate(("one", "two")):
        write_rank(tmp_path / "job" / f"rank{rank}.trace", rank, host=boot, boot=boot)
    tables = merge(gathered(tmp_path / "job", tmp_path / "out"))
    assert tables["collectives"].is_empty()
    assert tables["ranks"]["clock"].to_list() == ["exact", "unknown"]
    assert tables["ranks"]["host"].to_list() == ["one", "two"]


def test_two_jobs_are_apart(tmp_path: Path) -> None:
    for job in ("one", "two"):
        for rank in range(2):
            write_rank(tmp_path / "runs" / job / f"rank{rank}.trace", rank)
    tables = merge(gathered(tmp_path / "runs", tmp_path / "out"))
    assert tables["ranks"].select("job", "rank").rows() == [("one", 0), ("one", 1), ("two", 0), ("two", 1)]
    assert tables["collectives"].group_by("job").len().sort("job").rows() == [("one", 3), ("two", 3)]
    assert tables["ops"]["ranks"].to_list() == [2] * 4


def test_nothing_was_read(tmp_path: Path) -> None:
    from tracer.cli.app import app

    (tmp_path / "part").mkdir()
    result = CliRunner().invoke(app, ["fleet", "-o", str(tmp_path)])
    said = "tracer: no trace was read so far; give traces, or folders of traces\n"
    assert (result.exit_code, result.stderr) == (2, said)
