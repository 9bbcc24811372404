"""What a report says, as plain data: built from a trace, rendered by markdown.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from tracer.analysis import surveys
from tracer.analysis.paths import PathTables, hottest_paths, survey_paths
from tracer.analysis.trees import Forest


class TraceTables(Protocol):
    """What a report reads of a trace; tracer.trace.Trace is one."""

    @property
    def hops(self) -> pl.DataFrame: ...
    @property
    def signatures(self) -> pl.DataFrame: ...
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
    share: float
    sources: list[SourceCalls]
    inputs: list[InputCalls]
    nodes: pl.DataFrame


@dataclass(frozen=True)
class Survey:
    """The first rows of a survey, each a dictionary, and how many rows are left out."""

    rows: list[dict[str, Any]]
    left_out: int


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
    backward: Survey
    threads: Survey
    open_hops: Survey
    exceptions: Survey
    signatures: pl.DataFrame


def build_report(trace: TraceTables, name: str, *, paths: int = 10, rows: int = 40) -> Report:
    """Builds the report of a trace called `name` with so many hottest paths and rows a table."""
    forest = Forest.of(trace.hops)
    survey = survey_paths(forest)
    totals = _totals(forest, survey)
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
        paths=_paths(hottest_paths(forest, survey, paths), totals.in_ops_ns),
        ops=_first(surveys.per_op(trace.hops), rows),
        keys=_first(surveys.per_key(trace.hops), rows),
        sources=_first(surveys.per_source(forest), rows),
        backward=_first(surveys.per_backward_node(forest), rows),
        threads=_first(threads, rows),
        open_hops=_first(surveys.open_hops(forest), rows),
        exceptions=_first(surveys.exceptions(forest), rows),
        signatures=trace.signatures,
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
            share=path["total_ns"] / in_ops_ns if in_ops_ns else 0.0,
            sources=[SourceCalls(**row) for row in _of_path(tables.sources, path["path"]).to_dicts()],
            inputs=[InputCalls(**row) for row in _of_path(tables.inputs, path["path"]).to_dicts()],
            nodes=_of_path(tables.nodes, path["path"]),
        )
        for path in tables.paths.iter_rows(named=True)
    ]


def _of_path(table: pl.DataFrame, path: int) -> pl.DataFrame:
    return table.filter(pl.col("path") == path).drop("path")


def _first(survey: pl.DataFrame, rows: int) -> Survey:
    return Survey(survey.head(rows).to_dicts(), max(len(survey) - rows, 0))
