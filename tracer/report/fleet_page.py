"""The report of many ranks, out of their merged tables, as a markdown page."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracer.analysis.job.clocks import UNKNOWN
from tracer.analysis.job.outstanding_table import outstanding_of
from tracer.analysis.job.stuck_tables import mismatched_of, unanswered_of
from tracer.report.cells import code, item, prose, table
from tracer.report.job_tables import (
    ROWS,
    collectives_table,
    dumps_in_words,
    last_in_words,
    late_table,
    mismatch_in_words,
    ranks_in_words,
    unanswered_in_words,
    waiting_in_words,
)
from tracer.report.page import paragraphs
from tracer.report.text import count, duration, left_out, shorten_kernel, size

Tables = dict[str, pl.DataFrame]
_KERNEL = 80
_SLOW = 1.05
"""A rank is slow if its steps take this many medians of all ranks"""


def fleet_page(tables: Tables, rows: int = ROWS) -> str:
    """Markdown that ends in a newline; `tables` are those of tracer.fleet.merge, shown with at most `rows`.

    Ranks that could not be read, or are not complete, come first.
    """
    parts = [
        ("", "\n".join(item(line) for line in in_words(tables))),
        ("Not read", _unread(tables, rows)),
        ("Incomplete", _incomplete(tables, rows)),
        ("Who came last", late_table(tables["late"], rows)),
        ("Slowest ranks", _slow(tables, rows)),
        ("What differs between ranks", _differs(tables, rows)),
        ("Collectives", _collectives(tables, rows)),
        ("Ops", _ops(tables, rows)),
        ("Device kernels", _kernels(tables, rows)),
        ("Memory", _memory(tables, rows)),
        ("Jobs", _jobs(tables, rows)),
    ]
    texts = [paragraphs(f"## {title}" if title else "", text) for title, text in parts if text]
    return paragraphs(f"# Fleet: {heading(tables)}", *texts) + "\n"


def heading(tables: Tables) -> str:
    """`100 ranks of 2 jobs on 13 hosts, 1 trace not read`"""
    read = _read(tables)
    unread = len(tables["ranks"]) - len(read)
    of = f"{count(len(read), 'rank')} of {count(read['job'].n_unique(), 'job')}"
    on = f" on {count(read['host'].n_unique(), 'host')}" if len(read) else ""
    return f"{of}{on}" + (f", {count(unread, 'trace')} not read" if unread else "")


def in_words(tables: Tables) -> list[str]:
    """What matters most, a sentence or two each; markdown."""
    read = _read(tables)
    several = tables["ranks"]["job"].n_unique() > 1
    found = _waits_in_words(tables, several)
    dumps, incomplete = len(read.filter("whole_dump")), len(_lacking(read))
    if dumps:
        found.append(
            f"{count(dumps, 'rank')} of {len(read):,} {_is(dumps)} from dumps: the last window of a "
            "recording that went on."
        )
    if incomplete:
        found.append(f"{count(incomplete, 'rank')} of {len(read):,} {_is(incomplete)} incomplete.")
    for job, own in _jobs_of(read):
        missing = _missing(own)
        if missing:
            found.append(f"No trace of job {prose(job)} is of {ranks_in_words(missing)}.")
    for job, own in _jobs_of(tables["ranks"]):
        left_out = dict(own.select("trace", pl.col("dumps_left_out").fill_null(0)).iter_rows())
        found += [_of_job(job, several) + said for said in dumps_in_words(left_out)]
    for row in tables["late"].group_by("job", maintain_order=True).first().iter_rows(named=True):
        of = f" of job {prose(row['job'])}" if several else ""
        found.append(last_in_words(row, of))
    if tables["late"].is_empty():
        matched = len(tables["collectives"])
        found.append(
            "No rank came last by more than 20 us."
            if matched
            else "No collective of two ranks or more is in these traces."
        )
    return found


def _waits_in_words(tables: Tables, several: bool) -> list[str]:
    """As job_tables.hangs_in_words, of each job."""
    found = []
    for job in tables["ranks"]["job"].unique(maintain_order=True):
        mismatched, waiting, unanswered = (
            tables[name].filter(pl.col("job") == job) for name in ("mismatched", "outstanding", "unanswered")
        )
        said = [mismatch_in_words(*of, name=str) for of in mismatched_of(mismatched)]
        said += [waiting_in_words(*of, name=str) for of in outstanding_of(waiting)]
        said += [unanswered_in_words(*of, name=str) for of in unanswered_of(unanswered)]
        found += [_of_job(job, several) + words for words in said]
    return found


def _of_job(job: str, several: bool) -> str:
    return f"Job {prose(job)}: " if several else ""


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


def _rank(row: dict[str, Any]) -> list[str]:
    """The first cells of a row about one rank."""
    return [prose(row["job"]), "" if row["rank"] is None else str(row["rank"])]


def _unread(tables: Tables, most: int) -> str:
    rows = tables["ranks"].filter(pl.col("error").is_not_null())
    lines = [item(f"{code(row['trace'])}: {prose(row['error'])}") for row in rows.head(most).to_dicts()]
    return paragraphs("\n".join(lines), left_out(len(rows) - most)) if lines else ""


def _incomplete(tables: Tables, most: int) -> str:
    rows = _lacking(_read(tables))
    cells = [[*_rank(row), prose(row["host"]), prose(row["verdict"])] for row in rows.head(most).to_dicts()]
    return (
        table(["job", "rank", "host", "what is missing"], cells) + left_out(len(rows) - most) if cells else ""
    )


def _slow(tables: Tables, most: int) -> str:
    """By their steps; waiting for another rank is part of a step."""
    ranks = _read(tables).filter(pl.col("step_ns").is_not_null())
    rows = (
        ranks.with_columns(usual=pl.col("step_ns").median().over("job"))
        .filter(pl.col("step_ns") > _SLOW * pl.col("usual"))
        .sort("step_ns", "job", "rank", descending=[True, False, False])
    )
    if ranks.is_empty():
        return ""
    if rows.is_empty():
        return "No rank has steps more than 5 % longer than the median rank."
    cells = [
        [
            *_rank(row),
            prose(row["host"]),
            duration(row["step_ns"]),
            duration(int(row["usual"])),
            duration(row["waited_ns"]) if row["waited_ns"] is not None else "",
        ]
        for row in rows.head(most).to_dicts()
    ]
    titles = ["job", "rank", "host", "median step", "of the median rank", "waited"]
    return table(titles, cells) + left_out(len(rows) - most)


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
    cells = [
        [
            prose(row["job"]),
            f"{code(row['op'] or '?')} [{prose(row['key'] or '?')}]",
            f"{row['ranks']:,} of {row['of']:,}",
            f"{row['least']:,}",
            f"{row['most_hops']:,}",
            "" if row["most_rank"] is None else str(row["most_rank"]),
        ]
        for row in ops.head(most).to_dicts()
    ]
    titles = ["job", "op and key", "ranks that have it", "fewest hops", "most hops", "first rank with most"]
    return paragraphs(
        "\n".join(facts), table(titles, cells, ragged=True) + left_out(len(ops) - most) if cells else ""
    )


def _collectives(tables: Tables, most: int) -> str:
    matched = tables["collectives"]
    unmatched = int(tables["ranks"]["calls_to_match"].sum()) - int(matched["ranks"].sum())
    return collectives_table(matched, unmatched, most)


def _ops(tables: Tables, most: int) -> str:
    ops = tables["ops"].sort("self_ns", "job", "op", "key", descending=[True, False, False, False])
    cells = [
        [
            prose(row["job"]),
            f"{code(row['op'] or '?')} [{prose(row['key'] or '?')}]",
            f"{row['ranks']:,}",
            f"{row['calls']:,}",
            f"{row['hops']:,}",
            duration(row["self_ns"]),
            duration(row["longest_ns"]) if row["longest_ns"] is not None else "",
            duration(row["gpu_ns"]) if row["gpu_ns"] else "",
        ]
        for row in ops.head(most).to_dicts()
    ]
    titles = ["job", "op and key", "ranks", "op calls", "hops", "self time", "longest hop", "GPU"]
    return table(titles, cells, ragged=True) + left_out(len(ops) - most) if cells else ""


def _kernels(tables: Tables, most: int) -> str:
    kernels = tables["kernels"].sort("total_ns", "job", "kernel", descending=[True, False, False])
    cells = [
        [
            prose(row["job"]),
            code(shorten_kernel(row["kernel"] or "?", _KERNEL)),
            f"{row['ranks']:,}",
            f"{row['runs']:,}",
            duration(row["total_ns"]),
            duration(row["most_total_ns"]),
            "" if row["most_rank"] is None else str(row["most_rank"]),
        ]
        for row in kernels.head(most).to_dicts()
    ]
    titles = ["job", "device kernel", "ranks", "runs", "in all", "on the slowest rank", "which is"]
    return table(titles, cells, ragged=True) + left_out(len(kernels) - most) if cells else ""


def _memory(tables: Tables, most: int) -> str:
    rows = tables["memory"].sort(
        "peak_bytes", "job", "rank", "device", descending=[True, False, False, False]
    )
    cells = [
        [*_rank(row), code(row["device"]), size(row["peak_bytes"]), f"{row['blocks']:,}"]
        for row in rows.head(most).to_dicts()
    ]
    return (
        table(["job", "rank", "device", "most at one time", "blocks"], cells) + left_out(len(rows) - most)
        if cells
        else ""
    )


def _jobs(tables: Tables, most: int) -> str:
    jobs = _jobs_of(_read(tables))
    cells = []
    for job, own in jobs[:most]:
        unknown = len(own.filter(pl.col("clock") == UNKNOWN))
        error = own["clock_error_ns"].max()
        cells.append(
            [
                prose(job),
                f"{len(own):,}",
                f"{own['host'].n_unique():,}",
                f"{own['hops'].sum():,}",
                f"{own['op_calls'].sum():,}",
                f"{own['kernels'].sum():,}",
                f"{own['collective_calls'].sum():,}",
                f"{unknown:,} unknown" if unknown else f"within {duration(error)}" if error else "exact",  # type: ignore[arg-type]
            ]
        )
    titles = ["job", "ranks", "hosts", "hops", "op calls", "device kernels", "collective calls", "clocks"]
    return table(titles, cells) + left_out(len(jobs) - most) if cells else ""
