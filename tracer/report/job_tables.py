"""Ranks side by side, as parts of a report: a title and a text each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from tracer.analysis.fleet.across import LATE
from tracer.analysis.job import Job
from tracer.analysis.job.clocks import EXACT, UNKNOWN
from tracer.analysis.job.collectives import waits
from tracer.analysis.job.mismatch import Mismatch
from tracer.analysis.job.outstanding import PROBABLY, SURELY, Caller, Outstanding, Place, Unanswered
from tracer.analysis.job.overlap import overlaps
from tracer.analysis.memory_use import MemoryUse, memory_use
from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.base.paths import is_dump
from tracer.report.cells import code, prose, table
from tracer.report.page import paragraphs, percent
from tracer.report.text import amount, count, duration, left_out, shorten_kernel, shorten_path, size

ROWS = 20
_PLACES = 4
LINE, _TEXT, HOP = 44, 60, 80
"""The longest path of a line, text of it, and hop, in a cell"""
_COMES = """\
A rank comes when its device kernel starts, and where there is none when it calls. **Waited**: until the last
rank came, all ranks together. **Transfer**: the device kernel of the last rank."""


def job_parts(job: Job, rows: int | None = None, hangs: bool = True) -> list[tuple[str, str]]:
    """(title, text) of each part that has something to say; without `hangs` not what ranks wait for."""
    sources = SourceLines.of(job.parts[0].trace)
    parts = [
        ("", paragraphs(hangs_in_words(job) if hangs else "", _lateness_in_words(job, sources))),
        ("Ranks", _ranks(job)),
        ("Who came last", late_table(late_rows(job, sources))),
        ("Collectives", _collectives(job, sources, rows or ROWS)),
        ("Communication beside computing", _overlap(job)),
        ("Memory", _memory(job, sources)),
        ("Where paths part", _partings(job, sources)),
        ("Clocks", _clocks(job)),
    ]
    return [part for part in parts if part[1]]


def hangs_in_words(job: Job) -> str:
    """Of dumps: which collectives ranks wait for, a paragraph each."""
    name = SourceLines.of(job.parts[0].trace).name
    step = job.numbering.step
    return paragraphs(
        *(mismatch_in_words(of, step, name) for of in job.mismatched),
        *(waiting_in_words(of, step, name) for of in job.outstanding),
        *(unanswered_in_words(of, step, name) for of in job.unanswered),
    )


def waiting_in_words(of: Outstanding, step: int | None, name: Callable[[str], str]) -> str:
    """Which ranks did not reach a collective, who waits there since when, and where the missing ranks are.

    `step`: from which step calls are counted, None: from the first one. `name` shortens a line.
    """

    counted = _counted(of.number, of.group, step)
    who = ranks_in_words([place.rank for place in of.missing], True)
    missed = f"{who} had not yet reached" if of.is_usual else f"**{who} did not reach**"
    words = f"{missed} {code(of.op)}{_of_line(of.line, name)} ({counted})."
    places = [
        f"{ranks_in_words([place.rank], True)} {_place_in_words([place], name)}."
        for place in of.missing[:_PLACES]
    ]
    usual = (
        f"That is as usual: in the {of.before:,} collectives before, the first rank waited for the last one "
        f"{duration(of.median_ns)} in the median, {duration(of.most_ns)} at most."
    )
    return " ".join([words, *_callers_in_words(of, name), *places, *[usual] * of.is_usual])


def _counted(number: int, group: str, step: int | None) -> str:
    return f"call {number:,} of group {code(group)}" + (f" since step {step:,}" if step else "")


def mismatch_in_words(of: Mismatch, step: int | None, name: Callable[[str], str]) -> str:
    """Which ranks wait in which collectives of one group."""
    ops = [f"{code(op)}{_of_line(line, name)} on {ranks_in_words(ranks)}" for op, line, ranks in of.ops]
    more = f", and {len(ops) - _PLACES:,} more" if len(ops) > _PLACES else ""
    said = f"{', '.join(ops[:-1])} and {ops[-1]}" if not more else ", ".join(ops[:_PLACES]) + more
    counted = _counted(of.number, of.group, step)
    return (
        f"**Ranks wait in different collectives**: {counted} is {said}. "
        f"They called it {_span([of.shortest_ns, of.longest_ns])} ago, and have called no op since."
        + "".join(f" {words}" for words in _absent_in_words(of, name))
    )


def _absent_in_words(of: Mismatch, name: Callable[[str], str]) -> list[str]:
    """Which ranks reached none of the collectives, and where they are: a sentence for those at one place."""
    reached = "reached neither" if len(of.ops) == 2 else "reached none of them"
    together: dict[tuple[Any, ...], list[Place]] = {}
    for place in of.absent:
        key = (place.is_in, place.op, place.line, place.waits, place.group)
        together.setdefault(key, []).append(place)
    order = sorted(together.values(), key=len, reverse=True)
    sentences = []
    for own in order[:_PLACES]:
        who = ranks_in_words([place.rank for place in own], True)
        they = "they" if len(own) > 1 else "it"
        sentences.append(f"{who} {reached}: {they} {_place_in_words(own, name)}.")
    more = sum(map(len, order[_PLACES:]))
    return sentences + [f"{count(more, 'more rank')} {reached}."] * bool(more)


def unanswered_in_words(of: Unanswered, step: int | None, name: Callable[[str], str]) -> str:
    """Where ranks probably wait, if traces of other ranks are not here."""
    several = len(of.ranks) > 1
    they, have = ("they", "have") if several else ("it", "has")
    group = "" if of.group is None else f" (group {code(of.group)})"
    counted = group if of.group is None or of.number is None else f" ({_counted(of.number, of.group, step)})"
    return (
        f"**{ranks_in_words(of.ranks, True)} probably wait{'' if several else 's'}** in "
        f"{code(of.op)}{_of_line(of.line, name)}{counted}: {they} called it "
        f"{_span([of.shortest_ns, of.longest_ns])} ago, and {have} called no op since."
    )


def _callers_in_words(of: Outstanding, name: Callable[[str], str]) -> list[str]:
    """A sentence on the ranks that wait there, and on those that are at one place, most ranks first."""
    together: dict[tuple[Any, ...], list[Caller]] = {}
    for caller in of.callers:
        place = caller.place
        key = () if caller.waits else (place.is_in, place.op, place.line, place.waits, place.group)
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
            where = _place_in_words([caller.place for caller in callers], name)
            also = "" if where.startswith("left ") else "and "
            sentences.append(f"{who} called it {ago} ago, {also}{where}.")
    more = sum(map(len, order[_PLACES:]))
    return sentences + [f"{count(more, 'more rank')} called it, and other ops since."] * bool(more)


def _place_in_words(places: Sequence[Place], name: Callable[[str], str]) -> str:
    """Where ranks are that are at one place: `has been in ... for 3 s`."""
    place, have = places[0], "have" if len(places) > 1 else "has"
    if place.op is None:
        return f"{have} called no op in its trace"
    since = _span([place.since_ns for place in places])
    op = f"{code(place.op)}{_of_line(place.line, name)}"
    if place.waits:
        probably = " probably" if place.waits == PROBABLY else ""
        group = f" (group {code(place.group)})" if place.group is not None else ""
        return f"{have}{probably} waited in {op}{group} for {since}"
    if place.is_in:
        return f"{have} been in {op} for {since}"
    return f"left {op} {since} ago, and {have} called no op since"


def _of_line(source: str | None, name: Callable[[str], str]) -> str:
    return "" if source is None else f" of {code(name(source)) if ':' in source else source}"


def _span(times: Sequence[int]) -> str:
    """`3.4 s`, `998.0 ms to 1.0 s`"""
    shortest, longest = duration(min(times)), duration(max(times))
    return longest if shortest == longest else f"{shortest} to {longest}"


def _lateness_in_words(job: Job, sources: SourceLines) -> str:
    missing = paragraphs(
        *(f"Not read: {code(path)}: {prose(why)}." for path, why in sorted(job.unread.items())),
        *(f"Not read: {code(of.path)}: it does not say which rank it is of." for of in job.rankless),
        not_here(job),
        *dumps_in_words(job.left_out),
    )
    if job.collectives.is_empty():
        return paragraphs(_no_collectives(job), missing)
    if not job.lateness:
        return paragraphs("No rank came last by more than 20 us.", missing)
    return paragraphs(last_in_words(late_rows(job, sources).row(0, named=True)), missing)


def last_in_words(row: dict[str, Any], of: str = "") -> str:
    """Who came last most, and why. `row` is of `late_rows`; `of` names the job, where there are several."""
    return (
        f"**Rank {row['rank']}{of} was last** in {row['times']:,} of "
        f"{count(row['collectives'], 'collective')}, by {duration(row['median_ns'])} in the median "
        f"({duration(row['total_ns'])} in all): {cause(row)}."
    )


def not_here(job: Job) -> str:
    """Which ranks no trace is of."""
    return f"No trace here is of {ranks_in_words(job.missing)}." if job.missing else ""


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


def _no_collectives(job: Job) -> str:
    if len(job.parts) > 1 and not job.numbering.begins and job.calls["group"].count():
        return (
            f"{count(len(job.calls), 'collective call')} cannot be matched across ranks: the traces begin at "
            "different moments (rings that overwrote hops, or tracer attach), and share no whole step."
        )
    if len(job.calls) and job.calls["group"].is_null().all():
        return (
            f"{count(len(job.calls), 'collective call')} cannot be matched across ranks: "
            "their process groups were not recorded, as with `--no-shapes`."
        )
    return "No collective of two ranks or more is in these traces."


def cause(row: dict[str, Any], most: int | None = None) -> str:
    """Where a rank lost the time: `a.py:7 -> a.py:9`, or the op call of a line. `row` is of `late_rows`.

    `most` is the longest path of a line; None: in a sentence, where nothing is shortened.
    """
    if row["excess_ns"] is None:
        return "no line on the host explains it"
    longer = f"took {duration(row['excess_ns'])} longer than on the other ranks"
    if row["op"] is not None:
        return f"{code(row['op'])} of {line_cell(row['before'], most)} {longer}"
    text = row.get("text") or ""
    text = f"{text[: _TEXT - 3]}..." if most and len(text) > _TEXT else text
    gap = f"{_name(row['before'], most)} -> {_name(row['after'], most)}"
    return f"{code(gap)}{f' ({code(text)})' if text else ''} {longer}"


def line_cell(source: str | None, most: int | None = LINE) -> str:
    """A line that has its name already: `train.py:7`."""
    name = _name(source, most)
    return code(name) if source is not None and ":" in source else name


def _name(source: str | None, most: int | None) -> str:
    if source is None:
        return NO_LINE
    return source if most is None else shorten_path(source, most)


def _line(source: str | None, sources: SourceLines) -> str:
    return line_cell(None if source is None else sources.name(source))


def ranks_in_words(ranks: Sequence[int], begins: bool = False) -> str:
    """`ranks 0, 3 and 8 more`; `begins`: a sentence."""
    shown = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8:,} more" if len(ranks) > 8 else ""
    return f"{'R' if begins else 'r'}ank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _ranks(job: Job) -> str:
    late = {of.rank: of for of in job.lateness}
    waited = waits(job.calls, job.clocks, job.collectives)
    titles = [
        "rank",
        "host",
        "process",
        "steps",
        "median step",
        "op calls",
        "last in",
        "others waited",
        "waited",
    ]
    rows = []
    for part in job.parts:
        trace = part.trace
        steps = trace.steps.filter(pl.col("process") == part.process)
        steady = steps.filter(pl.col("phase").cast(pl.String) == "steady")
        lengths = (steady if len(steady) else steps).select(pl.col("end_ns") - pl.col("start_ns")).to_series()
        calls = trace.hops.filter((pl.col("process") == part.process) & (pl.col("kind") == "call"))
        processes = trace.processes.filter(pl.col("process") == part.process)
        of = late.get(part.rank)
        rows.append(
            [
                str(part.rank),
                prose(part.host),
                str(processes["pid"][0]),
                f"{len(steps):,}",
                duration(int(lengths.median())) if len(lengths) else "",  # type: ignore[arg-type]
                f"{len(calls):,}",
                f"{of.times:,}" if of else "0",
                duration(of.total_ns) if of else "",
                duration(waited[part.rank]) if part.rank in waited else "",
            ]
        )
    incomplete = [
        f"Rank {part.rank}: {prose(part.trace.certificate['verdict'])}."
        for part in job.parts
        if not part.trace.certificate["complete"]
    ]
    return paragraphs(table(titles, rows), "\n".join(f"- {line}" for line in incomplete))


def late_rows(job: Job, sources: SourceLines) -> pl.DataFrame:
    """analysis.fleet.across.LATE of a job in memory, and the text of the line after each gap."""
    rows = []
    for of in job.lateness:
        known = of.op is not None or of.before is not None or of.after is not None
        lines = {name: getattr(of, name) for name in ("at", "before", "after")}
        names = {name: None if line is None else sources.name(line) for name, line in lines.items()}
        excess = of.excess_ns if known else None
        rows.append({**asdict(of), **names, "excess_ns": excess, "text": sources.text(of.after)})
    return pl.DataFrame(rows, {**LATE, "text": pl.String})


def late_table(late: pl.DataFrame, most: int | None = None) -> str:
    """Ranks that others waited for, at most `most`; with the job of each if the table has it."""
    cells = [
        [
            *_job_cell(row),
            str(row["rank"]),
            f"{row['times']:,} of {row['collectives']:,}",
            duration(row["median_ns"]),
            duration(row["total_ns"]),
            line_cell(row["at"]),
            cause(row, LINE),
        ]
        for row in (late if most is None else late.head(most)).to_dicts()
    ]
    titles = ["rank", "last in", "by (median)", "in all", "at", "where it lost the time"]
    rest = left_out(len(late) - most) if most is not None else ""
    return table(_with_job(late, titles), cells, ragged=most is not None) + rest if cells else ""


def _job_cell(row: dict[str, Any]) -> list[str]:
    """The first cell of a row of a fleet, which has several jobs."""
    return [prose(row["job"])] if "job" in row else []


def _with_job(rows: pl.DataFrame, titles: list[str]) -> list[str]:
    return ["job", *titles] if "job" in rows.columns else titles


def collectives_table(matched: pl.DataFrame, unmatched: int, most: int) -> str:
    """Collectives by op, line, group and size, the longest wait first; with their job if the table has it."""
    if matched.is_empty():
        return ""
    keys = [*(["job"] if "job" in matched.columns else []), "op", "source", "group", "bytes"]
    by = (
        matched.group_by(keys)
        .agg(
            times=pl.len(),
            ranks=pl.col("ranks").max(),
            wait_ns=pl.col("wait_ns").median().cast(pl.Int64),
            total_ns=pl.col("wait_ns").sum(),
            transfer_ns=pl.col("transfer_ns").median().cast(pl.Int64),
        )
        .sort("total_ns", *keys, descending=[True, *[False] * len(keys)])
    )
    titles = ["op", "line", "group", "ranks", "times", "bytes", "waited (median)", "in all"]
    cells = [
        [
            *_job_cell(row),
            code(row["op"]),
            line_cell(row["source"]),
            code(row["group"]),
            f"{row['ranks']:,}",
            f"{row['times']:,}",
            size(row["bytes"]) if row["bytes"] is not None else "",
            duration(row["wait_ns"]),
            duration(row["total_ns"]),
            duration(row["transfer_ns"]) if row["transfer_ns"] is not None else "",
            amount(row["bytes"] / row["transfer_ns"] * 1e9, "B/s")
            if row["transfer_ns"] and row["bytes"]
            else "",
        ]
        for row in by.head(most).to_dicts()
    ]
    return paragraphs(
        _COMES,
        table([*_with_job(by, titles), "transfer", "speed"], cells, ragged=True) + left_out(len(by) - most),
        f"{count(unmatched, 'call')} could not be matched across ranks." if unmatched else "",
    )


def _collectives(job: Job, sources: SourceLines, most: int) -> str:
    lines = job.collectives["source"].unique().drop_nulls().to_list()
    names = {line: sources.name(line) for line in lines}
    named = pl.col("source").replace_strict(names, default=None, return_dtype=pl.String)
    return collectives_table(job.collectives.with_columns(named), job.unmatched, most)


def _overlap(job: Job) -> str:
    found = overlaps(job.parts)
    if not found:
        return ""
    titles = ["rank", "communication", "of it beside computing", "computing", "in steps of"]
    rows = [
        [
            str(of.rank),
            duration(of.communication_ns),
            percent(of.beside_ns / of.communication_ns) if of.communication_ns else "",
            duration(of.computing_ns),
            duration(of.wall_ns),
        ]
        for of in found
    ]
    return paragraphs("Time of the GPU: kernels of NCCL, and all others, on any stream.", table(titles, rows))


def _memory(job: Job, sources: SourceLines) -> str:
    """Of each rank that was recorded with `--memory`; the line is the one that had most at the peak."""
    traces = {id(part.trace): part.trace for part in job.parts}
    of_trace = {key: memory_use(trace) for key, trace in traces.items()}
    rows = []
    for part in job.parts:
        for use in (use for use in of_trace[id(part.trace)] if use.process == part.process):
            rows.append(
                [
                    str(part.rank),
                    use.device,
                    size(use.peak_bytes),
                    "" if use.peak_step is None else str(use.peak_step),
                    size(use.end_bytes),
                    _most_at_the_peak(use, sources),
                ]
            )
    return (
        table(["rank", "device", "at the peak", "in step", "at the end", "most of it"], rows) if rows else ""
    )


def _most_at_the_peak(use: MemoryUse, sources: SourceLines) -> str:
    if use.table.is_empty():  # only blocks from before the recording were given back
        return ""
    row = use.table.row(0, named=True)
    return f"{_line(row['source'], sources)}: {size(row['peak_bytes'])}"


def _partings(job: Job, sources: SourceLines) -> str:
    if not job.partings:
        return ""
    first = job.parts[0].rank
    titles = ["rank", "hop", "this rank", f"rank {first}"]
    rows = [
        [
            str(part.rank),
            f"{part.number:,}",
            f"{code(shorten_kernel(part.here, HOP))} of {_line(part.line, sources)}"
            if part.here
            else "nothing more",
            f"{code(shorten_kernel(part.first, HOP))} of {_line(part.first_line, sources)}"
            if part.first
            else "nothing more",
        ]
        for part in job.partings
    ]
    return paragraphs(
        f"The first hop of each rank that is not the one of rank {first}, counted on the main thread.",
        table(titles, rows),
    )


def _clocks(job: Job) -> str:
    rows = [
        [
            str(row["rank"]),
            {EXACT: "the same clock", UNKNOWN: "not known: its times are left out"}.get(
                row["how"], "by the ends of collectives"
            ),
            duration(row["error_ns"]) if row["error_ns"] is not None else "",
        ]
        for row in job.clocks.iter_rows(named=True)
    ]
    if all(how == EXACT for how in job.clocks["how"]):
        return ""
    return table(["rank", "clock", "may be off by"], rows)
