"""What `tracer diff` says of two traces: sentences, lines and cells, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING

from tracer.report.text import count, duration

if TYPE_CHECKING:
    from tracer.analysis.difference import Change, Difference, Place, Times, ValueDifference

LINE, OP, MODULE = "line", "op", "module"
ROWS = (LINE, OP, MODULE)
_CHAIN_LINES = 16  # of a change
_TEXT = 60


def verdict(found: Difference) -> str:
    """How many kinds of op calls changed, and how the time of a step did."""
    changed = len(found.structural)
    kinds = count(len(found.changes), "kind")
    words = f"{changed} of {kinds} of op calls changed" if changed else "the same structure"
    return f"{words}; {_step(found)}"


def _step(found: Difference) -> str:
    if not all(found.steps):
        return "no steps to compare: call tracer.step() after each iteration"
    kind = "steady step" if found.steady else "step"
    steps = f"{found.steps[0]:,} and {count(found.steps[1], kind)}"
    gpu = f"; GPU time {_compared(found.gpu)}" if found.gpu.before or found.gpu.after else ""
    return f"a step took {_compared(found.step)} ({steps}){gpu}"


def _compared(times: Times) -> str:
    one, other = (duration(round(ns)) if ns is not None else "nothing" for ns in (times.before, times.after))
    if times.ratio is None:
        return f"{one} before, {other} after"
    ratio = times.ratio
    interval = f"{ratio.value:.2f} x ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{one} before, {other} after: {interval}, {ratio.verdict}"


def place(change: Change) -> str:
    kind = change.kind
    return f"{'backward of ' if kind.backward else ''}{kind.line}"


def chain_diff(change: Change) -> list[str]:
    """The chains that ran most often, as lines of a diff; nothing if they are the same or a side has none."""
    if change.before is None or change.after is None:
        return []
    one, other = (side.chains.most_common(1)[0][0].splitlines() for side in (change.before, change.after))
    hunks = list(unified_diff(one, other, lineterm="", n=2))[2:]
    lines = [line for line in hunks if not line.startswith("@@")]
    left_out = len(lines) - _CHAIN_LINES
    return lines[:_CHAIN_LINES] + [f"... {count(left_out, 'more line')}"] * (left_out > 0)


def titles(by: str, found: Difference) -> list[str]:
    """Of the columns of `rows`; those on the right end in a colon."""
    names = [by] if by != LINE else [LINE, OP]
    times = ["before:", "after:", "ratio (95 %):", "verdict"]
    gpu = ["GPU before:", "GPU after:", "GPU ratio:"] if by == LINE and _has_gpu(found) else []
    return names + times + gpu + ["text"] * (by == LINE)


def rows(by: str, found: Difference) -> list[list[str]]:
    """Cells of lines, ops or modules that took time, the largest change first."""
    if by != LINE:
        named = found.ops if by == OP else found.modules
        return [[name, *_cells(times, "")] for name, times in named.items() if times.before or times.after]
    timed = [change for change in found.changes if change.times.before or change.times.after]
    return [_row(change, found) for change in sorted(timed, key=lambda change: -_moved(change))]


def _moved(change: Change) -> float:
    return max(abs(change.times.change_ns), abs(change.gpu.change_ns))


def _has_gpu(found: Difference) -> bool:
    return bool(found.gpu.before or found.gpu.after)


def _row(change: Change, found: Difference) -> list[str]:
    kind = change.kind
    there = "new" if change.before is None else "vanished" if change.after is None else ""
    text = kind.text if len(kind.text) <= _TEXT else f"{kind.text[: _TEXT - 3]}..."
    name = f"{kind.line} (backward)" if kind.backward else kind.line
    gpu = _cells(change.gpu, "")[:3] if _has_gpu(found) else []
    return [name, kind.op, *_cells(change.times, there), *gpu, text]


def _cells(times: Times, there: str) -> list[str]:
    """before, after, ratio, verdict."""
    ratio = times.ratio
    figures = [duration(round(ns)) if ns is not None else "" for ns in (times.before, times.after)]
    interval = "" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    return [*figures, interval, there or (ratio.verdict if ratio else "")]


def value_lines(values: ValueDifference) -> list[str]:
    """What the hashes of results say, as sentences."""
    lines = [f"{count(values.compared, 'op call')} that both runs made in the same order returned values"]
    if values.first is None:
        lines[0] += ", all of them the same"
    else:
        one, other = values.first
        lines.append(f"the first whose values differ: {_where(one)}; in the second run {_where(other)}")
    if values.parted is not None:
        ends = [_where(side) if side else "the end of the run" for side in values.parted]
        lines.append(f"the order of op calls differs from here on: {ends[0]}; in the second run {ends[1]}")
    for run, nan in zip(("first", "second"), values.nans, strict=True):
        if nan is not None:
            lines.append(f"the first NaN of the {run} run: {_where(nan)}")
    return lines


def _where(at: Place) -> str:
    words = f"hop {at.hop} {at.op}"
    words += f" at {at.line}" if at.line else ""
    words += f" in module {at.module}" if at.module else ""
    words += f", step {at.step}" if at.step is not None else ""
    return words + (f": {at.text}" if at.text else "")


def shown_of(shown: int, whole: int, noun: str) -> str:
    """`Shown: 2 of 10 changes. More: --limit 0.`; nothing if all are shown."""
    return "" if shown >= whole else f"Shown: {shown} of {count(whole, noun)}. More: --limit 0."


def first(items: Sequence, limit: int) -> Sequence:
    return items[:limit] if limit else items
