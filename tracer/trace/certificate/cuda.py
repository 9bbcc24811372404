"""Whether each recorded launch has its kernel and each kernel its launch, and what caused the kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from tracer.trace.certificate.counts import count_in, in_words
from tracer.trace.names.roles import is_graph_launch

# What a process says of its CUDA part, the most telling first.
_STATES = ("recorded", "failed", "held", "no driver", "not built", "off", "not used")
_NOT_CAPTURED = ("failed", "held")
_COUNTED_ANEW = ("dropped_activities", "graph_kernels")
_ACTIVITIES = ("kernels", "memcpys", "memsets")
_SUMS = ("buffers", "buffer_bytes", "stacks_not_taken")

QUERIES_OF_TORCH = "cudaGetDevice and cudaGetLastError only where PyTorch calls them (--queries torch)"


@dataclass
class CudaTables:
    """The tables that the certificate counts."""

    api_calls: pl.DataFrame
    library_calls: pl.DataFrame
    gpu_activities: pl.DataFrame
    callers: list[str | None]
    """For each stack, the function that called the API"""
    lost_exits: int = 0
    unmatched_exits: int = 0


@dataclass
class CudaFindings:
    counts: dict[str, Any]
    dropped: list[str] = field(default_factory=list)
    """What the tables lack, one clause each"""
    remarks: list[str] = field(default_factory=list)


def count_cuda(
    stated: dict[int, dict[str, Any]], tables: CudaTables, *, overwritten: tuple[int, int] = (0, 0)
) -> CudaFindings | None:
    """Compares the tables with each other and with what the processes counted.

    `stated`: for each process that stopped in order the "cuda" of its certificate; {} if it has none.
    `overwritten`: the calls and the activities that are no longer in the file, since a ring keeps the newest.
    None if no process looked at CUDA and nothing of it was recorded.
    """
    said = {process: document for process, document in stated.items() if document}
    tables_empty = not (len(tables.api_calls) + len(tables.library_calls) + len(tables.gpu_activities))
    if not said and tables_empty:
        return None
    calls = _Calls(tables.api_calls)
    kernels = tables.gpu_activities.filter(pl.col("kind") == "kernel")
    launched = calls.outermost_of(kernels["api_call"].drop_nulls().to_numpy())
    without = np.flatnonzero(calls.launches & ~np.isin(np.arange(len(calls.launches)), launched))
    joined = kernels["api_call"].is_not_null() | kernels["captured_by"].is_not_null()
    in_hop, replayed = kernels["hop"].is_not_null(), kernels["captured_by"].is_not_null()
    outside = kernels.filter(joined & ~in_hop)
    counts = _of_the_processes(said)
    counts.update(
        api_calls=len(tables.api_calls),
        library_calls=len(tables.library_calls),
        launches=int(calls.launches.sum()),
        graph_launches=int(calls.graph_launches.sum()),
        kernels=len(kernels),
        kernels_joined_to_a_call=int(joined.sum()),
        in_a_hop=int((in_hop & ~replayed).sum()),
        captured_in_a_hop=int((in_hop & replayed).sum()),
        outside_ops=len(outside),
        outside_ops_by=_causes(outside, tables),
        unjoined=int((~joined).sum()),
        launches_without_kernel=len(without),
        memcpys=int((tables.gpu_activities["kind"] == "memcpy").sum()),
        memsets=int((tables.gpu_activities["kind"] == "memset").sum()),
        dropped=sum(count_in(document, "dropped_activities") for document in said.values()),
    )
    dropped = [
        *_not_recorded(said),
        *_losses(counts, tables),
    ]
    if any(overwritten):
        dropped += _activities_in_all(said, tables, overwritten[1])
    else:
        dropped += _without_kernel(tables.api_calls["process"].to_numpy()[without], stated)
        dropped += _unjoined(counts)
        dropped += _differences(said, tables, calls)
    counts["reconciles"] = not dropped
    remarks = []
    if counts.get("stacks_not_taken"):
        remarks.append(f"{in_words(counts['stacks_not_taken'], 'native stack')} not taken (no memory)")
    if any(document.get("queries") == "torch" for document in said.values()):
        remarks.append(QUERIES_OF_TORCH)
    return CudaFindings(counts, dropped, remarks)


class _Calls:
    """Which API calls launched kernels and graphs that ran."""

    def __init__(self, api_calls: pl.DataFrame) -> None:
        names = api_calls["name"].unique().drop_nulls().cast(pl.String).to_list()
        ran = (api_calls["result"] == 0).fill_null(False) & ~api_calls["captured"]
        is_launch = (api_calls["role"] == "launch").fill_null(False)
        is_graph = api_calls["name"].is_in([name for name in names if is_graph_launch(name)]).fill_null(False)
        self._parent = api_calls["parent"].cast(pl.Int64).fill_null(-1).to_numpy()
        self._is_launch = is_launch.to_numpy()
        self.nested_launches = (ran & is_launch).to_numpy()
        """Also the driver launches inside a runtime launch"""
        self.launches = self.nested_launches & ~self._within(self._is_launch)
        self.graph_launches = (ran & is_graph).to_numpy() & ~self._within(is_graph.to_numpy())

    def outermost_of(self, calls: np.ndarray) -> np.ndarray:
        """The outermost launching call of each call: itself, or the one around it."""
        calls = calls.astype(np.int64)
        inner = self._within(self._is_launch)
        while len(nested := np.flatnonzero(inner[calls])):
            calls[nested] = self._parent[calls[nested]]
        return calls

    def _within(self, wanted: np.ndarray) -> np.ndarray:
        """Whether the call around each is among `wanted`."""
        if not len(wanted):
            return wanted
        within: np.ndarray = (self._parent >= 0) & wanted[self._parent]
        return within


def _of_the_processes(said: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The document of the first process that recorded CUDA, with sums over all processes."""
    if not said:
        return {"state": "recorded", "why": ""}
    documents = sorted(
        said.values(),
        key=lambda document: [*_STATES, document.get("state")].index(document.get("state")),
    )
    merged = {name: value for name, value in documents[0].items() if name not in _COUNTED_ANEW}
    for name in _SUMS:
        if any(name in document for document in documents):
            merged[name] = sum(count_in(document, name) for document in documents)
    return merged


