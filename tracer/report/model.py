"""What a report says, as plain data: built from a trace, rendered by markdown.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from tracer.analysis import surveys
from tracer.analysis.cuda_tables import CudaTables, has_cuda
from tracer.analysis.kernel_survey import KernelSurvey, survey_kernels
from tracer.analysis.links import combine
from tracer.analysis.paths import PathTables, hottest_paths, paths_with, steady_part, survey_paths
from tracer.analysis.runtime_survey import Steps, count_steps
from tracer.analysis.trees import Forest
from tracer.report.runtime import RuntimeReport, build_runtime

PARTS = ("cuda", "kernels")
"""Parts that can be a report of their own."""
_ROWS = 40  # of a table


class TraceTables(CudaTables, Protocol):
    """What a report reads of a trace; tracer.trace.Trace is one."""

    @property
    def environment(self) -> dict[str, Any]: ...
    @property
    def certificate(self) -> dict[str, Any]: ...
    @property
    def processes(self) -> pl.DataFrame: ...
    @property
    def threads(self) -> pl.DataFrame: ...


@dataclass(frozen=True)
class Totals:
    """Times in ns. `in_ops_ns` adds the outermost op calls of all threads up."""

    op_calls: int
    outermost_calls: int
    hops: int
    ops: int
    paths: int
    processes: int
    threads: int
    in_ops_ns: int
    elapsed_ns: int


@dataclass(frozen=True)
class SourceCalls:
    source: str | None
    called_from: str | None
    backward_node: str | None
    calls: int


@dataclass(frozen=True)
class InputCalls:
    signature: int | None
    calls: int


@dataclass(frozen=True)
class Path:
    """One of the hottest dispatch paths; `nodes` are rows of trees.fold over all its calls."""

    op: str
    key: str
    hops: int
    calls: int
    total_ns: int
    median_ns: int
    longest_ns: int
    share: float
    sources: list[SourceCalls]
    inputs: list[InputCalls]
    nodes: pl.DataFrame
    gpu_ns: int = 0


@dataclass(frozen=True)
class Survey:
    """The first rows of a survey, each a dictionary, and how many rows are left out."""

    rows: list[dict[str, Any]]
    left_out: int


@dataclass(frozen=True)
class Chosen:
    """Which dispatch paths a report shows, the hottest of.

    Those with an op or a function that fits one of `patterns` (empty: all), of all op calls or with
    `steady` of those in steady steps, of `steps` in all. `fitting`: how many that are, of `among` without the
    patterns.
    """

    patterns: tuple[str, ...]
    steady: bool
    fitting: int
    among: int
    steps: Steps


@dataclass(frozen=True)
class Report:
    name: str
    environment: dict[str, Any]
    certificate: dict[str, Any]
    processes: list[dict[str, Any]]
    totals: Totals
    paths: list[Path]
    ops: Survey
    keys: Survey
    sources: Survey
    modules: Survey
    backward: Survey
    threads: Survey
    open_hops: Survey
    exceptions: Survey
    signatures: pl.DataFrame
    details: dict[int, str]
    """Texts about calls and GPU activities, by the ids that nodes of paths name"""
    only: str | None = None
    runtime: RuntimeReport | None = None
    kernels: KernelSurvey | None = None
    devices: tuple[str, ...] = ()
    """Names of the GPUs"""
    chosen: Chosen | None = None
    rows: int | None = None
    """Rows a table that were asked for"""


@dataclass(frozen=True)
class Peaks:
    """What the user measured of the device, to hold kernels against: bytes/s and FLOP/s."""

    bandwidth: float | None = None
    flops: float | None = None


def build_report(
    trace: TraceTables,
    name: str,
    *,
    paths: int = 10,
    rows: int | None = None,
    only: str | None = None,
    patterns: Sequence[str] = (),
    steady: bool = False,
    peaks: Peaks | None = None,
) -> Report:
    """Builds the report of a trace called `name` with so many hottest paths and rows a table (without a
    number 40, and 20 to 60 in those of kernels).

    `patterns` choose the paths: those with an op, a library function or an API call that fits one;
    `steady` those of op calls in steady steps, of which the shares are then taken.

    With `only` (one of PARTS) the tables of ops and hops stay empty. Without CUDA in the trace
    `runtime` and `kernels` are None.
    """
    peaks = peaks or Peaks()
    cuda = has_cuda(trace)
    most = rows or _ROWS
    runtime = build_runtime(trace, most) if cuda and only != "kernels" else None
    kernels = (
        survey_kernels(trace, bandwidth=peaks.bandwidth, flops=peaks.flops)
        if cuda and only != "cuda"
        else None
    )
    if only:
        return _part(trace, name, only, rows, runtime, kernels)
    forest = Forest.of(trace.hops)
    links = combine(trace)
    chains = Forest.of(links.rows) if links.has_gpu else forest
    survey = survey_paths(chains)
    totals = _totals(forest, survey)
    if steady:
        chains = steady_part(chains)
        survey = survey_paths(chains)
    chosen = paths_with(chains, survey, list(patterns)) if patterns else survey
    threads = surveys.per_thread(forest).join(
        trace.threads.unique(["process", "thread"], keep="last"),
        on=["process", "thread"],
        how="left",
        maintain_order="left",
    )
    return Report(
        name=name,
        environment=trace.environment,
        certificate=trace.certificate,
        processes=trace.processes.to_dicts(),
        totals=totals,
        paths=_paths(hottest_paths(chains, chosen, paths), int(survey["total_ns"].sum())),
        ops=_first(surveys.per_op(trace.hops), most),
        keys=_first(surveys.per_key(trace.hops), most),
        sources=_first(surveys.per_source(forest), most),
        modules=_first(surveys.per_module(forest), most),
        backward=_first(surveys.per_backward_node(forest), most),
        threads=_first(threads, most),
        open_hops=_first(surveys.open_hops(forest), most),
        exceptions=_first(surveys.exceptions(forest), most),
        signatures=trace.signatures,
        details=links.details,
        runtime=runtime,
        kernels=kernels,
        devices=_devices(trace),
        chosen=Chosen(tuple(patterns), steady, len(chosen), len(survey), count_steps(trace)),
        rows=rows,
    )


def _devices(trace: TraceTables) -> tuple[str, ...]:
    return tuple(trace.devices["name"].drop_nulls().unique(maintain_order=True)) if has_cuda(trace) else ()


def _part(
    trace: TraceTables,
    name: str,
    only: str,
    rows: int | None,
    runtime: RuntimeReport | None,
    kernels: KernelSurvey | None,
) -> Report:
    nothing = Survey([], 0)
    return Report(
        name=name,
        environment=trace.environment,
        certificate=trace.certificate,
        processes=trace.processes.to_dicts(),
        totals=_totals(Forest.of(trace.hops.clear()), pl.DataFrame()),
        paths=[],
        ops=nothing,
        keys=nothing,
        sources=nothing,
        modules=nothing,
        backward=nothing,
        threads=nothing,
        open_hops=nothing,
        exceptions=nothing,
        signatures=trace.signatures,
        details={},
        only=only,
        rows=rows,
        runtime=runtime,
        kernels=kernels,
        devices=_devices(trace),
    )


def _totals(forest: Forest, survey: pl.DataFrame) -> Totals:
    hops = forest.hops
    if hops.is_empty():
        return Totals(0, 0, 0, 0, 0, 0, 0, 0, 0)
    return Totals(
        op_calls=int((hops["kind"] == "call").sum()),
        outermost_calls=int((forest.parent < 0).sum()),
        hops=len(hops),
        ops=hops["op"].n_unique(),
        paths=len(survey),
        processes=hops["process"].n_unique(),
        threads=hops.select(pl.struct("process", "thread").n_unique()).item(),
        in_ops_ns=int(survey["total_ns"].sum()),
        elapsed_ns=hops.select(pl.col("end_ns").max() - pl.col("start_ns").min()).item(),
    )


def _paths(tables: PathTables, in_ops_ns: int) -> list[Path]:
    return [
        Path(
            op=path["op"],
            key=path["key"],
            hops=path["hops"],
            calls=path["calls"],
            total_ns=path["total_ns"],
            median_ns=path["median_ns"],
            longest_ns=path["longest_ns"],
            share=path["total_ns"] / in_ops_ns if in_ops_ns else 0.0,
            sources=[SourceCalls(**row) for row in _of_path(tables.sources, path["path"]).to_dicts()],
            inputs=[InputCalls(**row) for row in _of_path(tables.inputs, path["path"]).to_dicts()],
            nodes=_of_path(tables.nodes, path["path"]),
            gpu_ns=path.get("gpu_ns", 0),
        )
        for path in tables.paths.iter_rows(named=True)
    ]


def _of_path(table: pl.DataFrame, path: int) -> pl.DataFrame:
    return table.filter(pl.col("path") == path).drop("path")


def _first(survey: pl.DataFrame, rows: int) -> Survey:
    return Survey(survey.head(rows).to_dicts(), max(len(survey) - rows, 0))
