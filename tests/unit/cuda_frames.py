"""Adds CUDA calls and GPU activities to the tables of a trace, for tests of what reads them."""

from __future__ import annotations

from typing import Any

import polars as pl
from frames import FakeTrace, TraceBuilder

from tracer.trace.tables import schema

H200 = {
    "computeCapabilityMajor": 9,
    "computeCapabilityMinor": 0,
    "globalMemoryBandwidth": 4_800_000_000,
    "l2CacheSize": 50 << 20,
    "numThreadsPerWarp": 32,
    "coreClockRate": 1_980_000,
    "numMultiprocessors": 132,
    "maxWarpsPerMultiprocessor": 64,
    "maxBlocksPerMultiprocessor": 32,
    "maxSharedMemoryPerMultiprocessor": 233_472,
    "maxRegistersPerMultiprocessor": 65_536,
    "maxRegistersPerBlock": 65_536,
    "maxSharedMemoryPerBlock": 49_152,
    "maxThreadsPerBlock": 1024,
}


class CudaBuilder(TraceBuilder):
    """A TraceBuilder whose hops call CUDA. Ids of calls and activities are their row numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.api_rows: list[dict[str, Any]] = []
        self.library_rows: list[dict[str, Any]] = []
        self.activity_rows: list[dict[str, Any]] = []
        self.stack_rows: list[dict[str, Any]] = []
        self.device_facts: dict[str, int] = dict(H200)

    def stack(self, *frames: tuple[str, str]) -> int:
        """The id of a stack of (function, module), innermost first."""
        self.stack_rows.append(
            {
                "id": len(self.stack_rows),
                "frames": [
                    {"function": function, "module": module, "offset": 16, "file": None, "line": None}
                    for function, module in frames
                ],
            }
        )
        return len(self.stack_rows) - 1

    def api(self, name: str, role: str, start: int, end: int, hop: int | None = None, **more: Any) -> int:
        """An API call; what it does not say it has from its hop."""
        row = dict.fromkeys(schema.API_CALLS) | {
            "id": len(self.api_rows),
            "hop": hop,
            "process": 0,
            "thread": 100,
            "domain": "driver" if name.startswith("cu") and not name.startswith("cuda") else "runtime",
            "name": name,
            "role": role,
            "start_ns": start,
            "end_ns": end,
            "correlation": 1000 + len(self.api_rows),
            "result": 0,
            "captured": False,
            "open": False,
        }
        self.api_rows.append(row | self._of_hop(hop) | more)
        return len(self.api_rows) - 1

    def library(
        self, name: str, start: int, end: int, hop: int | None = None, arguments: str = "", **more: Any
    ) -> int:
        row = dict.fromkeys(schema.LIBRARY_CALLS) | {
            "id": len(self.library_rows),
            "hop": hop,
            "process": 0,
            "thread": 100,
            "library": "libcublas.so.13",
            "name": name,
            "start_ns": start,
            "end_ns": end,
            "arguments": arguments,
            "result": 0,
            "open": False,
        }
        self.library_rows.append(row | self._of_hop(hop) | more)
        return len(self.library_rows) - 1

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        api_call: int | None = None,
        grid: tuple[int, ...] = (1, 1, 1),
        block: tuple[int, ...] = (128, 1, 1),
        **more: Any,
    ) -> int:
        launch = {
            "grid": list(grid),
            "block": list(block),
            "registers": 32,
            "static_shared_bytes": 0,
            "dynamic_shared_bytes": 0,
        }
        return self.activity("kernel", name, start, end, api_call, **launch | more)

    def activity(
        self, kind: str, name: str, start: int, end: int, api_call: int | None = None, **more: Any
    ) -> int:
        row = dict.fromkeys(schema.GPU_ACTIVITIES) | {
            "id": len(self.activity_rows),
            "api_call": api_call,
            "process": 0,
            "kind": kind,
            "name": name,
            "device": 0,
            "context": 1,
            "stream": 7,
            "start_ns": start,
            "end_ns": end,
        }
        if api_call is not None:
            call = self.api_rows[api_call]
            row |= {name: call[name] for name in ("hop", "process", "step", "phase", "correlation")}
        self.activity_rows.append(row | more)
        return len(self.activity_rows) - 1

    def cuda_trace(self, **certificate: Any) -> FakeTrace:
        trace = self.trace(**certificate)
        trace.api_calls = _table(self.api_rows, schema.API_CALLS)
        trace.library_calls = _table(self.library_rows, schema.LIBRARY_CALLS)
        trace.gpu_activities = _table(self.activity_rows, schema.GPU_ACTIVITIES)
        trace.stacks = _table(self.stack_rows, schema.STACKS)
        trace.devices = pl.DataFrame(
            [{"process": 0, "device": 0, "name": "NVIDIA H200", **self.device_facts}]
        )
        return trace

    def _of_hop(self, hop: int | None) -> dict[str, Any]:
        if hop is None:
            return {}
        row = self.rows[hop]
        return {name: row[name] for name in ("process", "thread", "source", "step", "phase")}


def _table(rows: list[dict[str, Any]], kinds: dict[str, Any]) -> pl.DataFrame:
    strings = {name: pl.String if kind == pl.Categorical else kind for name, kind in kinds.items()}
    return pl.DataFrame(rows, schema=strings).cast(dict(kinds))
