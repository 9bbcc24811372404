"""The tables of steps and of the time outside ops, as cells: of reports and of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis.gaps import Gaps
from tracer.analysis.phases import BACKWARD, COMMUNICATION, COMPILE, DATA, FORWARD, OPTIMIZER
from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.analysis.step_times import BUSY, OUTLIER, preempted
from tracer.base.visible import LONGEST, visible
from tracer.report.page import percent
from tracer.report.text import count, duration

MOST_STEPS = 40
_LONGEST_TEXT = 40
_WARM_UP = "warmup"
_PARTS = (*(FORWARD, BACKWARD, OPTIMIZER, DATA, COMMUNICATION, COMPILE), "waiting", "outside")
_TITLES = {
    COMPILE: "compiling",
    "waiting": "waiting for GPU",
    "outside": "elsewhere",
}


def chosen_steps(table: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most `most` rows of step_times: those that took longest, and the last, in order."""
    if len(table) <= most:
        return table
    longest = table.with_row_index("row").sort("wall_ns", descending=True, maintain_order=True).head(most)
    return longest.sort("row").drop("row")


def step_titles(table: pl.DataFrame) -> list[str]:
    """`step`, `wall:`, ...: those that end with a colon are of figures."""
    titles = ["step", "wall:", "of median:", *(f"{_TITLES.get(part, part)}:" for part in _shown(table))]
    titles += ["GPU busy:"] * _has_gpu(table) + ["phase"] * _has_phases(table)
    return ["process:", *titles] if table["process"].n_unique() > 1 else titles


def step_cells(table: pl.DataFrame, mark: Callable[[str], str]) -> list[list[str]]:
    """A row for each step, as step_titles names its columns; `mark` marks a step that took too long."""
    several, gpu = table["process"].n_unique() > 1, _has_gpu(table)
    phases = _has_phases(table)
    rows = []
    for row in table.iter_rows(named=True):
        ratio = "" if row["of_median"] is None else f"{row['of_median']:.2f} x"
        slow = row["of_median"] is not None and row["of_median"] >= OUTLIER
        cells = [row["name"], duration(row["wall_ns"]), mark(ratio) if slow else ratio]
        cells += [duration(row[f"{part}_ns"]) if row[f"{part}_ns"] else "" for part in _shown(table)]
        cells += [share(row["gpu_busy_ns"], row["wall_ns"])] * gpu
        cells += ["warm-up" if row["phase"] == _WARM_UP else ""] * phases
        rows.append([str(row["process"]), *cells] if several else cells)
    return rows


def _has_phases(table: pl.DataFrame) -> bool:
    """Whether a step is warm-up; a column in which all are steady says nothing."""
    return bool((table["phase"] == _WARM_UP).any())


@dataclass(frozen=True)
class Part:
    """A part of the wall time of some steps: its time, and its share of theirs from 0 to 1."""

    name: str
    title: str
    ns: int
    share: float


@dataclass(frozen=True)
class Parts:
    """`of`: `5 steady steps: median 31.0 ms, longest 35.0 ms`; `parts`: what took time, the largest first."""

    of: str
    parts: list[Part]


def parts_of(table: pl.DataFrame) -> Parts | None:
    """The parts of the steady steps, or else of all steps; None if no step ended."""
    steps = table.filter(pl.col("step").is_not_null())
    steady = steps.filter(pl.col("phase") == "steady")
    of = steady if len(steady) else steps
    if of.is_empty():
        return None
    wall = int(of["wall_ns"].sum())
    sums = {part: int(of[f"{part}_ns"].sum()) for part in _PARTS}
    parts = [
        Part(part, _TITLES.get(part, part), ns, ns / wall if wall else 0.0)
        for part, ns in sorted(sums.items(), key=lambda item: -item[1])
        if ns
    ]
    median = duration(of.select(pl.col("wall_ns").median().round().cast(pl.Int64)).item())
    longest = duration(of.select(pl.col("wall_ns").max()).item())
    kind = "steady step" if len(steady) else "step"
    return Parts(f"{count(len(of), kind)}: median {median}, longest {longest}", parts)


def summary(table: pl.DataFrame) -> str:
    """`5 steady steps: ... Of their wall time: 75.3 % elsewhere, ...`; "" if no step ended."""
    found = parts_of(table)
    if found is None:
        return ""
    words = [f"{percent(part.share) if part.share else ''} {part.title}" for part in found.parts]
    return f"{found.of}. Of their wall time: {', '.join(words)}."


def below_steps(table: pl.DataFrame, left_out: int) -> list[str]:
    """What the terminal says below the steps."""
    lines = [f"Shown: the {len(table) - left_out} longest of {count(len(table), 'step')}. More: --limit 0."]
    lines = lines if left_out else []
    slow = bool((table["of_median"] >= OUTLIER).any())
    lines += [f"!: {OUTLIER} times the median or more"] if slow else []
    lines += [f"{said}: nothing else marked a step."] if (said := about_modules(table)) else []
    lines += [said] if (said := about_busy(table)) else []
    return [*lines, summary(table) or "No step ended. To see steps, call tracer.step() after each iteration."]


