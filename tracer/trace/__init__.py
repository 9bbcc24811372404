"""Reads trace files; knows no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracer.trace.bytes.trace_errors import TraceError
    from tracer.trace.tables.load import Trace, load

__all__ = ["Trace", "TraceError", "load"]


def __getattr__(name: str) -> Any:
    # Polars is imported by those who read a trace, not by those who record one.
    if name in ("Trace", "load"):
        from tracer.trace.tables import load

        return getattr(load, name)
    if name == "TraceError":
        from tracer.trace.bytes.trace_errors import TraceError

        return TraceError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
