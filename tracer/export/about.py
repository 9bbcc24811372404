"""Facts about the trace that an export contains."""

from __future__ import annotations

from typing import Any

from tracer.base.package import VERSION
from tracer.trace import Trace


def about(trace: Trace) -> dict[str, Any]:
    return {
        "written_by": f"tracer {VERSION}",
        "command": trace.environment.get("command"),
        "time_origin": time_origin(trace),
        "certificate": trace.certificate.get("verdict"),
    }


def time_origin(trace: Trace) -> str:
    started = trace.environment.get("started_at")
    return f"time 0 is the start of the recording{f', {started}' if started else ''}"
