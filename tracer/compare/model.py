"""The results of a comparison, as plain data; markdown.py renders them."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Any

from tracer.analysis.chain import Pair, align
from tracer.compare.accuracy import Check
from tracer.compare.call_memory import Memory
from tracer.compare.chains import Chain
from tracer.compare.roof import Limit
from tracer.compare.spread import Ratio, Spread
from tracer.compare.timing import Samples
from tracer.compare.trials import Trials


@dataclass(frozen=True)
class Timing:
    """One kind of time of both sides."""

    stock: Spread
    override: Spread
    ratio: Ratio

    @classmethod
    def of(cls, samples: Samples) -> Timing | None:
        if not samples.stock:
            return None
        ratio = Ratio.of(samples.stock, samples.override)
        return cls(Spread.of(samples.stock), Spread.of(samples.override), ratio)


@dataclass(frozen=True)
class Chains:
    """The dispatch chains of one call on each side, and how their lines go together."""

    stock: Chain
    override: Chain
    pairs: list[Pair]

    @classmethod
    def of(cls, stock: Chain, override: Chain) -> Chains:
        return cls(stock, override, align(stock.links, override.links))


@dataclass
class CaseResult:
    """Of one case. Where a call raised other fields may be empty.

    failed, raised    the traceback, and its last line
    host, wall, gpu,
    cold              see timing.Times; `calls` are in a sample
    memory            stock's and the override's
    ran, handed_over  in one call, by operator; of what was handed over, by reason
    repeats           two calls of the override gave the same bytes
    broken            what the override did beside its values, in a phrase: changed inputs, other strides
    note              what is to be known of the case
    """

    name: str
    wall: Timing | None = None
    host: Timing | None = None
    gpu: Timing | None = None
    cold: Timing | None = None
    why_no_gpu: str = ""
    calls: int = 0
    memory: tuple[Memory | None, Memory | None] = (None, None)
    checks: list[Check] = field(default_factory=list)
    repeats: bool = True
    broken: str = ""
    limit: Limit | None = None
    ran: dict[str, int] = field(default_factory=dict)
    handed_over: dict[str, dict[str, int]] = field(default_factory=dict)
    chains: Chains | None = None
    note: str = ""
    failed: str = ""
    raised: str = ""

    def fail(self, error: Exception | SystemExit) -> None:
        """Keeps the first exception of the case."""
        if not self.failed:
            self.failed = "".join(traceback.format_exception(error))
            self.raised = traceback.format_exception_only(error)[0].strip()

    @property
    def wrong(self) -> list[Check]:
        return [check for check in self.checks if check.wrong]

    @property
    def returned(self) -> bool:
        """Its calls neither raised nor ended the process."""
        return bool(self.checks) and not self.failed

    @property
    def passed(self) -> bool:
        return not (self.wrong or self.broken or self.failed)

    @property
    def limited(self) -> Timing | None:
        """The time that is held against the limit: of the GPU where it was measured."""
        return self.gpu or self.wall


@dataclass(frozen=True)
class Comparison:
    """`title` says what was compared; `facts` are those of the environment of a trace."""

    title: str
    overrides: tuple[str, ...]
    device: str
    facts: dict[str, Any]
    roof: str
    cases: list[CaseResult]
    certificate: dict[str, Any]
    remarks: list[str]
    trials: Trials = field(default_factory=Trials)
