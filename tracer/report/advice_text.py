"""Advice in words: for the terminal, for markdown, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from tracer.advice.advise import Advised
from tracer.advice.finding import BOUNDED, DROPPED, MEASURED, UNDECIDED, Advice, Gain
from tracer.advice.rule import NEEDS, Rule
from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.report.cells import code, prose, table
from tracer.report.page import percent
from tracer.report.text import count, duration

ROWS = 5
_WIDTH = 79
_KNOWN = {BOUNDED: "at most", MEASURED: MEASURED, UNDECIDED: "not decided: none, or up to this"}
TITLES = ["#", "gain:", "share:", "line", "what to do", "known"]


def heading(found: Advised) -> str:
    """`5 steady steps of 165 ms (170 ms as recorded)`, and whether other work had the cores meanwhile"""
    step, recorded = (duration(round(ns)) for ns in (found.step_ns, found.recorded_ns))
    with_own = f" ({recorded} as recorded)" if recorded != step else ""
    steps = f"{count(found.steps, 'steady step')} of {step}{with_own}"
    if found.left_out:
        return f"{steps}; the machine was busy in {found.left_out:,} more: left out"
    if found.busy:
        return f"{steps}; the machine was busy in {found.busy:,} of them: record again"
    return steps


def nothing(found: Advised) -> str:
    """What is said where no row is left."""
    return f"nothing worth 1 % found; tried {count(found.rules, 'rule')}"


def lines(found: Advised, sources: SourceLines, everything: bool) -> Iterator[str]:
    """All of it, a line each, for a terminal."""
    shown = found.rows if everything else found.rows[:ROWS]
    yield heading(found)
    if not shown:
        yield nothing(found)
    for number, row in enumerate(shown, 1):
        yield ""
        yield from _row(number, row, found.step_ns, sources)
    left = len(found.rows) - len(shown)
    if left:
        yield ""
        yield f"{left} more: --all"
    if everything and found.dropped:
        yield ""
        yield "Tried, no gain:"
        for row in found.dropped:
            yield from _wrapped(f"{_at(row, sources)}: {row.finding.do}; {ratio(row.gain)}", "  ", "    ")
    yield from _untried(found)


def _untried(found: Advised) -> Iterator[str]:
    """What was not tried yet, then what was not measured, with the reason."""
    left = sorted({row.rule for row in found.untried if not row.gain.why_not})
    if left:
        yield ""
        yield f"Only an experiment can tell: {', '.join(left)}. To try: --measure"
    failed = [row for row in found.untried if row.gain.why_not]
    if failed:
        yield ""
        yield "Only an experiment can tell, but nothing was measured:"
    for row in failed:
        yield from _wrapped(f"{row.rule}: {row.gain.why_not}", "  ", "    ")


def _row(number: int, row: Advice, step_ns: float, sources: SourceLines) -> Iterator[str]:
    head = f"{number}. {gain(row.gain, step_ns)}  {_at(row, sources)}"
    yield head
    text = sources.text(row.finding.line).strip()
    if text:
        yield f"   | {text[: _WIDTH - 5]}"
    if row.finding.change:
        yield f"   change: {sources.name(row.finding.change)}"
    yield from _wrapped(f"do: {row.finding.do}{_caveat(row)}", "   ", "       ")
    for other in row.alternatives:
        where = "" if other.finding.line == row.finding.line else f" at {_at(other, sources)}"
        said = f"or: {other.finding.do}{_caveat(other)}{where}: {gain(other.gain, step_ns)}"
        yield from _wrapped(said, "   ", "       ")
    took = f"{duration(round(row.finding.cost_ns))} of a step"
    yield from _wrapped(f"seen: {row.finding.evidence}; {took}. [{row.rule}]", "   ", "       ")
    if row.gain.ratio is not None or row.gain.note or row.gain.why_not:
        yield from _wrapped(ratio(row.gain), "   ", "       ")


_MOST_TEXT = 2000
"""Characters: what is longer is a stranger's, and breaking a long word takes its length squared"""


def _wrapped(text: str, first: str, next_one: str) -> list[str]:
    shown = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
    return textwrap.wrap(shown, _WIDTH, initial_indent=first, subsequent_indent=next_one)


