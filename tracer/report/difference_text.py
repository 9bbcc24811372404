"""What `tracer diff` says of two traces: sentences, lines and cells, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracer.analysis.chain import diff
from tracer.analysis.difference.times import FASTER, MACHINE, SLOWER
from tracer.report.decision_text import OUTSIDE
from tracer.report.text import count, duration

if TYPE_CHECKING:
    from tracer.analysis.difference import (
        Between,
        Both,
        Change,
        Difference,
        Kind,
        Place,
        Times,
        ValueDifference,
    )

LINE, OP, MODULE = "line", "op", "module"
ROWS = (LINE, OP, MODULE)
_CHAIN_LINES = 16  # of a change
_TEXT = 60
_NAMES = 5  # of changes that are folded


def verdict(found: Difference) -> str:
    """How many kinds of op calls changed, and how the time of a step did."""
    changed = len(found.structural)
    kinds = count(len(found.changes), "kind")
    words = f"{changed} of {kinds} of op calls changed" if changed else "the same structure"
    return f"{words}; {_step(found)}{_decided(found)}"


def _decided(found: Difference) -> str:
    """How much of the step's change is in the rows that chance, or the machine, does not explain.

    Nothing if the step did not change. Rows of one side have no interval, so they are counted apart.
    """
    whole = found.step.change_ns
    if found.step.verdict not in (SLOWER, FASTER, MACHINE) or not round(whole):
        return ""
    rows = [change.times.times for change in found.changes] + [both.times for both in found.outside.values()]
    both = [row for row in rows if row.before and row.after]
    part = sum(row.change_ns for row in both if row.verdict in (SLOWER, FASTER))
    apart = sum(row.change_ns for row in rows if bool(row.before) != bool(row.after))
    share = f", {100 * part / whole:.0f} % of it" if part * whole > 0 else ""
    words = f"; the change is {_signed(whole)}; slower and faster rows add up to {_signed(part)}{share}"
    return words + (f"; new and vanished rows add up to {_signed(apart)}" if round(apart) else "")


def _signed(ns: float) -> str:
    sign = "+" if ns > 0 else "-" if ns < 0 else ""
    return f"{sign}{duration(abs(round(ns)))}"


def _step(found: Difference) -> str:
    gpu = f"; GPU time {_compared(found.gpu)}" if found.gpu.before or found.gpu.after else ""
    runs = f"; medians of {found.runs[0]} and {found.runs[1]} runs" if max(found.runs) > 1 else ""
    if not all(found.steps):
        whole = f"the whole run took {_compared(found.step)}"
        return f"{whole} (no steps: call tracer.step() after each iteration{runs}){gpu}"
    kind = "steady step" if found.steady else "step"
    steps = f"{found.steps[0]:,} and {count(found.steps[1], kind)}"
    return f"a step took {_compared(found.step)} ({steps}{runs}){gpu}"


def _compared(times: Times) -> str:
    one, other = (duration(round(ns)) if ns is not None else "nothing" for ns in (times.before, times.after))
    words = f"{one} before, {other} after"
    if times.ratio is None:
        return f"{words}: {times.factor:.2f} x" if times.factor else words
    ratio = times.ratio
    verdict = "the machine" if times.verdict == MACHINE else times.verdict
    return f"{words}: {ratio.value:.2f} x ({ratio.low:.2f} to {ratio.high:.2f}), {verdict}"


def folded(changes: Sequence[Change]) -> list[tuple[Change, list[Change]]]:
    """Each change with the later ones that the same likely cause explains."""
    found: dict[object, tuple[Change, list[Change]]] = {}
    for number, change in enumerate(changes):
        if change.cause in found:
            found[change.cause][1].append(change)
        else:
            found[change.cause or number] = (change, [])
    return list(found.values())


def explained(change: Change, others: Sequence[Change], limit: int) -> str:
    """`the same cause (key AutocastCPU only after) explains 7 more changes: ...`; "" for a single one."""
    if not change.cause or not others:
        return ""
    names = [f"{place(other)} {other.kind.op}" for other in first(others, limit and _NAMES)]
    left_out = ", ..." * (len(names) < len(others))
    more = count(len(others), "more change")
    return f"the same cause ({change.cause.text}) explains {more}: {', '.join(names)}{left_out}"


def place(change: Change) -> str:
    kind = change.kind
    return f"{'backward of ' if kind.backward else ''}{kind.line}"


def chain_diff(change: Change) -> list[str]:
    """The most frequent chains that differ, as lines of a diff; nothing if they are the same."""
    if change.chains is None:
        return []
    lines = list(diff(*change.chains))
    left_out = len(lines) - _CHAIN_LINES
    return lines[:_CHAIN_LINES] + [f"... {count(left_out, 'more line')}"] * (left_out > 0)


def titles(by: str, found: Difference) -> list[str]:
    """The titles of the columns of `rows`; those on the right end in a colon."""
    names = [by] if by != LINE else [LINE, OP]
    return [*names, *figure_titles(found), *["text"] * (by == LINE)]


def figure_titles(found: Difference) -> list[str]:
    """Those of `cells`."""
    ratio = "ratio (runs):" if found.several else "ratio (95 %):"
    times = ["before:", "after:", ratio, "verdict:"]
    gpu = ["GPU before:", "GPU after:", "GPU ratio:"] if _has_gpu(found) else []
    return times + gpu


def rows(by: str, found: Difference) -> list[list[str]]:
    """Cells of lines, ops or modules that took time, the largest change first."""
    if by != LINE:
        named = found.ops if by == OP else found.modules
        return [[name, *cells(both, found)] for name, both in named.items() if _some(both)]
    ranked = [(change.times, _row(change, found)) for change in found.changes]
    ranked += [(both, _gap_row(lines, both, found)) for lines, both in found.outside.items()]
    return [row for both, row in sorted(ranked, key=lambda item: -item[0].change_ns) if _some(both)]


def _some(both: Both) -> bool:
    return bool(both.times.before or both.times.after)


def _has_gpu(found: Difference) -> bool:
    return bool(found.gpu.before or found.gpu.after)


def _row(change: Change, found: Difference) -> list[str]:
    kind = change.kind
    name = f"{kind.line} (backward)" if kind.backward else kind.line
    return [name, kind.op, *cells_of(change, found), short_text(kind)]


def short_text(kind: Kind) -> str:
    return kind.text if len(kind.text) <= _TEXT else f"{kind.text[: _TEXT - 3]}..."


def cells_of(change: Change, found: Difference) -> list[str]:
    there = "new" if change.before is None else "vanished" if change.after is None else ""
    return cells(change.times, found, there or change.times.times.verdict)


def _gap_row(lines: Between, both: Both, found: Difference) -> list[str]:
    return [" -> ".join(lines), OUTSIDE, *cells(both, found), ""]


def cells(both: Both, found: Difference, verdict: str | None = None) -> list[str]:
    """before, after, ratio, verdict; and before, after and ratio of the GPU if there is one."""
    times = both.times
    if verdict is None:
        verdict = "new" if not times.before else "vanished" if not times.after else times.verdict
    return [*_figures(times), verdict] + _figures(both.gpu) * _has_gpu(found)


def _figures(times: Times) -> list[str]:
    ratio = times.ratio
    figures = [duration(round(ns)) if ns is not None else "" for ns in (times.before, times.after)]
    if ratio is None:
        return [*figures, f"{times.factor:.2f}" if times.factor else ""]
    return [*figures, f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"]


def value_lines(values: ValueDifference) -> list[str]:
    """What the hashes of results say, as sentences."""
    lines = [f"{count(values.compared, 'op call')} that both runs made in the same order returned values"]
    if values.first is None:
        lines[0] += ", all of them equal"
    else:
        one, other = values.first
        there = f"hop {other.hop}" if (one.op, one.line) == (other.op, other.line) else _where(other)
        lines.append(f"the first whose values differ: {_where(one)}; in the second run {there}")
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
