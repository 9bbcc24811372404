"""Runs the rules over a trace, and puts what they found in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracer.advice.finding import BOUNDED, DROPPED, LEAST, MEASURED, Advice, Finding, bounded
from tracer.advice.remembered import recalled
from tracer.advice.rules import RULES
from tracer.advice.steady import Steady

if TYPE_CHECKING:
    import polars as pl

    from tracer.trace import Trace

_SAME = 0.5
"""Of the calls of the smaller of two findings: with this share in common they pay for the same time"""


@dataclass(frozen=True)
class Advised:
    """What the rules say of a trace.

    steps, step_ns   how many steady steps were looked at, and the median of their time without tracer
    recorded_ns      that median with what recording them cost, as `tracer steps` has it
    rows             what to do, most gain first
    dropped          what experiments found no gain for
    untried          what only an experiment can tell; `why_not` says why none did
    rules            how many rules were tried
    left_out, busy   steady steps whose thread waited long for a core: not among `steps`, and among them
    """

    steps: int
    step_ns: float
    recorded_ns: float
    rows: tuple[Advice, ...]
    dropped: tuple[Advice, ...] = ()
    untried: tuple[Advice, ...] = ()
    rules: int = len(RULES)
    left_out: int = 0
    busy: int = 0


def advise(trace: Trace, times: pl.DataFrame | None = None) -> Advised:
    """Gains are bounds, or as they were measured last. Raises NoAdviceError.

    `times`: its step_times, if known.
    """
    steady, rows = found(trace, times)
    return arranged(steady, recalled(trace, rows))


def found(trace: Trace, times: pl.DataFrame | None = None) -> tuple[Steady, list[Advice]]:
    """What the rules find, a row each, in the order of the rules. Raises NoAdviceError."""
    steady = Steady.of(trace, times)
    rows = [(name, one) for name, rule in RULES.items() for one in rule.find(steady)]
    why_not = "the machine was busy" if steady.mostly_busy else ""
    return steady, [bounded(name, _within(one, steady.step_ns), why_not) for name, one in rows]


def _within(found: Finding, step_ns: float) -> Finding:
    """No work takes more than the step: its own median and that of the step may be of different steps."""
    return replace(found, cost_ns=min(found.cost_ns, step_ns), most_ns=min(found.most_ns, step_ns))


def arranged(steady: Steady, rows: Iterable[Advice]) -> Advised:
    """The same rows, those that pay for the same time as alternatives of the one that gains most."""
    rows = list(rows)
    dropped = [row for row in rows if row.gain.known == DROPPED]
    untried = [row for row in rows if row.finding.needs_experiment and _is_untried(row)]
    rest = [row for row in rows if row not in dropped and row not in untried]
    worth = [row for row in rest if row.gain.ns >= LEAST * steady.step_ns]
    worth.sort(key=_least, reverse=True)
    return Advised(
        len(steady.steps),
        steady.step_ns,
        steady.parts["wall_ns"],
        tuple(_grouped(worth)),
        tuple(dropped),
        tuple(untried),
        left_out=steady.left_out,
        busy=steady.busy,
    )


def _is_untried(row: Advice) -> bool:
    """An experiment that says something in words was tried; one that failed was not."""
    return row.gain.known == BOUNDED and not row.gain.note


def _least(row: Advice) -> float:
    """A measured gain counts for what it is at least."""
    return row.gain.ns if row.gain.low is None else row.gain.low


def _grouped(rows: list[Advice]) -> list[Advice]:
    """Rows that pay for the same time are one, under the best that was measured, else under the first."""
    groups: list[list[Advice]] = []
    for row in rows:
        for group in groups:
            if any(_same_time(row, one) for one in group):
                group.append(row)
                break
        else:
            groups.append([row])
    heads = []
    for group in groups:
        head = next((row for row in group if row.gain.known == MEASURED), group[0])
        heads.append(replace(head, alternatives=tuple(row for row in group if row is not head)))
    return heads


def _same_time(one: Advice, other: Advice) -> bool:
    a, b = one.finding.hops, other.finding.hops
    return bool(a and b) and len(a & b) >= _SAME * min(len(a), len(b))
