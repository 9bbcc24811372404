"""The head of a report: what it is of, whether the trace is complete, and what was recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tracer.report.cells import code, prose, wrapped
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading
from tracer.report.text import count, duration
from tracer.trace.certificate.counts import in_words
from tracer.trace.tables.distinct import distinct

_TITLES = {None: "Dispatch report", "cuda": "CUDA runtime survey", "kernels": "Kernel survey"}


@dataclass(frozen=True)
class Totals:
    """Times in ns. `in_ops_ns` is the time of the outermost op calls, added up over threads."""

    op_calls: int
    outermost_calls: int
    hops: int
    ops: int
    paths: int
    processes: int
    threads: int
    in_ops_ns: int
    elapsed_ns: int


@dataclass(frozen=True)
class Head:
    """`totals` is None in a report of one part; `recorded`: how many threads and processes were recorded.

    `brief`: sections were chosen, and the head is the title and the verdict.
    """

    verdict: str
    why: list[str]
    argv: list[str]
    has_cuda: bool
    totals: Totals | None
    recorded: tuple[int, int]
    software: dict[str, Any] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    brief: bool = False


def data(reading: Reading) -> Head:
    certificate, environment = reading.trace.certificate, reading.trace.environment
    return Head(
        verdict=certificate["verdict"],
        why=list(certificate.get("why", [])),
        argv=[str(word) for word in environment.get("argv") or []],
        has_cuda=reading.has_cuda,
        totals=None if reading.only or reading.sections else _totals(reading),
        recorded=(certificate.get("threads", 0), certificate.get("processes", 0)),
        software={name: environment.get(name) for name in ("torch", "python", "cpu")},
        devices=reading.devices,
        brief=bool(reading.sections),
    )


def markdown(data: Head, page: Page) -> str:
    return paragraphs(
        f"# {_TITLES[page.only]} of {code(page.name)}",
        f"**{prose(data.verdict)}**",
        "\n".join(f"- {prose(sentence)}" for sentence in data.why),
        "" if data.brief else wrapped(_about(data, page)),
        "" if data.brief else "\n".join(f"- {fact}" for fact in _facts(data)),
    )


def _totals(reading: Reading) -> Totals:
    forest = reading.hops
    hops = forest.hops
    if hops.is_empty():
        return Totals(0, 0, 0, 0, 0, 0, 0, 0, 0)
    return Totals(
        op_calls=int((hops["kind"] == "call").sum()),
        outermost_calls=int((forest.parent < 0).sum()),
        hops=len(hops),
        ops=len(distinct(hops, "op")),
        paths=len(reading.all_paths),
        processes=len(distinct(hops, "process")),
        threads=len(distinct(hops, "process", "thread")),
        in_ops_ns=reading.time_in_ops_ns,
        elapsed_ns=hops.select(pl.col("end_ns").max() - pl.col("start_ns").min()).item(),
    )


def _about(data: Head, page: Page) -> str:
    """What the report shows, in a sentence."""
    script = code(" ".join(data.argv)) or "the recorded script"
    if page.only == "cuda":
        return (
            f"Which functions of the CUDA API PyTorch and its libraries called while {script} ran: how "
            "often, from where, for which ops, and how much time that took on the host."
        )
    if page.only == "kernels":
        return (
            f"Every kind of kernel that the GPU ran for {script}: which op launched it, how its work was "
            "spread over the GPU, and how far its time is from the limits of memory and compute units."
        )
    down = ", the library and CUDA calls below them, and the GPU kernels" if data.has_cuda else ""
    return (
        f"What the ops of {script} became: each hop (a call of a kernel function by PyTorch's dispatcher)"
        f"{down}, with times."
    )


def _facts(data: Head) -> list[str]:
    totals = data.totals
    facts = []
    if totals:
        facts = [
            f"{count(totals.op_calls, 'op call')} ({totals.outermost_calls:,} outermost) of "
            f"{count(totals.ops, 'op')}, {count(totals.hops, 'hop')}, "
            f"{count(totals.paths, 'distinct dispatch path')}",
            _threads(totals, *data.recorded),
            f"{duration(totals.in_ops_ns)} in ops (summed over threads), {duration(totals.elapsed_ns)} from "
            "the first hop to the last",
        ]
    names = {"torch": "torch {}", "python": "Python {}", "cpu": "{}"}
    software = [
        text.format(prose(data.software[name])) for name, text in names.items() if data.software[name]
    ]
    software += [prose(", ".join(data.devices))] if data.devices else []
    return facts + [f"recorded with {', '.join(software)}"] * bool(software)


def _threads(totals: Totals, threads: int, processes: int) -> str:
    """How many threads and processes ran ops, and how many were recorded if those are more."""
    of = in_words(totals.processes, "process", "processes")
    ran = f"{count(totals.threads, 'thread')} of {of}"
    if threads <= totals.threads and processes <= totals.processes:
        return ran
    has, was = "has" if totals.threads == 1 else "have", "was" if threads == 1 else "were"
    of = in_words(processes, "process", "processes")
    return f"{ran} {has} ops; {count(threads, 'thread')} of {of} {was} recorded"