def _causes(kernels: pl.DataFrame, tables: CudaTables) -> list[dict[str, Any]]:
    """What launched kernels: the library function, else the caller of the API, else the API function."""
    if not len(kernels):
        return []
    calls = kernels.select(pl.coalesce("captured_by", "api_call")).to_series()
    columns = ["library_call", "library", "stack", "name"]
    counted = tables.api_calls.select(columns)[calls].group_by(columns).len()
    causes: dict[str, int] = {}
    for library_call, library, stack, name, count in counted.iter_rows():
        caller = tables.callers[stack] if stack is not None else None
        if library_call:
            what = f"{library_call} ({library})" if library else library_call
        else:
            what = caller or name or "unknown"
        causes[what] = causes.get(what, 0) + count
    ordered = sorted(causes.items(), key=lambda cause: (-cause[1], cause[0]))
    return [{"what": what, "count": count} for what, count in ordered]


def _not_recorded(said: dict[int, dict[str, Any]]) -> list[str]:
    return [
        f"CUDA of process {process} was not recorded ({document.get('why') or document['state']})"
        for process, document in said.items()
        if document.get("state") in _NOT_CAPTURED
    ]


def _without_kernel(processes: np.ndarray, stated: dict[int, dict[str, Any]]) -> list[str]:
    """`processes`: of each launch that has no kernel."""
    stopped = int(np.isin(processes, list(stated)).sum())
    killed = len(processes) - stopped
    lines = []
    if killed:
        lines.append(f"{_launches(killed)} whose kernels had not arrived when the process was killed")
    if stopped:
        lines.append(f"{_launches(stopped)} without a kernel")
    return lines


def _unjoined(counts: dict[str, Any]) -> list[str]:
    if not counts["unjoined"]:
        return []
    why = " (driver calls were not recorded)" if counts.get("driver_calls") == "none" else ""
    return [f"{in_words(counts['unjoined'], 'kernel')} without a recorded call{why}"]


def _losses(counts: dict[str, Any], tables: CudaTables) -> list[str]:
    lines = []
    if counts["dropped"]:
        lines.append(f"{in_words(counts['dropped'], 'GPU activity', 'GPU activities')} dropped")
    if tables.lost_exits:
        lines.append(f"{in_words(tables.lost_exits, 'API or library call')} without a recorded exit")
    if tables.unmatched_exits:
        lines.append(f"{in_words(tables.unmatched_exits, 'exit')} of calls without a recorded enter")
    unknown = tables.api_calls["name"].null_count() + tables.library_calls["name"].null_count()
    if unknown:
        lines.append(f"{in_words(unknown, 'API or library call')} of an unknown function")
    return lines


def _differences(said: dict[int, dict[str, Any]], tables: CudaTables, calls: _Calls) -> list[str]:
    """Where the counts of a process differ from the file."""
    lines = []
    api, activities = tables.api_calls, tables.gpu_activities
    for process, document in said.items():
        mine = (api["process"] == process).to_numpy()
        kinds = activities.filter(pl.col("process") == process)["kind"].cast(pl.String).value_counts()
        by_kind = dict(kinds.iter_rows())
        nested = int((calls.nested_launches & mine).sum())
        found = {
            "api_calls": ("API call", {int((mine & api["result"].is_not_null().to_numpy()).sum())}),
            # A recorder may count the driver's launches within those of the runtime.
            "launches": ("launch", {int((calls.launches & mine).sum()), nested}),
            "kernels": ("kernel", {by_kind.get("kernel", 0)}),
            "memcpys": ("memcpy", {by_kind.get("memcpy", 0)}),
            "memsets": ("memset", {by_kind.get("memset", 0)}),
        }
        for name, (noun, counted) in found.items():
            if isinstance(document.get(name), int) and document[name] not in counted:
                plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
                said_so = f"process {process} counted {in_words(document[name], noun, plural)}"
                lines.append(f"{said_so}, but the file has {max(counted):,}")
    return lines


def _activities_in_all(said: dict[int, dict[str, Any]], tables: CudaTables, overwritten: int) -> list[str]:
    """Where the activities in a ring, with the overwritten ones, differ from the processes' counts."""
    kept = tables.gpu_activities
    if kept.filter(~pl.col("process").is_in(list(said))).height:
        return []  # a process ended before it wrote its counts
    counted = sum(count_in(document, name) for document in said.values() for name in _ACTIVITIES)
    if counted == len(kept) + overwritten:
        return []
    noun = "GPU activity", "GPU activities"
    return [
        f"{in_words(counted, *noun)} counted, but the file has {len(kept):,} and {overwritten:,} overwritten"
    ]


def _launches(count: int) -> str:
    return in_words(count, "launch", "launches")