def about_busy(table: pl.DataFrame) -> str:
    """`The machine was busy: ...` if a step's thread waited long for a core; "" if none did or nobody knows.

    `table`: step, wall_ns, cpu_ns and preempted_ns.
    """
    busy = table.filter(preempted()).sort("preempted_ns", descending=True)
    if busy.is_empty():
        return ""
    worst = busy.row(0, named=True)
    ran = "" if worst["cpu_ns"] is None else f", and ran {duration(worst['cpu_ns'])}"
    times = f"{duration(worst['preempted_ns'])} of {duration(worst['wall_ns'])}"
    if len(busy) == 1:
        return f"The machine was busy: in step {worst['step']} the thread waited {times} for a CPU core{ran}."
    return (
        f"The machine was busy in {len(busy):,} of {count(table['step'].count(), 'step')}: the thread waited "
        f"{percent(BUSY)} of the time or longer for a CPU core. "
        f"In step {worst['step']} it waited {times}{ran}."
    )


def about_modules(table: pl.DataFrame) -> str:
    """`A step is a call of Net, and what runs until the next one`; "": no step is one."""
    modules = [visible(name, LONGEST) for name in table["module"].drop_nulls().unique().sort().to_list()]
    return f"A step is a call of {' or '.join(modules)}, and what runs until the next one" if modules else ""


def about_marked(longest: pl.DataFrame, sources: SourceLines) -> list[str]:
    """`step 0: 5.9 s outside ops, 4.8 s of it a.py:6 -> a.py:12, importing torch._dynamo 4.4 s`.

    `longest`: rows of analysis.gaps.longest_gaps.
    """
    several = longest["process"].n_unique() > 1
    return [
        (f"process {row['process']}, " if several else "")
        + f"step {row['step']}: {duration(row['outside_ops_ns'])} outside ops, {duration(row['longest_ns'])} "
        f"of it {row['before']} -> {row['after']}{_importing(row)}"
        + (f"  {row['text']}" if row["text"] else "")
        for row in with_lines(longest.iter_rows(named=True), sources)
    ]


def _importing(row: dict[str, Any]) -> str:
    if row["importing"] is None:
        return ""
    more = f" and {row['imports'] - 1:,} more" if row["imports"] > 1 else ""
    return f", importing {row['importing']}{more} {duration(row['importing_ns'])}"


def about_gaps(found: Gaps, *, only_ops: bool) -> str:
    """`Outside ops: 122.5 ms, 5.0 % of the wall time of 5 steady steps.`; `only_ops`: recorded with --ops"""
    of = "the recording" if found.of == "recording" else found.of
    if of.endswith("steps"):
        of = count(found.steps, of.removesuffix("s"))
    part = share(found.outside_ns, found.wall_ns)
    where = "Outside ops, or in ops that --ops left out" if only_ops else "Outside ops"
    return f"{where}: {duration(found.outside_ns)}, {part} of the wall time of {of}."


def gap_titles() -> list[str]:
    return ["line before -> line after", "share of wall:", "total:", "gaps:", "median:", "p95:", "longest:"]


def gap_cells(
    rows: list[dict[str, Any]], wall_ns: int, lines: Callable[[dict[str, Any]], str]
) -> list[list[str]]:
    """`rows` are those of with_lines; `lines` writes the two lines of a row."""
    return [
        [
            lines(row),
            share(row["total_ns"], wall_ns),
            duration(row["total_ns"]),
            f"{row['gaps']:,}",
            duration(row["median_ns"]),
            duration(row["p95_ns"]),
            duration(row["longest_ns"]),
        ]
        for row in rows
    ]


def with_lines(rows: Iterable[dict[str, Any]], sources: SourceLines) -> list[dict[str, Any]]:
    """Rows of gaps, with the lines as they are shown, and `text`: what they say, `a -> b`, or ""."""

    def shown(line: str | None) -> str:
        if line is None:
            return NO_LINE
        return "backward" if line == BACKWARD else sources.name(line)

    def said(line: str | None) -> str:
        text = "" if line == BACKWARD else sources.text(line)
        return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."

    texts = ((row, said(row["before"]), said(row["after"])) for row in rows)
    return [
        row | {"before": shown(row["before"]), "after": shown(row["after"])} | {"text": _both(before, after)}
        for row, before, after in texts
    ]


def _both(before: str, after: str) -> str:
    if before == after:
        return before
    return f"{before or '?'} -> {after or '?'}"


def share(ns: int, whole_ns: int) -> str:
    return percent(ns / whole_ns) if whole_ns else ""


def _shown(table: pl.DataFrame) -> list[str]:
    """The parts of a step that any row has."""
    return [part for part in _PARTS if part == "outside" or (table[f"{part}_ns"] > 0).any()]


def _has_gpu(table: pl.DataFrame) -> bool:
    return bool((table["gpu_busy_ns"] > 0).any())
