"""Where each thread was when the trace was dumped: tracer.dump(), or SIGUSR2."""

from __future__ import annotations

from dataclasses import dataclass

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
    threads = Rows.first(last_ops(reading.trace.hops, reading.trace.certificate["dumped_ns"]), reading.most)
    for thread in threads.rows:
        thread["state"] = "in" if thread["is_in"] else "no op since"
        thread["collective"] = thread["collective"] or ""
    return Dumped(threads)


def markdown(data: Dumped, page: Page) -> str:
    said = (
        "The op that each thread was in when the trace was dumped, and for how long; or the op that it left "
        "last, and for how long it has called none. If that was a collective, the thread probably waits for "
        "it: on the CPU the op returns at once, and the wait is no op."
    )
    return paragraphs(said, page.table(_COLUMNS, data.threads))
