"""A trace with as many different ops as a test wants."""

from __future__ import annotations

from frames import FakeTrace, TraceBuilder, hop


def many_ops(number: int) -> FakeTrace:
    builder = TraceBuilder()
    for place in range(number):
        builder.calls(hop(f"aten::op{place}", "CPU", self_ns=1000 * (place + 1)), times=place + 1)
    return builder.trace()
