"""One rank of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from tracer.analysis.source_lines import WithLines
from tracer.analysis.step_times import StepTables


class JobTables(StepTables, WithLines, Protocol):
    """What is read of the trace of a rank."""

    @property
    def path(self) -> str: ...
    @property
    def began_ns(self) -> int: ...
    @property
    def processes(self) -> pl.DataFrame: ...
    @property
    def signatures(self) -> pl.DataFrame: ...
    @property
    def scalars(self) -> pl.DataFrame: ...
    @property
    def memory(self) -> pl.DataFrame: ...
    @property
    def certificate(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class RankPart:
    """One rank: a process of a trace. `began_ns` is the clock of its boot when times in the trace are 0."""

    rank: int
    ranks: int
    host: str
    boot: str
    began_ns: int
    process: int
    trace: JobTables
