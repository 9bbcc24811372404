"""What a rule found, and what the user reads of it."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.advice.experiments import Experiment

MEASURED, BOUNDED, DROPPED, UNDECIDED = "measured", "bounded", "dropped", "undecided"
"""How a gain is known: by an experiment; at most so much; an experiment found none; it allows both"""
LEAST = 0.01
"""Of a step: less than this differs between two runs of the same program"""


@dataclass(frozen=True)
class Finding:
    """Something to do, and the time of a step that it is about.

    line      where the time passes, as the trace has it; None: no Python line
    change    the line to change, where that is another one and known
    do        what to do, one sentence without a full stop
    evidence  what was seen, with numbers a step
    cost_ns   what it takes of a step
    most_ns   more than this of a step cannot be gained: also of what the change makes needless elsewhere
    hops      rows of `trace.hops` that take that time, as far as there are any
    experiment  what would tell how much of it is gained; None: nothing does
    caveat    what else changes with it; "" if nothing does
    needs_experiment  without an experiment there is nothing to say: textbooks are mostly wrong about it
    """

    line: str | None
    do: str
    evidence: str
    cost_ns: float
    most_ns: float
    hops: frozenset[int] = frozenset()
    change: str | None = None
    experiment: Experiment | None = None
    caveat: str = ""
    needs_experiment: bool = False


@dataclass(frozen=True)
class Gain:
    """Nanoseconds of a step: `low` to `high` with 95 %, or at most `ns`; undecided: none, or at most `ns`.

    ratio, ratio_low, ratio_high  the time as it was over that with the change, where it was measured
    why_not     why it was not measured, or cannot be; "" if it was, or if it was not tried
    note        what an experiment found that has no ratio, in words
    """

    known: str
    ns: float
    low: float | None = None
    high: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    why_not: str = ""
    note: str = ""


@dataclass(frozen=True)
class Advice:
    """A row: the finding of a rule with its gain. `alternatives` would pay for the same time."""

    rule: str
    finding: Finding
    gain: Gain
    alternatives: tuple[Advice, ...] = ()

    @property
    def everything(self) -> tuple[Advice, ...]:
        """This row and its alternatives."""
        return (self, *self.alternatives)


def bounded(rule: str, finding: Finding, why_not: str = "") -> Advice:
    """A row whose gain is at most what the finding says. `why_not`: why it cannot be measured."""
    return Advice(rule, finding, Gain(BOUNDED, finding.most_ns, why_not=why_not))
