"""One rank of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.trace import Trace


@dataclass(frozen=True)
class RankPart:
    """One rank: a process of a trace. `began_ns` is the clock of its boot when times in the trace are 0.

    `restarts` is how often the job had been started before.
    """

    rank: int
    ranks: int
    host: str
    boot: str
    began_ns: int
    process: int
    trace: Trace
    restarts: int = 0