def _caveat(row: Advice) -> str:
    return f" ({row.finding.caveat})" if row.finding.caveat else ""


def _at(row: Advice, sources: SourceLines) -> str:
    return sources.name(row.finding.line) if row.finding.line else NO_LINE


def gain(one: Gain, step_ns: float) -> str:
    """`at most 44 % of a step, 72.1 ms`, `41 % of a step, 67.8 ms (measured)`, or both ends"""
    said = f"{percent(one.ns / step_ns)} of a step, {duration(round(one.ns))}"
    if one.known == UNDECIDED:
        return f"not decided: none, or up to {said}"
    return f"at most {said}" if one.known == BOUNDED else f"{said} (measured)"


def ratio(one: Gain) -> str:
    """`measured: 5.90 x (95 %: 3.70 to 6.10)`, or what is known in place of a ratio, or why nothing is"""
    if one.note:
        return one.note
    if one.ratio is None or one.ratio_low is None or one.ratio_high is None:
        return f"not measured: {one.why_not}"
    return f"measured: {one.ratio:.2f} x (95 %: {one.ratio_low:.2f} to {one.ratio_high:.2f})"


def explained(name: str, rule: Rule) -> list[str]:
    """A rule in its own words, a line each."""
    found = [f"{name}", *_wrapped(f"looks for: {rule.looks_for}", "  ", "    ")]
    found += _wrapped(f"from: {rule.threshold}", "  ", "    ")
    for need in rule.needs:
        found += _wrapped(f"needs: {NEEDS[need]}", "  ", "    ")
    return found


def advice_table(found: Advised, sources: SourceLines, most: int = ROWS) -> str:
    """Markdown: a row for each of the first rows; what is said where none is left."""
    if not found.rows:
        return f"{nothing(found).capitalize()}."
    cells = [
        [
            str(number),
            duration(round(row.gain.ns)),
            percent(row.gain.ns / found.step_ns),
            code(_at(row, sources)) if row.finding.line else "",
            prose("; or ".join(one.finding.do + _caveat(one) for one in row.everything)),
            _KNOWN[row.gain.known] + (f"; {ratio(row.gain)}" if row.gain.why_not else ""),
        ]
        for number, row in enumerate(found.rows[:most], 1)
    ]
    return table(TITLES, cells)


def advice_document(path: str, found: Advised, sources: SourceLines, most: int | None) -> dict[str, Any]:
    """`advice` has the rows, `dropped` what was tried for nothing; times in ns a step."""
    return {
        "trace": path,
        "steps": found.steps,
        "steps_left_out": found.left_out,
        "steps_busy": found.busy,
        "step_ns": found.step_ns,
        "rules": found.rules,
        "advice": [_document(row, found.step_ns, sources) for row in found.rows[:most]],
        "dropped": [_document(row, found.step_ns, sources) for row in found.dropped],
        "untried": sorted({row.rule for row in found.untried if not row.gain.why_not}),
        "failed": {row.rule: row.gain.why_not for row in found.untried if row.gain.why_not},
    }


def _document(row: Advice, step_ns: float, sources: SourceLines) -> dict[str, Any]:
    finding, one = row.finding, row.gain
    return {
        "rule": row.rule,
        "line": sources.name(finding.line) if finding.line else None,
        "text": sources.text(finding.line).strip() or None,
        "change": sources.name(finding.change) if finding.change else None,
        "do": finding.do,
        "caveat": finding.caveat or None,
        "evidence": finding.evidence,
        "cost_ns": finding.cost_ns,
        "gain": {
            "ns": 0.0 if one.known == DROPPED else one.ns,
            "low_ns": one.low,
            "high_ns": one.high,
            "share": 0.0 if one.known == DROPPED else one.ns / step_ns,
            "ratio": one.ratio,
            "ratio_low": one.ratio_low,
            "ratio_high": one.ratio_high,
        },
        "known": one.known,
        "why_not_measured": one.why_not or None,
        "note": one.note or None,
        "alternatives": [_document(other, step_ns, sources) for other in row.alternatives],
    }
