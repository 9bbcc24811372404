"""The clock of a recording."""

from __future__ import annotations

from tracer.trace.bytes import format as fmt


def ns_per_tick(header: fmt.FileHeader) -> tuple[float, bool]:
    """Nanoseconds per tick, and whether they are known."""
    if header.clock == fmt.MONOTONIC:
        return 1.0, True
    ticks = header.last_ticks - header.start_ticks
    elapsed = header.last_ns - header.start_ns
    if ticks <= 0 or elapsed <= 0 or not 1e-3 < elapsed / ticks < 1e3:
        return 1.0, False
    return elapsed / ticks, True
