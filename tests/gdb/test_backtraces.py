"""Backtraces that share frames with the one before are those that gdb itself unwinds."""

from __future__ import annotations

import pytest
from debugging import debug
from launching import Launcher

pytestmark = pytest.mark.gdb

PROGRAM = """
import torch
gru = torch.nn.GRU(4, 5, num_layers=2)
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return deep(3, lambda: 2 * x * gradient)
def deep(n, f):
    return f() if n == 0 else deep(n - 1, f)
x = torch.randn(3, 2, 4, requires_grad=True)
for n in range(3):
    deep(n, lambda: Square.apply(x).sum()).backward()
sorted([x[0], x[1]], key=lambda t: (t * t).sum().item())
gru(x)[0].sum().backward()
"""
SESSION = """
from tracer.trace.names.kernels import short_kernel_name
def walk(gdb):
    gdb.command = ["script.py"]
    for op in ("mul.Tensor", "sum", "mm", "cat", "t"):
        gdb.stop_at("aten::" + op, halt=True, limit=CALLS)
    stops = 0
    stop = gdb.go()
    while stop is not None:
        own = gdb.session.mi.command("-stack-list-frames 0 LAST")["stack"]
        read = [frame["function"] for frame in stop["frames"]]
        if len(own) != len(read):
            gdb.note(f"stop {stop['stop']}: {len(own)} and {len(read)} frames")
        for frame, name in zip(own, stop["frames"]):
            if short_kernel_name(frame.get("func", "").replace("??", "")) != name["function"]:
                gdb.note(f"stop {stop['stop']}: {frame.get('func')} and {name['function']}")
        stops += 1
        stop = gdb.go()
    gdb.note(f"compared {stops} stops")
"""


@pytest.mark.parametrize(("limit", "calls", "most"), [(64, 15, 60), (25, 4, 30)])
def test_shared_frames_are_the_right_ones(launcher: Launcher, limit: int, calls: int, most: int) -> None:
    """All of them, and where a limit cuts them off: that does not need as many stops."""
    launcher.write(PROGRAM)
    session = SESSION.replace("LAST", str(limit - 1)).replace("CALLS", str(calls))
    launcher.write(session, "compare.py")
    found = debug(launcher, "--session", "compare.py", "--backtrace", str(limit))
    assert found.run.status == 0, found.run.err
    notes = [line for line in found.run.err.splitlines() if line.startswith("tracer: stop ")]
    assert notes == []
    compared = next(line for line in found.run.err.splitlines() if "compared" in line)
    assert int(compared.split()[2]) > most, compared
    lengths = {len(stop["frames"]) for stop in found.stops}
    assert len(lengths) > 1
    assert max(lengths) == limit if limit == 25 else max(lengths) < limit
