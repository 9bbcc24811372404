"""A trace as a report reads it: the tables, what was asked for, and what several sections need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis import runtime_survey
from tracer.analysis.compiled import without_calls
from tracer.analysis.compiling import without_compiler
from tracer.analysis.cuda_tables import has_cuda
from tracer.analysis.fleet.in_memory import merged_tables
from tracer.analysis.job import Job, job_of
from tracer.analysis.kernel_survey import KernelSurvey, survey_kernels
from tracer.analysis.links import Links, combine
from tracer.analysis.paths import (
    PathTables,
    calls_and_time,
    hottest_paths,
    paths_with,
    steady_part,
    survey_paths,
)
from tracer.analysis.phases import phase_of_hops
from tracer.analysis.runtime_survey import Steps, count_steps
from tracer.analysis.step_times import step_times
from tracer.analysis.trees import Forest

if TYPE_CHECKING:
    from tracer.trace import Trace

PARTS = ("cuda", "kernels")
"""Parts that can be a report of their own"""
_ROWS = 40  # of a table


@dataclass(frozen=True)
class Peaks:
    """What the user measured of the device, to hold kernels against: bytes/s and FLOP/s."""

    bandwidth: float | None = None
    flops: float | None = None


@dataclass(frozen=True)
class Rows:
    """The first rows of a table, each a dictionary, and how many rows are left out."""

    rows: list[dict[str, Any]]
    left_out: int

    @classmethod
    def first(cls, table: pl.DataFrame, limit: int) -> Rows:
        return cls(table.head(limit).to_dicts(), max(len(table) - limit, 0))


@dataclass(frozen=True)
class Reading:
    """What the sections of one report read.

    paths       how many of the hottest dispatch paths to show
    details     how many of them to show one by one, with a diagram
    rows        rows per table; None: each section's own default
    only        one of PARTS, or None for the report of everything
    patterns    show only paths with an op, a library function or an API call that fits one of them
    steady      show the paths of op calls in steady steps, and shares of the time in them
    compiler    show the paths of op calls that torch.compile made while it compiled, too
    sections    show only these: names of tracer.report.sections
    """

    trace: Trace
    name: str
    paths: int = 10
    rows: int | None = None
    only: str | None = None
    patterns: Sequence[str] = ()
    steady: bool = False
    compiler: bool = False
    peaks: Peaks = field(default_factory=Peaks)
    details: int = 5
    sections: Sequence[str] = ()

    @property
    def most(self) -> int:
        """Rows per table of hops and API calls."""
        return self.rows or _ROWS

    @cached_property
    def has_cuda(self) -> bool:
        return has_cuda(self.trace)

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Names of the GPUs."""
        if not self.has_cuda:
            return ()
        return tuple(self.trace.devices["name"].drop_nulls().unique(maintain_order=True))

    @cached_property
    def job(self) -> Job:
        """The ranks that are in the trace."""
        return job_of([self.trace])

    @cached_property
    def ranks(self) -> dict[str, pl.DataFrame]:
        """Their tables, as analysis.fleet.merge has them."""
        return merged_tables(self.job, self.name)

    @cached_property
    def hops(self) -> Forest:
        return Forest.of(self.trace.hops)

    @cached_property
    def step_times(self) -> pl.DataFrame:
        """See analysis.step_times."""
        return step_times(self.trace)

    @cached_property
    def phases(self) -> pl.Series:
        """The phase of each row of the trace's hops."""
        return phase_of_hops(self.trace)

    @cached_property
    def links(self) -> Links:
        return combine(self.trace)

    @cached_property
    def _chains(self) -> Forest:
        return Forest.of(self.links.rows) if self.links.has_gpu else self.hops

    @cached_property
    def all_paths(self) -> pl.DataFrame:
        """Every distinct dispatch path (analysis.paths.survey_paths), those outside steady steps too."""
        return survey_paths(without_calls(self._chains))

    @cached_property
    def part(self) -> Forest:
        """What the report's paths are of: hops with the calls and GPU work below them."""
        return steady_part(self._of_program) if self.steady else self._of_program

    @cached_property
    def _of_program(self) -> Forest:
        """What the compiler did is left out, unless it was asked for."""
        chains = self._chains
        return chains if self.compiler else without_compiler(chains, self.trace.compile_phases)

    @cached_property
    def left_to_compiler(self) -> tuple[int, int]:
        """(outermost op calls, their time in ns) of torch.compile that `part` leaves out."""
        if self._of_program is self._chains:
            return 0, 0
        whole, shown = (
            calls_and_time(paths) for paths in (self.all_paths, survey_paths(without_calls(self._of_program)))
        )
        return whole[0] - shown[0], whole[1] - shown[1]

    @cached_property
    def paths_of_part(self) -> pl.DataFrame:
        """Every path of `part`."""
        return self.all_paths if self.part is self._chains else survey_paths(self._paths_forest)

    @cached_property
    def _paths_forest(self) -> Forest:
        """`part`, with what calls of compiled code enclose as outermost: they are no hops."""
        return without_calls(self.part)

    @cached_property
    def chosen_paths(self) -> pl.DataFrame:
        """The paths_of_part that fit a pattern."""
        if not self.patterns:
            return self.paths_of_part
        return paths_with(self._paths_forest, self.paths_of_part, list(self.patterns))

    @cached_property
    def chosen_part(self) -> Forest:
        """The calls in `part` that are of chosen_paths."""
        if not self.patterns:
            return self.part
        forest = self._paths_forest
        structure = pl.Series(forest.structure[forest.root])
        chosen = structure.is_in(self.chosen_paths["structure"].implode())
        return Forest.of(forest.hops.filter(chosen))

    @cached_property
    def hottest(self) -> PathTables:
        return hottest_paths(self._paths_forest, self.chosen_paths, self.paths)

    @cached_property
    def steps(self) -> Steps:
        return count_steps(self.trace)

    @cached_property
    def api_calls(self) -> pl.DataFrame:
        """API calls with their context (analysis.runtime_survey)."""
        return runtime_survey.calls_with_context(self.trace)

    @cached_property
    def api_functions(self) -> pl.DataFrame:
        """API calls per function (analysis.runtime_survey.per_function)."""
        return runtime_survey.per_function(self.api_calls, self.steps)

    @cached_property
    def kernels(self) -> KernelSurvey:
        return survey_kernels(self.trace, bandwidth=self.peaks.bandwidth, flops=self.peaks.flops)

    @cached_property
    def time_in_ops_ns(self) -> int:
        """Time of the outermost op calls, added up over threads."""
        return calls_and_time(self.all_paths)[1]


def with_cuda(reading: Reading) -> bool:
    """`wanted` of the sections about CUDA."""
    return reading.has_cuda
