"""Ranks side by side: sentences about them, and tables of their collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from tracer.analysis.job.late_cause import INPUTS, SLOWER
from tracer.analysis.job.lines_before import HOST
from tracer.analysis.job.mismatch import Mismatch
from tracer.analysis.job.outstanding import PROBABLY, SURELY, Caller, Outstanding, Place, Unanswered
from tracer.analysis.source_lines import NO_LINE
from tracer.base.paths import is_dump
from tracer.report.cells import code, prose, table
from tracer.report.page import paragraphs
from tracer.report.text import amount, count, duration, left_out, shorten_path, size

Tables = Mapping[str, pl.DataFrame]
"""Those of tracer.analysis.fleet.merge"""
Cell = Callable[[dict[str, Any]], str]
Columns = dict[str, Cell]
"""title -> what is in the cell of a row"""
ROWS = 20
_PLACES = 4
_LONG_NS = 1_000_000_000
"""A wait for a GPU that is reported, if no collective explains it"""
LINE, _TEXT = 44, 60
"""The longest path of a line, and text of it, in a cell"""
_COMES = """\
A rank comes when its device kernel starts, and where there is none when it calls. **Waited**: until the last
rank came, all ranks together. **Transfer**: the device kernel of the last rank."""


def waiting_in_words(of: Outstanding, step: int | None) -> str:
    """Which ranks did not reach a collective, who waits there since when, and where the missing ranks are.

    `step`: from which step calls are counted, None: from the first one.
    """

    counted = _counted(of.number, of.group, step)
    who = ranks_in_words([place.rank for place in of.missing], True)
    missed = f"{who} had not yet reached" if of.is_usual else f"**{who} did not reach**"
    words = f"{missed} {code(of.op)}{_of_line(of.line)} ({counted})."
    places = [
        f"{ranks_in_words([place.rank], True)} {_place_in_words([place])}." for place in of.missing[:_PLACES]
    ]
    usual = (
        f"That is as usual: in the {of.before:,} collectives before, the first rank waited for the last one "
        f"{duration(of.median_ns)} in the median, {duration(of.most_ns)} at most."
    )
    return " ".join([words, *_callers_in_words(of), *places, *[usual] * of.is_usual])


def _counted(number: int, group: str, step: int | None) -> str:
    return f"call {number:,} of group {code(group)}" + (f" since step {step:,}" if step else "")


def mismatch_in_words(of: Mismatch, step: int | None) -> str:
    """Which ranks wait in which collectives of one group."""
    ops = [f"{code(op)}{_of_line(line)} on {ranks_in_words(ranks)}" for op, line, ranks in of.ops]
    more = f", and {len(ops) - _PLACES:,} more" if len(ops) > _PLACES else ""
    said = f"{', '.join(ops[:-1])} and {ops[-1]}" if not more else ", ".join(ops[:_PLACES]) + more
    counted = _counted(of.number, of.group, step)
    return (
        f"**Ranks wait in different collectives**: {counted} is {said}. "
        f"They called it {_span([of.shortest_ns, of.longest_ns])} ago, and have called no op since."
        + "".join(f" {words}" for words in _absent_in_words(of))
    )


def _absent_in_words(of: Mismatch) -> list[str]:
    """Which ranks reached none of the collectives, and where they are: a sentence for those at one place."""
    reached = "reached neither" if len(of.ops) == 2 else "reached none of them"
    together: dict[tuple[Any, ...], list[Place]] = {}
    for place in of.absent:
        key = _where(place)
        together.setdefault(key, []).append(place)
    order = sorted(together.values(), key=len, reverse=True)
    sentences = []
    for own in order[:_PLACES]:
        who = ranks_in_words([place.rank for place in own], True)
        they = "they" if len(own) > 1 else "it"
        sentences.append(f"{who} {reached}: {they} {_place_in_words(own)}.")
    more = sum(map(len, order[_PLACES:]))
    return sentences + [f"{count(more, 'more rank')} {reached}."] * bool(more)


def unanswered_in_words(of: Unanswered, step: int | None) -> str:
    """Where ranks probably wait, if traces of other ranks are not here."""
    several = len(of.ranks) > 1
    they, have = ("they", "have") if several else ("it", "has")
    group = "" if of.group is None else f" (group {code(of.group)})"
    counted = group if of.group is None or of.number is None else f" ({_counted(of.number, of.group, step)})"
    return (
        f"**{ranks_in_words(of.ranks, True)} probably wait{'' if several else 's'}** in "
        f"{code(of.op)}{_of_line(of.line)}{counted}: {they} called it "
        f"{_span([of.shortest_ns, of.longest_ns])} ago, and {have} called no op since."
    )


def _callers_in_words(of: Outstanding) -> list[str]:
    """A sentence on the ranks that wait there, and on those that are at one place, most ranks first."""
    together: dict[tuple[Any, ...], list[Caller]] = {}
    for caller in of.callers:
        place = caller.place
        key = () if caller.waits else _where(place)
        together.setdefault((caller.waits or "", *key), []).append(caller)
    order = sorted(
        together.values(), key=lambda own: (own[0].waits is None, own[0].waits != SURELY, -len(own))
    )
    sentences = []
    for callers in order[:_PLACES]:
        who = ranks_in_words([caller.rank for caller in callers], True)
        ago, several = _span([caller.called_ns for caller in callers]), len(callers) > 1
        have = "have" if several else "has"
        if callers[0].waits == SURELY:
            sentences.append(f"{who} {have} waited there for {ago}.")
        elif callers[0].waits == PROBABLY:
            wait = "wait" if several else "waits"
            sentences.append(
                f"{who} called it {ago} ago, {have} called no op since, and probably {wait} there."
            )
        else:
            where = _place_in_words([caller.place for caller in callers])
            also = "" if where.startswith("left ") else "and "
            sentences.append(f"{who} called it {ago} ago, {also}{where}.")
    more = sum(map(len, order[_PLACES:]))
    return sentences + [f"{count(more, 'more rank')} called it, and other ops since."] * bool(more)


def _place_in_words(places: Sequence[Place]) -> str:
    """Where ranks are that are at one place: `has been in ... for 3 s`."""
    place, have = places[0], "have" if len(places) > 1 else "has"
    if place.op is None:
        return f"{have} called no op in its trace"
    since = _span([place.since_ns for place in places])
    op = f"{code(place.op)}{_of_line(place.line)}"
    if place.waits:
        probably = " probably" if place.waits == PROBABLY else ""
        group = f" (group {code(place.group)})" if place.group is not None else ""
        return f"{have}{probably} waited in {op}{group} for {since}"
    if place.is_in:
        return f"{have} been in {op} for {since}{_more(place)}"
    return f"left {op} {since} ago, and {have} called no op since{_more(place)}"


def gpu_waits_in_words(ranks: pl.DataFrame) -> list[str]:
    """Which ranks have waited for their GPU for a second, and what one of them alone has launched.

    `ranks` is the table of that name, of one job: what they launched since they waited before may still run.
    """
    waiting = ranks.with_columns(waited_ns=pl.col("dumped_ns") - pl.col("op_ns")).filter(
        pl.all_horizontal(pl.col("rank", "launched", "op").is_not_null())
        & pl.col("is_in")
        & (pl.col("waited_ns") >= _LONG_NS)
    )
    found = []
    for (op, line), own in waiting.group_by("op", "op_line", maintain_order=True):
        have = "have" if len(own) > 1 else "has"
        found.append(
            f"**{ranks_in_words(own['rank'].to_list(), True)} {have} waited for the GPU** in "
            f"{code(str(op))}{_of_line(line)} for {_span(own['waited_ns'].to_list())}."
        )
    lines_of = waiting.select("rank", pl.col("launched").list.drop_nulls())
    launched = {rank: set(lines) for rank, lines in lines_of.iter_rows()}
    for rank, lines in launched.items():
        others = set().union(*(own for other, own in launched.items() if other != rank))
        if len(launched) > 1 and (alone := sorted(lines - others)):
            said = ", ".join(code(line) for line in alone[:_PLACES])
            found.append(
                f"Rank {rank} alone launched kernels in {said} since it waited for its GPU before: "
                "probably one of them does not end."
            )
    return [" ".join(found)] * bool(found)


def _where(place: Place) -> tuple[Any, ...]:
    """Equal for ranks that are at one place."""
    return tuple(value for name, value in vars(place).items() if name not in ("rank", "since_ns"))


def _more(place: Place) -> str:
    """` (in the range ...; last time, ... came next)`: of a rank that is in no collective."""
    known = [f"in the range {code(place.within)}"] * bool(place.within)
    known += [f"last time, {code(place.next_line or '')} came next"] * bool(place.next_line)
    return f" ({'; '.join(known)})" if known else ""


def _of_line(source: str | None) -> str:
    return "" if source is None else f" of {code(source) if ':' in source else source}"


def _span(times: Sequence[int]) -> str:
    """`3.4 s`, `998.0 ms to 1.0 s`"""
    shortest, longest = duration(min(times)), duration(max(times))
    return longest if shortest == longest else f"{shortest} to {longest}"


def last_in_words(row: dict[str, Any], of: str = "") -> str:
    """Who came last most, and why. `row` is of the table `late`; `of` names the job, if there are several."""
    return (
        f"**Rank {row['rank']}{of} was last** in {row['times']:,} of "
        f"{count(row['collectives'], 'collective')}, by {duration(row['median_ns'])} in the median "
        f"({duration(row['total_ns'])} in all): {cause(row)}."
    )


def dumps_in_words(left_out: Mapping[str, int]) -> list[str]:
    """How many dumps were left out beside their recordings, and beside later dumps of these; by trace."""
    older = sum(number for trace, number in left_out.items() if is_dump(trace))
    beside = sum(left_out.values()) - older
    it, its = ("it", "its") if beside == 1 else ("them", "their")
    said = (
        f"{count(beside, 'dump')} left out, as the recording is here too. "
        f"To read {it}, move {it} into a folder of {its} own."
    )
    is_older = f"{count(older, 'older dump')} left out, as a later one of the same recording is here."
    return [said] * bool(beside) + [is_older] * bool(older)


def cause(row: dict[str, Any], most: int | None = None) -> str:
    """Where a rank lost the time: `a.py:7 -> a.py:9`, or the op call of a line. `row` is of the table `late`.

    `most` is the longest path of a line; None: in a sentence, where nothing is shortened.
    """
    if row["excess_ns"] is None:
        return "nothing on its host or GPU explains it"
    if row["why"] != HOST:
        return _cause_on_gpu(row, f"{line_cell(row['before'], most)}{_says(row, most)}")
    return f"{host_work(row, most)} took {duration(row['excess_ns'])} longer than on the other ranks"


def host_work(row: dict[str, Any], most: int | None) -> str:
    """`a.py:7 -> a.py:9` (what the line says), or an op of a line: `before`, `after`, `op` and `text`."""
    if row["op"] is not None:
        return f"{code(row['op'])} of {line_cell(row['before'], most)}{_says(row, most)}"
    gap = f"{_name(row['before'], most)} -> {_name(row['after'], most)}"
    return f"{code(gap)}{_says(row, most)}"


def _says(row: dict[str, Any], most: int | None) -> str:
    text = row["text"] or ""
    text = f"{text[: _TEXT - 3]}..." if most and len(text) > _TEXT else text
    return f" ({code(text)})" if text else ""


def _cause_on_gpu(row: dict[str, Any], line: str) -> str:
    took = f"took {duration(row['excess_ns'])} longer on the GPU than on the other ranks"
    if row["why"] == SLOWER:
        again = f"kernels that all ranks ran took {row['ratio']:.2f} x as long on its GPU"
        return f"{again}, {duration(row['excess_ns'])} in all: another process may use it, or it is hot"
    if row["op"] is None:
        return f"its kernels {took}, in many lines"
    inputs = f"{code(row['inputs'])}, on the other ranks {code(row['others_inputs'])}"
    kernels = f"{count(row['runs'], 'kernel')} more" if row["runs"] > 0 else "kernels"
    why = f"inputs {inputs}" if row["why"] == INPUTS else f"{kernels}, most time in {code(row['kernel'])}"
    return f"{code(row['op'])} of {line} {took}: {why}"


def line_cell(source: str | None, most: int | None = LINE) -> str:
    """A line that has its name already: `train.py:7`."""
    name = _name(source, most)
    return code(name) if source is not None and ":" in source else name


def group_name(name: str, description: str | None, groups: int = 1) -> str:
    """`0`, with the dimension of a DeviceMesh `mesh_dp 3`, or of several such groups `mesh_dp` (8 groups)."""
    if groups > 1:
        return f"{code(description or name)} ({count(groups, 'group')})"
    return code(f"{description} {name}" if (description or "").startswith("mesh_") else name)


def _name(source: str | None, most: int | None) -> str:
    if source is None:
        return NO_LINE
    return source if most is None else shorten_path(source, most)


def ranks_in_words(ranks: Sequence[int], begins: bool = False) -> str:
    """`ranks 0, 3 and 8 more`; `begins`: a sentence."""
    shown = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8:,} more" if len(ranks) > 8 else ""
    return f"{'R' if begins else 'r'}ank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def rows_table(tables: Tables, rows: pl.DataFrame, most: int | None, columns: Columns) -> str:
    """At most `most` rows as a table, with the job of each, if there are several; nothing of no rows."""
    if tables["ranks"]["job"].n_unique() > 1:
        columns = {"job": text_of("job"), **columns}
    shown = rows if most is None else rows.head(most)
    cells = [[cell(row) for cell in columns.values()] for row in shown.to_dicts()]
    return table(list(columns), cells, ragged=True) + left_out(len(rows) - len(cells)) if cells else ""


def text_of(name: str) -> Cell:
    """Text of a column; nothing for null."""
    return lambda row: "" if row[name] is None else prose(row[name])


def number_of(name: str) -> Cell:
    return lambda row: f"{row[name]:,}"


def time_of(name: str) -> Cell:
    """Nanoseconds; nothing for null."""
    return lambda row: "" if row[name] is None else duration(row[name])


def late_table(tables: Tables, most: int | None) -> str:
    """Ranks that others waited for."""
    columns: Columns = {
        "rank": text_of("rank"),
        "last in:": lambda row: f"{row['times']:,} of {row['collectives']:,}",
        "by (median):": time_of("median_ns"),
        "in all:": time_of("total_ns"),
        "at": lambda row: line_cell(row["at"]),
        "where it lost the time": lambda row: cause(row, LINE),
    }
    return rows_table(tables, tables["late"], most, columns)


def collectives_table(tables: Tables, most: int) -> str:
    """Collectives by op, line, group and size, the longest wait first."""
    matched = tables["collectives"]
    if matched.is_empty():
        return ""
    unmatched = int(tables["ranks"]["calls_to_match"].sum()) - int(matched["ranks"].sum())
    described = tables["groups"].select("job", "group", "description").drop_nulls().sort("description")
    of_mesh = described.filter(pl.col("description").str.starts_with("mesh_")).unique(
        ["job", "group"], keep="first"
    )
    keys = ["job", "op", "source", "of", "bytes"]
    by = (
        matched.join(of_mesh, on=["job", "group"], how="left")
        .with_columns(of=pl.coalesce("description", "group"))
        .group_by(keys)
        .agg(
            pl.col("group", "description").first(),
            groups=pl.col("group").n_unique(),
            times=pl.len(),
            ranks=pl.col("ranks").max(),
            wait_ns=pl.col("wait_ns").median().cast(pl.Int64),
            total_ns=pl.col("wait_ns").sum(),
            transfer_ns=pl.col("transfer_ns").median().cast(pl.Int64),
        )
        .sort("total_ns", *keys, descending=[True, *[False] * len(keys)])
    )
    columns: Columns = {
        "op": lambda row: code(row["op"]),
        "line": lambda row: line_cell(row["source"]),
        "group": lambda row: group_name(row["group"], row["description"], row["groups"]),
        "ranks:": number_of("ranks"),
        "times:": number_of("times"),
        "bytes:": lambda row: "" if row["bytes"] is None else size(row["bytes"]),
        "waited (median):": time_of("wait_ns"),
        "in all:": time_of("total_ns"),
        "transfer:": time_of("transfer_ns"),
        "speed:": _speed,
    }
    return paragraphs(
        _COMES,
        rows_table(tables, by, most, columns),
        f"{count(unmatched, 'call')} could not be matched across ranks." if unmatched else "",
    )


def _speed(row: dict[str, Any]) -> str:
    known = row["transfer_ns"] and row["bytes"]
    return amount(row["bytes"] / row["transfer_ns"] * 1e9, "B/s") if known else ""
