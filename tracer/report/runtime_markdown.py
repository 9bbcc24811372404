"""Renders what a report says of the CUDA API."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tracer.analysis.device_kernels import short_device_kernel, table_name
from tracer.analysis.idle import Gap, Idleness
from tracer.analysis.runtime_survey import SYNCHRONISATION
from tracer.report.cells import code, fenced, item, prose, table, wrapped
from tracer.report.runtime import Rows, RuntimeReport
from tracer.report.text import (
    amount,
    count,
    duration,
    left_out,
    shorten_kernel,
    size,
    source_line,
    steady_steps,
)

if TYPE_CHECKING:
    from tracer.report.model import Report

_FRAMES = 12
_NAME = 40
_LEAST_SHARE = 0.05
_FUNCTIONS_IN_FULL = {False: 6, True: 16}


class RuntimePage:
    """What the template calls, for one report."""

    def __init__(self, runtime: RuntimeReport, report: Report) -> None:
        self._runtime = runtime
        self._folder = report.environment.get("cwd")
        self._only = report.only == "cuda"

    def summary(self) -> str:
        runtime = self._runtime
        functions = len(runtime.functions.rows) + runtime.functions.left_out
        lines = [
            f"{count(runtime.calls, 'API call')} of {count(functions, 'function')}, "
            f"{duration(runtime.host_ns)} on the host; {runtime.launches:,} of them launched a kernel",
            *map(self._device, runtime.devices),
        ]
        steps = runtime.steps
        if steps.warmup or steps.steady:
            lines.append(
                f"{count(steps.warmup, 'warm-up step')} and {count(steps.steady, 'steady step')}: columns of "
                "a step have the mean over those of the phase"
            )
        elif not steps.too_few:
            lines.append(f"{count(steps.untold, 'step')}, which all count alike")
        else:
            known = f"only {count(steps.untold, 'step')}" if steps.untold else "no step"
            lines.append(
                f"{known} known, so warm-up and steady state are not told apart: an optimizer's step() or "
                "tracer.step() marks a step, and three of a process are needed"
            )
        return "\n".join(map(item, lines))

    def roles(self) -> str:
        rows = [
            [
                row["role"] or "unknown",
                f"{row['functions']:,}",
                f"{row['calls']:,}",
                duration(row["total_ns"]),
                self._share(row["total_ns"]),
                *self._phases(row),
            ]
            for row in self._runtime.roles.rows
        ]
        return self._table(
            ["role", "functions:", "calls:", "host time:", "share:", *self._phase_titles()],
            rows,
            self._runtime.roles,
        )

    def role_meanings(self) -> str:
        return "\n".join(
            item(f"{prose(row['role'])}: {prose(row['does'])}")
            for row in self._runtime.roles.rows
            if row["does"]
        )

    def functions(self) -> str:
        rows = [
            [
                code(row["name"]),
                row["role"] or "unknown",
                f"{row['calls']:,}",
                duration(row["total_ns"]),
                duration(row["median_ns"]),
                *self._phases(row),
            ]
            for row in self._runtime.functions.rows
        ]
        titles = ["function", "role", "calls:", "host time:", "median:", *self._phase_titles()]
        return self._table(titles, rows, self._runtime.functions)

    def function_sections(self) -> str:
        """Of the functions with the most time what each does, who calls it, for which ops, and a stack.

        In the survey alone all functions that wait are among them, however short they were.
        """
        most, rows = _FUNCTIONS_IN_FULL[self._only], self._runtime.functions.rows
        shown = [row for place, row in enumerate(rows) if place < most or (self._only and _waits(row))]
        more = len(rows) + self._runtime.functions.left_out - len(shown)
        said = [f"{count(more, 'more function')} left out."] * bool(more)
        return "\n\n".join([*map(self._function, shown), *said])

    def components(self) -> str:
        rows = [
            [
                row["component"],
                f"{row['calls']:,}",
                duration(row["total_ns"]),
                *self._phases(row),
                _most(row["functions"], 2),
            ]
            for row in self._runtime.components.rows
        ]
        titles = ["component", "calls:", "host time:", *self._phase_titles(), "most"]
        return self._table(titles, rows, self._runtime.components)

    def component_meanings(self) -> str:
        return "\n".join(
            item(f"{prose(row['component'])}: {prose(row['does'])}")
            for row in self._runtime.components.rows
            if row["does"]
        )

    def synchronisations(self) -> str:
        steady = bool(self._runtime.steps.steady)
        rows = [
            [
                self._line(row),
                code(row["op"]) if row["op"] else f"in {code(row['library_call'] or 'a library')}",
                prose(row["what"].replace(" + ", ", ").replace("->", "to")),
                f"{row['count']:,}",
                duration(row["total_ns"]),
                *([f"{row['steady_calls']:.3g}"] if steady else []),
            ]
            for row in self._runtime.synchronisations.rows
        ]
        titles = ["line", "op", "waits in", "times:", "host time:", *(["a steady step:"] if steady else [])]
        return self._table(titles, rows, self._runtime.synchronisations)

    def allocations(self) -> str:
        rows = [
            [
                self._line(row),
                code(row["op"]) if row["op"] else "no op",
                code(row["name"]),
                row["component"],
                f"{row['calls']:,}",
                "" if row["bytes"] is None else size(row["bytes"]),
                duration(row["total_ns"]),
            ]
            for row in self._runtime.allocations.rows
        ]
        return self._table(
            ["line", "op", "function", "by", "calls:", "bytes:", "host time:"],
            rows,
            self._runtime.allocations,
        )

    def launches(self) -> str:
        rows = [
            [
                code(row["op"]),
                f"{row['op_calls']:,}",
                f"{row['launches']:,}",
                f"{row['per_call']:.3g}",
                duration(row["host_ns"]),
                duration(row["gpu_ns"]),
            ]
            for row in self._runtime.launches_per_op.rows
        ]
        return self._table(
            ["op", "calls:", "launches:", "a call:", "launching:", "on GPU:"],
            rows,
            self._runtime.launches_per_op,
        )

    def copies(self) -> str:
        steady = bool(self._runtime.steps.steady)
        rows = [
            [
                prose(row["name"]),
                f"{row['count']:,}",
                "" if row["bytes"] is None else size(row["bytes"]),
                duration(row["total_ns"]),
                "" if row["gb_per_s"] is None else f"{row['gb_per_s']:,.1f} GB/s",
                *([f"{row['steady_calls']:.3g}"] if steady else []),
            ]
            for row in self._runtime.copies.rows
        ]
        titles = ["what", "times:", "bytes:", "on GPU:", "rate:", *(["a steady step:"] if steady else [])]
        return self._table(titles, rows, self._runtime.copies)

    def idle(self) -> str:
        return "\n\n".join(self._idle(one) for one in self._runtime.idle)

    def _idle(self, one: Idleness) -> str:
        several = len(self._runtime.idle) > 1
        where = f"Device {one.device} of process {one.process}: " if several else ""
        over = f"the time from the first activity to the last ({duration(one.window_ns)})"
        if one.steady:
            over = f"the {duration(one.window_ns)} of {steady_steps(one.steps)}"
        text = (
            f"{where}{'nothing' if several else 'Nothing'} ran in {100 * one.idle_share:.1f} % of {over}: "
            f"{_gaps(one.long_gaps, 'long', one.long_gaps_ns)} and "
            f"{_gaps(one.short_gaps, 'shorter', one.short_gaps_ns, each=True)}. "
            f"A gap is long from {duration(one.long_ns)}: 1 % of that time, and 10 us at least."
        )
        text = wrapped(text)
        if not one.gaps:
            return text
        rows = [
            [
                duration(gap.start_ns),
                duration(gap.duration_ns),
                self._meanwhile(gap),
                _kernel(gap.after),
                _kernel(gap.before),
            ]
            for gap in one.gaps
        ]
        return f"{text}\n\n" + table(["at:", "for:", "the host meanwhile", "after", "before"], rows)

    def _meanwhile(self, gap: Gap) -> str:
        words = [
            f"{100 * row['share']:.0f} % {code(row['what'])}"
            + (f" ({prose(source_line(row['source'], self._folder))})" if row["source"] else "")
            for row in gap.host[:2]
            if row["share"] >= _LEAST_SHARE
        ]
        words += [
            f"of that {100 * row['share']:.0f} % in {code(row['what'])}"
            for row in gap.calls[:1]
            if row["share"] >= _LEAST_SHARE
        ]
        if gap.outside_share >= _LEAST_SHARE:
            words.append(f"{100 * gap.outside_share:.0f} % outside ops (Python)")
        return ", ".join(words)

    def _function(self, row: dict[str, Any]) -> str:
        lines = [f"#### {code(row['name'])}", "", wrapped(prose(row["does"])), ""]
        lines.append(item(f"called by: {_counted(row['components'], code_spans=False)}"))
        lines.append(item(f"for ops: {_counted(row['ops'], nothing='no op')}"))
        if row["failed"]:
            lines.append(item(f"{count(row['failed'], 'call')} did not return success"))
        if row["frames"]:
            lines += ["- a stack:", "", fenced(_stack(row["frames"]))]
        return "\n".join(lines)

    def _line(self, row: dict[str, Any]) -> str:
        if not row["source"]:
            return "no Python line"
        backward = " (backward)" if row.get("backward_node") else ""
        return code(source_line(row["source"], self._folder)) + backward

    def _phase_titles(self) -> list[str]:
        steps = self._runtime.steps
        return ["warm-up step:"] * bool(steps.warmup) + ["steady step:"] * bool(steps.steady)

    def _phases(self, row: dict[str, Any]) -> list[str]:
        cells = []
        for phase, steps in (("warmup", self._runtime.steps.warmup), ("steady", self._runtime.steps.steady)):
            if steps:
                calls, time = row[f"{phase}_calls"], duration(round(row[f"{phase}_ns"]))
                number = f"{calls:,.0f}" if calls >= 100 else f"{calls:.3g}"
                cells.append(f"{number} x, {time}" if calls else "-")
        return cells

    def _share(self, ns: int) -> str:
        whole = self._runtime.host_ns
        return f"{100 * ns / whole:.1f} %" if whole else ""

    def _device(self, device: Any) -> str:
        facts = [device.name]
        if device.multiprocessors:
            facts.append(count(device.multiprocessors, "multiprocessor"))
        if device.bytes_per_s:
            facts.append(amount(device.bytes_per_s, "B/s"))
        if device.l2_bytes:
            facts.append(f"{size(device.l2_bytes)} L2 cache")
        return prose(", ".join(facts))

    @staticmethod
    def _table(titles: list[str], rows: list[list[str]], source: Rows) -> str:
        return table(titles, rows, ragged=True) + left_out(source.left_out)


def _waits(row: dict[str, Any]) -> bool:
    """Whether the host, or a stream, waits in a function."""
    return row["role"] == SYNCHRONISATION or "WaitEvent" in row["name"]


def _gaps(number: int, kind: str, ns: int, *, each: bool = False) -> str:
    """`3 long gaps (1.2 ms)`, `no long gap`"""
    if not number:
        return f"no {kind} gap"
    mean = f", {duration(ns // number)} each" if each else ""
    return f"{count(number, f'{kind} gap')} ({duration(ns)}{mean})"


def _kernel(name: str) -> str:
    if name.startswith("the window"):
        return name.replace("the window's ", "the ")
    return code(shorten_kernel(table_name(short_device_kernel(name)), _NAME))


def _most(counted: Iterable[dict[str, Any]], limit: int) -> str:
    return ", ".join(code(row["what"]) for row in list(counted)[:limit])


def _counted(rows: list[dict[str, Any]], *, nothing: str = "unknown", code_spans: bool = True) -> str:
    words = [
        f"{(code(row['what']) if code_spans else row['what']) if row['what'] else nothing} ({row['count']:,})"
        for row in rows[:3]
    ]
    return ", ".join(words) + (", ..." if len(rows) > 3 else "")


def _stack(frames: list[dict[str, Any]]) -> list[str]:
    """A line a frame, innermost first; frames without a name that follow each other in a library are one."""
    lines = []
    for (name, module), run in groupby(frames, key=_frame):
        several = len(list(run))
        if name:
            lines.append(f"{shorten_kernel(name, 72)}  ({module})")
        else:
            lines.append(f"{count(several, 'frame')} without a name  ({module})")
    return [*lines[:_FRAMES], f"... {len(lines) - _FRAMES} more"] if len(lines) > _FRAMES else lines


def _frame(frame: dict[str, Any]) -> tuple[str, str]:
    return frame["function"] or "", os.path.basename(frame["module"] or "") or "unknown code"
