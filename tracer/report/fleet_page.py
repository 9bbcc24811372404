"""The report of many ranks, out of their merged tables, as a markdown page."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracer.analysis.job.clocks import EXACT, UNKNOWN
from tracer.analysis.job.collectives import SYMMETRIC
from tracer.analysis.job.outstanding_table import outstanding_of
from tracer.analysis.job.stuck_tables import mismatched_of, unanswered_of
from tracer.report.cells import code, item, prose
from tracer.report.job_tables import (
    ROWS,
    Columns,
    Tables,
    collectives_table,
    dumps_in_words,
    gpu_waits_in_words,
    last_in_words,
    late_table,
    line_cell,
    mismatch_in_words,
    number_of,
    ranks_in_words,
    rows_table,
    text_of,
    time_of,
    unanswered_in_words,
    waiting_in_words,
)
from tracer.report.message_tables import messages_table, most_waiting
from tracer.report.page import paragraphs, percent
from tracer.report.text import count, duration, left_out, shorten_kernel, size
from tracer.trace.certificate.verdict import only_ops_in_words

_LONGEST = 80
"""Of a device kernel or a hop, in a cell"""
_SLOW = 1.05
"""A rank is slow if its steps take this many medians of all ranks"""


def fleet_page(tables: Tables, rows: int = ROWS) -> str:
    """The page of any number of jobs, with at most `rows` of each table."""
    return ranks_page(f"# Fleet: {heading(tables)}", tables, rows)


def ranks_page(head: str, tables: Tables, rows: int | None) -> str:
    """Markdown that ends in a newline, with at most `rows` of a table; None: of each rank one."""
    parts = [paragraphs(f"## {title}", text) for title, text in sections(tables, rows)]
    return paragraphs(head, *in_words(tables), *parts) + "\n"


def sections(tables: Tables, rows: int | None) -> list[tuple[str, str]]:
    """(title, text) of each section that has something to say."""
    most = rows or ROWS
    parts = [
        ("Not read", _unread(tables, rows)),
        ("Incomplete", _incomplete(tables, rows)),
        ("Ranks", _ranks(tables, rows)),
        ("Who came last", late_table(tables, rows)),
        ("Slowest ranks", _slow(tables, rows)),
        ("What differs between ranks", _differs(tables, most)),
        ("Collectives", collectives_table(tables, most)),
        ("Messages between ranks", messages_table(tables, most)),
        ("Communication beside computing", _overlap(tables, rows)),
        ("Ops", _ops(tables, most)),
        ("Device kernels", _kernels(tables, most)),
        ("Memory", _memory(tables, rows)),
        ("Where paths part", _partings(tables, rows)),
        ("Clocks", _clocks(tables, rows)),
        ("Jobs", _jobs(tables, most)),
    ]
    return [part for part in parts if part[1]]


def heading(tables: Tables) -> str:
    """`100 ranks of 2 jobs on 13 hosts, 1 trace not read`"""
    read = _read(tables)
    unread = len(tables["ranks"]) - len(read)
    of = f"{count(len(read), 'rank')} of {count(read['job'].n_unique(), 'job')}"
    on = f" on {count(read['host'].n_unique(), 'host')}" if len(read) else ""
    return f"{of}{on}" + (f", {count(unread, 'trace')} not read" if unread else "")


def in_words(tables: Tables) -> list[str]:
    """What matters most, a sentence or two each; markdown."""
    return waits_in_words(tables) + facts_in_words(tables)


def waits_in_words(tables: Tables) -> list[str]:
    """Of dumps: which collectives ranks wait for."""
    found = []
    for job, own in _jobs_of(tables["ranks"]):
        mismatched, waiting, unanswered = (
            tables[name].filter(pl.col("job") == job) for name in ("mismatched", "outstanding", "unanswered")
        )
        said = [mismatch_in_words(*of) for of in mismatched_of(mismatched)]
        said += [waiting_in_words(*of) for of in outstanding_of(waiting)]
        said += [unanswered_in_words(*of) for of in unanswered_of(unanswered)]
        said = said or gpu_waits_in_words(own)
        found += [_of_job(job, tables) + words for words in said]
    return found


def facts_in_words(tables: Tables) -> list[str]:
    """What the traces are, and of each job who came last."""
    read, found = _read(tables), []
    dumps, incomplete = len(read.filter("whole_dump")), len(_lacking(read))
    if dumps:
        found.append(
            f"{count(dumps, 'rank')} of {len(read):,} {_is(dumps)} from dumps: the last window of a "
            "recording that went on."
        )
    if incomplete:
        found.append(f"{count(incomplete, 'rank')} of {len(read):,} {_is(incomplete)} incomplete.")
    found += _only_ops_in_words(tables) + missing_in_words(tables) + _symmetric_in_words(tables)
    for job, own in _jobs_of(tables["ranks"]):
        left_out = dict(own.select("trace", pl.col("dumps_left_out").fill_null(0)).iter_rows())
        found += [_of_job(job, tables) + said for said in dumps_in_words(left_out)]
    for job, own in _jobs_of(read):
        late = tables["late"].filter(pl.col("job") == job)
        of = f" of job {prose(job)}" if _of_job(job, tables) else ""
        waiting = most_waiting(tables, job, of)
        found += [waiting] * bool(waiting)
        if len(late):
            found.append(last_in_words(late.row(0, named=True), of))
        elif not waiting:
            found.append(_of_job(job, tables) + _nobody_late(job, own, tables))
    return found


def _only_ops_in_words(tables: Tables) -> list[str]:
    """Which ops alone were recorded of ranks, if they were recorded with --ops."""
    narrowed = _read(tables).filter(pl.col("only_ops").list.len() > 0)
    by = narrowed.group_by("job", "only_ops", maintain_order=True).len()
    return [
        f"{_of_job(job, tables)}Of {count(ranks, 'rank')} only {prose(only_ops_in_words(patterns))} were "
        "recorded: others may have run, unseen."
        for job, patterns, ranks in by.iter_rows()
    ]


def _symmetric_in_words(tables: Tables) -> list[str]:
    """Exchanges through memory that ranks share, which name no group and no number."""
    op = pl.col("op").cast(pl.String)
    ops = tables["ops"].filter(op.str.starts_with(SYMMETRIC) & (pl.col("calls") > 0))
    by = ops.group_by("job", maintain_order=True).agg(pl.col("calls").sum(), op.sort_by("calls").last())
    return [
        f"{_of_job(job, tables)}{count(calls, 'call')} of symmetric memory, most of them "
        f"{code(name)}, cannot be matched across ranks: who waited in them is not known."
        for job, calls, name in by.iter_rows()
    ]


def missing_in_words(tables: Tables) -> list[str]:
    """Which ranks no trace is of, and which traces are of no rank."""
    found = []
    for job, own in _jobs_of(_read(tables)):
        missing, nameless = _missing(own), own.filter(pl.col("rank").is_null())["trace"].to_list()
        if missing:
            ended = " If a rank got the signal and wrote no dump, its process has ended."
            dumped = bool(len(own.filter("whole_dump")))
            words = f"No trace here is of {ranks_in_words(missing)}.{ended * dumped}"
            found.append(f"{_of_job(job, tables)}{words}")
        if nameless and len(nameless) < len(own):
            more = f", nor do {len(nameless) - 1:,} more" if len(nameless) > 1 else ""
            found.append(f"{_of_job(job, tables)}{code(nameless[0])} does not say which rank it is of{more}.")
    return found


def _nobody_late(job: str, ranks: pl.DataFrame, tables: Tables) -> str:
    if len(tables["collectives"].filter(pl.col("job") == job)):
        return "No rank came last by more than 20 us."
    groups = tables["groups"].filter(pl.col("job") == job)["group"]
    cannot = (
        f"{count(int(ranks['collective_calls'].sum()), 'collective call')} cannot be matched across ranks: "
    )
    if groups.count() and len(ranks) > 1 and ranks["calls_to_match"].is_null().all():
        return (
            f"{cannot}the traces begin at different moments (rings that overwrote hops, or tracer attach), "
            "and share no whole step."
        )
    if len(groups) and not groups.count():
        return f"{cannot}their process groups were not recorded, as with `--no-shapes`."
    return "No collective of two ranks or more is in these traces."


def _of_job(job: str, tables: Tables) -> str:
    return f"Job {prose(job)}: " if tables["ranks"]["job"].n_unique() > 1 else ""


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _read(tables: Tables) -> pl.DataFrame:
    return tables["ranks"].filter(pl.col("error").is_null())


def _lacking(read: pl.DataFrame) -> pl.DataFrame:
    """The ranks that are not complete, without dumps: these are windows, and lack what went on."""
    return read.filter(~(pl.col("complete") | pl.col("whole_dump")))


def _jobs_of(ranks: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    parts = ranks.partition_by("job", as_dict=True, maintain_order=True)
    return [(str(job), own) for (job,), own in parts.items()]


def _missing(ranks: pl.DataFrame) -> list[int]:
    """The ranks of a job that no trace is of."""
    have = set(ranks["rank"].drop_nulls().to_list())
    number = max([int(ranks["ranks"].max() or 0), *(rank + 1 for rank in have)])  # type: ignore[arg-type]
    return sorted(set(range(number)) - have)


def _unread(tables: Tables, most: int | None) -> str:
    rows = tables["ranks"].filter(pl.col("error").is_not_null())
    shown = rows if most is None else rows.head(most)
    lines = [item(f"{code(row['trace'])}: {prose(row['error'])}") for row in shown.to_dicts()]
    return paragraphs("\n".join(lines), left_out(len(rows) - len(lines)).strip())


def _incomplete(tables: Tables, most: int | None) -> str:
    columns = {"rank": text_of("rank"), "host": text_of("host"), "what is missing": text_of("verdict")}
    return rows_table(tables, _lacking(_read(tables)), most, columns)


def _ranks(tables: Tables, most: int | None) -> str:
    columns: Columns = {
        "rank": text_of("rank"),
        "host": text_of("host"),
        "process": text_of("pid"),
        "steps:": number_of("steps"),
        "median step:": time_of("step_ns"),
        "op calls:": number_of("op_calls"),
        "last in:": number_of("times_last"),
        "others waited:": lambda row: duration(row["others_waited_ns"]) if row["times_last"] else "",
        "waited:": time_of("waited_ns"),
    }
    return rows_table(tables, _read(tables).drop_nulls("rank"), most, columns)


def _slow(tables: Tables, most: int | None) -> str:
    """By their steps; waiting for another rank is part of a step."""
    ranks = _read(tables).filter(pl.col("step_ns").is_not_null())
    rows = (
        ranks.with_columns(usual=pl.col("step_ns").median().over("job").cast(pl.Int64))
        .filter(pl.col("step_ns") > _SLOW * pl.col("usual"))
        .sort("step_ns", "job", "rank", descending=[True, False, False])
    )
    if rows.is_empty():
        return "No rank has steps more than 5 % longer than the median rank." if len(ranks) else ""
    columns = {
        "rank": text_of("rank"),
        "host": text_of("host"),
        "median step:": time_of("step_ns"),
        "of the median rank:": time_of("usual"),
        "waited:": time_of("waited_ns"),
    }
    return rows_table(tables, rows, most, columns)


def _differs(tables: Tables, most: int) -> str:
    """Versions, and how often ops ran."""
    ranks = _read(tables)
    facts = []
    for name in ("torch", "python"):
        for job, own in _jobs_of(ranks):
            versions = own.group_by(pl.col(name).fill_null("unknown")).agg(pl.len()).sort("len", name).rows()
            if len(versions) > 1:
                each = ", ".join(
                    f"{prose(version)} on {count(number, 'rank')}" for version, number in versions
                )
                facts.append(item(f"{name} of job {prose(job)}: {each}"))
    ops = tables["ops"].join(ranks.group_by("job").agg(of=pl.len().cast(pl.Int64)), on="job")
    ops = (
        ops.with_columns(
            least=pl.when(pl.col("ranks") < pl.col("of")).then(0).otherwise(pl.col("least_hops"))
        )
        .filter(pl.col("least") != pl.col("most_hops"))
        .sort(
            pl.col("most_hops") - pl.col("least"), "job", "op", "key", descending=[True, False, False, False]
        )
    )
    columns: Columns = {
        "op and key": _op,
        "ranks that have it:": lambda row: f"{row['ranks']:,} of {row['of']:,}",
        "fewest hops:": number_of("least"),
        "most hops:": number_of("most_hops"),
        "first rank with most": text_of("most_rank"),
    }
    return paragraphs("\n".join(facts), rows_table(tables, ops, most, columns))


def _op(row: dict[str, Any]) -> str:
    return f"{code(row['op'] or '?')} [{prose(row['key'] or '?')}]"


def _overlap(tables: Tables, most: int | None) -> str:
    def share(row: dict[str, Any]) -> str:
        whole = row["communication_ns"]
        return percent(row["beside_ns"] / whole) if whole else ""

    columns: Columns = {
        "rank": text_of("rank"),
        "communication:": time_of("communication_ns"),
        "of it beside computing:": share,
        "computing:": time_of("computing_ns"),
        "in steps of:": time_of("wall_ns"),
    }
    rows = rows_table(tables, tables["overlap"], most, columns)
    said = "Time of the GPU: kernels of NCCL, and all others, on any stream."
    return paragraphs(said, rows) if rows else ""


def _ops(tables: Tables, most: int) -> str:
    columns: Columns = {
        "op and key": _op,
        "ranks:": number_of("ranks"),
        "op calls:": number_of("calls"),
        "hops:": number_of("hops"),
        "self time:": time_of("self_ns"),
        "longest hop:": time_of("longest_ns"),
        "GPU:": lambda row: duration(row["gpu_ns"]) if row["gpu_ns"] else "",
    }
    ops = tables["ops"].sort("self_ns", "job", "op", "key", descending=[True, False, False, False])
    return rows_table(tables, ops, most, columns)


def _kernels(tables: Tables, most: int) -> str:
    columns: Columns = {
        "device kernel": lambda row: code(shorten_kernel(row["kernel"] or "?", _LONGEST)),
        "ranks:": number_of("ranks"),
        "runs:": number_of("runs"),
        "in all:": time_of("total_ns"),
        "on the slowest rank:": time_of("most_total_ns"),
        "which is": text_of("most_rank"),
    }
    kernels = tables["kernels"].sort("total_ns", "job", "kernel", descending=[True, False, False])
    return rows_table(tables, kernels, most, columns)


def _memory(tables: Tables, most: int | None) -> str:
    """Of ranks that were recorded with `--memory`; the line is the one that had most at the peak."""

    def line(row: dict[str, Any]) -> str:
        if row["most_bytes"] is None:  # only blocks from before the recording were given back
            return ""
        return f"{line_cell(row['most_line'])}: {size(row['most_bytes'])}"

    columns: Columns = {
        "rank": text_of("rank"),
        "device": text_of("device"),
        "at the peak:": lambda row: size(row["peak_bytes"]),
        "in step": text_of("peak_step"),
        "at the end:": lambda row: size(row["end_bytes"]),
        "most of it": line,
        "blocks:": number_of("blocks"),
    }
    order = ["peak_bytes", "job", "rank", "device"]
    rows = tables["memory"].sort(order, descending=[True, False, False, False])
    return rows_table(tables, rows, most, columns)


def _partings(tables: Tables, most: int | None) -> str:
    """Of a job whose traces are in memory."""
    if "partings" not in tables or tables["partings"].is_empty():
        return ""
    rows = tables["partings"]
    first = f"rank {rows['first_rank'][0]}"

    def hop(name: str | None, line: str | None) -> str:
        return f"{code(shorten_kernel(name, _LONGEST))} of {line_cell(line)}" if name else "nothing more"

    columns: Columns = {
        "rank": text_of("rank"),
        "hop": number_of("number"),
        "this rank": lambda row: hop(row["here"], row["line"]),
        first: lambda row: hop(row["first"], row["first_line"]),
    }
    return paragraphs(
        f"The first hop of each rank that is not the one of {first}, counted on the main thread.",
        rows_table(tables, rows, most, columns),
    )


def _clocks(tables: Tables, most: int | None) -> str:
    rows = tables["ranks"].drop_nulls("clock")
    if (rows["clock"] == EXACT).all():
        return ""
    said = {EXACT: "the same clock", UNKNOWN: "not known: its times are left out"}
    columns: Columns = {
        "rank": text_of("rank"),
        "clock": lambda row: said.get(row["clock"], "by the ends of collectives"),
        "may be off by:": time_of("clock_error_ns"),
    }
    return rows_table(tables, rows, most, columns)


def _jobs(tables: Tables, most: int) -> str:
    rows = (
        _read(tables)
        .group_by("job", maintain_order=True)
        .agg(
            pl.col("hops", "op_calls", "kernels", "collective_calls").sum(),
            ranks=pl.len(),
            hosts=pl.col("host").n_unique(),
            unknown=(pl.col("clock") == UNKNOWN).sum(),
            error=pl.col("clock_error_ns").max(),
        )
    )

    def clocks(row: dict[str, Any]) -> str:
        if row["unknown"]:
            return f"{row['unknown']:,} unknown"
        return f"within {duration(row['error'])}" if row["error"] else "exact"

    columns: Columns = {
        "job": text_of("job"),
        "ranks:": number_of("ranks"),
        "hosts:": number_of("hosts"),
        "hops:": number_of("hops"),
        "op calls:": number_of("op_calls"),
        "device kernels:": number_of("kernels"),
        "collective calls:": number_of("collective_calls"),
        "clocks": clocks,
    }
    return rows_table(tables, rows, most, columns)
