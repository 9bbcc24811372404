"""A ledger in words and cells, for the terminal and for markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tracer.analysis.host_nodes import Layer
from tracer.analysis.ledger import Ledger, Row
from tracer.report.page import percent
from tracer.report.text import count, duration

TITLES = ["layer", "time:", "share:", "times:", "each:"]
_NAMES = {
    "python": "Python between ops",
    "bindings": "  parsing of arguments, call of the op",
    "border": "into and out of backward()",
    "engine": "autograd engine between ops",
    "key": "key {}",
    "composite": "composite ops at {}",
    "kernel": "kernel functions [{}]",
    "compiled": "compiled code",
    "library": "library calls",
    "api": "CUDA calls",
    "waiting": "CUDA calls that wait for the GPU",
    "tracer": "tracer's own cost (estimate)",
    "rest": "unexplained rest",
}
NOT_SEEN = "not seen"


def layer_name(layer: Layer) -> str:
    """`key AutogradCPU`, `Python between ops`; hops of a path are indented."""
    if layer.path:
        return "  " * (len(layer.path) - 1) + layer.name
    return _NAMES[layer.kind].format(layer.name)


def cells(found: Ledger) -> list[list[str]]:
    """A row for each layer, as TITLES has it, and the sum."""
    rows = [_cells(row, found.wall_ns) for row in found.rows]
    return [*rows, ["sum", duration(round(found.wall_ns)), "100.0 %", "", ""]]


def _cells(row: Row, wall_ns: float) -> list[str]:
    name = layer_name(row.layer)
    if row.ns is None:
        return [name, NOT_SEEN, "", "", ""]
    times = (
        ""
        if not row.times
        else f"{row.times:,.0f}"
        if row.times >= 10
        else f"{row.times:,.1f}".removesuffix(".0")
    )
    each = duration(round(row.ns / row.times)) if row.times else ""
    share = percent(row.ns / wall_ns).replace("-0.0", "0.0") if wall_ns else ""
    return [name, duration(round(row.ns)), share, times, each]


_FEWEST = 4
"""Steps that have a middle half"""


def heading(found: Ledger, of: str, steady: Sequence[int] | None) -> str:
    """`step 34, the median of 117 steady steps (half of them 6.1 to 7.2 ms): 6.7 ms, 7,878 hops`.

    `of`: the line or op, or ""; `steady`: wall times of the steps that it is the median of; None: the
    user chose the steps.
    """
    first, last = found.steps[0], found.steps[-1]
    if steady is not None:
        steps = f"step {first}{_median_of(sorted(steady))}"
    elif len(found.steps) > 1:
        steps = f"steps {first}-{last}, mean of {len(found.steps):,}"
    else:
        steps = f"step {first}"
    hops = f"{found.hops:,.0f} hop{'' if round(found.hops) == 1 else 's'}"
    return f"{f'{of} in ' if of else ''}{steps}: {duration(round(found.wall_ns))}, {hops}"


def _median_of(times: Sequence[int]) -> str:
    """`times` in order; the range of the middle half says how far steps differ."""
    if not times:
        return ""
    words = f", the median of {count(len(times), 'steady step')}"
    if len(times) < _FEWEST:
        return words
    edge = (len(times) - 1) // 4
    low, high = (duration(time) for time in (times[edge], times[-1 - edge]))
    return f"{words} (half of them {low} to {high})"


def below(found: Ledger, of: str) -> list[str]:
    """What to know of the figures, a sentence a line."""
    lines = []
    what = of or "the step"
    if found.bare_ns is not None:
        lines.append(f"Without tracer {what} would take {duration(round(found.bare_ns))} (estimate).")
    for why in found.unknown:
        lines.append(f"Time without tracer: not known; {why}.")
    if found.own is not None:
        outermost, inner = found.own.outermost.ns, found.own.inner.ns
        basis = f"{found.own.timed:,} events timed" if found.own.timed else "in a loop: a lower bound"
        lines.append(
            f"tracer costs {outermost:.0f} ns per outermost hop, {inner:.0f} ns per other hop ({basis})."
        )
    if any(row.layer.kind == "bindings" for row in found.rows):
        lines.append("The time in which Python's bindings parse arguments is part of Python between ops.")
    if any(row.layer.kind in ("kernel", "hop") for row in found.rows):
        lines.append("Kernel functions include the CPU libraries that they call (BLAS, oneDNN).")
    if found.other_threads_ns:
        elsewhere = duration(round(found.other_threads_ns))
        lines.append(f"{elsewhere} of it ran on other threads while the main thread waited.")
    if found.gpu is not None:
        gpu = found.gpu
        lines.append(
            f"GPU, at the same time: {gpu.activities:,.0f} kernels, copies and fills, "
            f"{duration(round(gpu.busy_ns))} of work, {duration(round(gpu.queueing_ns))} in queues."
        )
    return lines
