"""What the CUDA surveys read of a trace."""

from __future__ import annotations

from typing import Protocol

import polars as pl


class CudaTables(Protocol):
    """The tables that hold CUDA calls and activities; tracer.trace.Trace is one."""

    @property
    def hops(self) -> pl.DataFrame: ...
    @property
    def signatures(self) -> pl.DataFrame: ...
    @property
    def api_calls(self) -> pl.DataFrame: ...
    @property
    def library_calls(self) -> pl.DataFrame: ...
    @property
    def gpu_activities(self) -> pl.DataFrame: ...
    @property
    def stacks(self) -> pl.DataFrame: ...
    @property
    def compiled_calls(self) -> pl.DataFrame: ...
    @property
    def compiled_kernels(self) -> pl.DataFrame: ...
    @property
    def devices(self) -> pl.DataFrame: ...


def has_cuda(trace: CudaTables) -> bool:
    return not (trace.api_calls.is_empty() and trace.gpu_activities.is_empty())
