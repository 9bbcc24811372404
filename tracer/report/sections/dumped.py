"""Where each thread was when the trace was dumped: tracer.dump(), or SIGUSR2."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracer.analysis.fleet.partial import parts_of
from tracer.analysis.job.collectives import CALLS, collectives_of
from tracer.analysis.job.numbering import whole_from
from tracer.analysis.last_ops import last_ops
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows

title = "Where each thread was"
level = 2

_COLUMNS: list[Column] = [
    ("process:", "process", "text"),
    ("thread:", "thread", "text"),
    ("", "state", "text"),
    ("op", "op", "code"),
    ("for:", "since_ns", "time"),
    ("line", "source", "line"),
    ("collective", "collective", "text"),
]


@dataclass(frozen=True)
class Dumped:
    threads: Rows


def wanted(reading: Reading) -> bool:
    return reading.trace.certificate.get("dumped_ns") is not None and len(reading.trace.hops) > 0


def data(reading: Reading) -> Dumped:
    last = last_ops(reading.trace.hops, reading.trace.certificate["dumped_ns"])
    threads = Rows.first(
        last.join(_numbers(reading), on="collective_hop", how="left", maintain_order="left"), reading.most
    )
    for thread in threads.rows:
        thread["state"] = "in" if thread["is_in"] else "no op since"
        thread["collective"] = thread["collective"] or ""
        if thread["collective"] and thread["number"] is not None:
            thread["collective"] += f", call {thread['number']:,} of group {thread['group']}"
    return Dumped(threads)


def _numbers(reading: Reading) -> pl.DataFrame:
    """Of each collective call: collective_hop, group, and the number in it if the trace has the first one."""
    calls = [collectives_of(part) for part in parts_of(reading.trace) if whole_from(part) is None]
    found = pl.concat(calls) if calls else pl.DataFrame(schema=CALLS)
    return found.drop_nulls("group").select("group", "number", collective_hop="hop")


def markdown(data: Dumped, page: Page) -> str:
    said = (
        "The op that each thread was in when the trace was dumped, and for how long; or the op that it left "
        "last, and for how long it has called none. If that was a collective, the thread probably waits for "
        "it: on the CPU the op returns at once, and the wait is no op."
    )
    return paragraphs(said, page.table(_COLUMNS, data.threads))
