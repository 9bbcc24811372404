"""Kernels of compiled code and the lines that asked for them, its regions, and the time of the compiler."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis.compiled_survey import compile_times, kernel_times, phase_times, region_times
from tracer.base.numerals import number_of
from tracer.report.cells import code, prose, table
from tracer.report.page import Page, details, paragraphs
from tracer.report.reading import Reading, Rows
from tracer.report.text import duration, left_out

title = "Compiled code"
level = 2

_ROWS = 20
_MOST_LINES = 4
_SAID = """\
What torch.compile made, and the Python lines whose ops each kernel computes. A kernel of a backward leads to
the lines of its forward. Times are of the GPU for kernels that ran there, else of the CPU. Speed: the bytes
that the kernel reads and writes, each once, over its median time."""
_PHASES = """\
Phases of the compiler are within each other. Own: what no phase within took."""

_NOT_COMPILED = """\
A function that is not compiled runs eagerly as a whole, or its call raises an error (`fullgraph=True`, or a
backend that fails). After the recompile limit, only new inputs run eagerly. If the column is empty, only a
graph ended there. A line may have two rows: Dynamo may compile a function alone that it could not compile as
part of its caller."""
_REST = "torch_dynamo_resume_in_"
"""Begins Dynamo's name for the rest of a function after a graph break; the function and the line follow"""
_AGAIN = re.compile(rf"^(?:{_REST})+")


@dataclass(frozen=True)
class Compiled:
    """`code` is that of the certificate."""

    code: dict[str, Any]
    kernels: Rows
    regions: Rows
    compilations: Rows
    phases: Rows


def wanted(reading: Reading) -> bool:
    trace = reading.trace
    return bool(len(trace.compiled_calls) + len(trace.compile_phases) + len(trace.compiled_kernels))


def data(reading: Reading) -> Compiled:
    trace, most = reading.trace, reading.rows or _ROWS
    phases = trace.compile_phases
    return Compiled(
        trace.certificate.get("compiled") or {},
        Rows.first(kernel_times(trace), most),
        Rows.first(region_times(trace), most),
        Rows.first(compile_times(phases), most),
        Rows.first(phase_times(phases).filter(pl.col("own_ns") > 0), most),
    )


def markdown(data: Compiled, page: Page) -> str:
    return paragraphs(
        _SAID,
        page.all_steps(),
        _counts(data.code),
        _kernels(data.kernels, page),
        _regions(data.regions, page),
        _compiler(data, page),
    )


def _counts(found: dict[str, Any]) -> str:
    runs = found.get("kernel_runs", 0)
    if not runs:
        return ""
    said = [f"Of {runs:,} runs of kernels {found['with_line']:,} lead to a Python line"]
    if found["from_nodes"] > found["with_line"]:
        said.append(f"{found['from_nodes'] - found['with_line']:,} only to their ops")
    if found["by_name"]:
        said.append(f"of {found['by_name']:,} only the kernel's name tells the ops")
    if found["unknown"]:
        said.append(f"of {found['unknown']:,} nothing is known")
    return ", ".join(said) + "."


def _kernels(kernels: Rows, page: Page) -> str:
    cells = [
        [
            code(row["name"]) + ("<br>backward" if row["direction"] == "backward" else ""),
            _ops(row),
            _lines(row["sources"], page),
            f"{row['runs']:,}",
            duration(row["total_ns"]),
            duration(row["median_ns"]),
            "" if row["bytes_per_s"] is None else f"{row['bytes_per_s'] / 1e9:,.1f} GB/s",
        ]
        for row in kernels.rows
    ]
    titles = ["kernel", "ops", "lines", "runs:", "total:", "median:", "speed:"]
    return table(titles, cells) + left_out(kernels.left_out) if cells else ""


def _ops(row: dict[str, Any]) -> str:
    ops = "<br>".join(map(code, row["fused_ops"] or ()))
    return f"{ops}<br>(by its name)" if row["origin"] == "name" and ops else ops or "not known"


def _lines(sources: list[str] | None, page: Page) -> str:
    if not sources:
        return "not known"
    shown = [page.line(source) + page.text(source) for source in sources[:_MOST_LINES]]
    more = len(sources) - _MOST_LINES
    return "<br>".join(shown + [f"and {more:,} more"] * (more > 0))


def _regions(regions: Rows, page: Page) -> str:
    cells = [
        [
            code(row["function"]) if row["function"] else "compiled before the recording",
            page.line(row["defined_at"]) if row["defined_at"] else "",
            prose(", ".join(filter(None, (row["direction"], row["compile_id"])))),
            prose(row["cache"] or ""),
            f"{row['calls']:,}",
            duration(row["total_ns"]),
            duration(row["median_ns"]),
            duration(row["longest_ns"]),
            prose(row["recompiled"] or ""),
        ]
        for row in regions.rows
    ]
    titles = ["region", "defined at", "graph", "cache", "calls:", "total:", "median:", "longest:"]
    return table([*titles, "compiled again because"], cells) + left_out(regions.left_out) if cells else ""


def _compiler(data: Compiled, page: Page) -> str:
    if not data.compilations.rows:
        return ""
    total = sum(row["total_ns"] for row in data.compilations.rows if row["compile_id"])
    return details(
        f"The compiler: {duration(total)}",
        table(
            ["graph", "asked for by", "time:"],
            [
                [
                    prose(row["compile_id"] or "in threads of the compiler"),
                    page.line(row["source"]) if row["compile_id"] else "",
                    duration(row["total_ns"]),
                ]
                for row in data.compilations.rows
            ],
        )
        + left_out(data.compilations.left_out),
        _PHASES,
        page.table(
            [
                ("phase", "name", "code"),
                ("times:", "times", "count"),
                ("own:", "own_ns", "time"),
                ("total:", "total_ns", "time"),
            ],
            data.phases,
        ),
        _breaks(data.code.get("breaks") or [], page),
    )


def _function(name: str | None) -> str:
    before, _, rest = (name or "").partition(_REST)
    function, _, line = rest.rpartition("_at_")
    function = _AGAIN.sub("", function)
    if function and number_of(line) is not None:
        return f"{code(before + function)} after line {line}"
    return code(name) if name else ""


def _breaks(breaks: list[dict[str, Any]], page: Page) -> str:
    if not breaks:
        return ""
    whole = any(one.get("not_compiled") for one in breaks)
    rows = [
        [
            page.line(one.get("source")),
            prose(one.get("reason") or ""),
            *([_function(one.get("not_compiled"))] if whole else []),
            f"{one.get('times', 0):,}",
        ]
        for one in breaks[:_ROWS]
    ]
    titles = ["line", "reason", *(["not compiled"] if whole else []), "times:"]
    return paragraphs(
        "Where a graph ended:",
        table(titles, rows) + left_out(len(breaks) - len(rows)),
        _NOT_COMPILED if whole else "",
    )
