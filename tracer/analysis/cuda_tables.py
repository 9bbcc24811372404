"""What the CUDA surveys read of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.trace import Trace


def has_cuda(trace: Trace) -> bool:
    return not (trace.api_calls.is_empty() and trace.gpu_activities.is_empty())
