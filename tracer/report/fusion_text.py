"""What `tracer diff` says of an eager and a compiled run: sentences, and cells of tables."""

from __future__ import annotations

from tracer.analysis.difference.fusion import Cost, FusedKernel, FusedLine, FusedModule, FusedOp, Fusion
from tracer.analysis.difference.times import Times
from tracer.report.text import count, duration, size

_TEXT = 44
_FRACTION = "A fraction of a call: more than one kernel computes it; each has a share of its time and bytes."
_BY_LINE = "By its line: no node of the kernel has the op's name."
_MOST_SLOWER = 3


def fusion_lines(found: Fusion) -> list[str]:
    """The answer in sentences: what kernels replaced, what compiled code still calls, what became slower."""
    unit = "of the whole run" if found.whole else "of a step"
    lines = [f"What fusing saved, {unit}, eager -> compiled ({_clock(found)}):"]
    if found.kernels:
        lines.append(f"kernels replace op calls: {_all(found.fused, 'kernel run')}")
        if found.bytes_unknown and found.fused.bytes[0] is not None:
            lines[-1] += f" (bytes without {count(found.bytes_unknown, 'kernel')} of unknown size)"
    if any(found.kept.calls):
        lines.append(f"ops that compiled code calls: {_all(found.kept, 'op call')}")
    if found.own:
        lines.append(f"calls of compiled code, without kernels and ops: {_time(found.own)} on the CPU")
    slower = found.slower
    if slower:
        named = ", ".join(place(line) for line in slower[:_MOST_SLOWER])
        more = len(slower) - _MOST_SLOWER
        lines.append(f"slower: {named}" + (f" and {count(more, 'more line')}" if more > 0 else ""))
    return lines + _unknown(found)


def _unknown(found: Fusion) -> list[str]:
    lines = []
    if found.unknown:
        lines.append(
            f"the ops of {count(found.unknown, 'kernel')} are unknown: a run without tracer compiled "
            "them; record once with an empty TORCHINDUCTOR_CACHE_DIR"
        )
    if found.hidden:
        lines.append(
            f"the kernels of {count(found.hidden, 'call')} of compiled code are not recorded "
            "(compiled_calls.hidden says why)"
        )
    return lines


def _clock(found: Fusion) -> str:
    return "times of the GPU" if found.on_gpu else "times of the CPU"


def _all(cost: Cost, noun: str) -> str:
    parts = [calls(cost, noun), launches(cost), moved(cost), compared(cost.times)]
    return "; ".join(part for part in parts if part)


def calls(cost: Cost, noun: str = "run") -> str:
    """`48 op calls -> 27 runs (21 saved)`."""
    return f"{_counted(cost.calls[0], 'op call')} -> {_counted(cost.calls[1], noun)}{_saved(cost.calls)}"


def launches(cost: Cost) -> str:
    """`120 GPU kernels -> 27`; nothing without a GPU."""
    if cost.launches is None:
        return ""
    before, after = cost.launches
    return f"{_counted(before, 'GPU kernel')} -> {_number(after)}{_saved(cost.launches)}"


def moved(cost: Cost) -> str:
    """`12.0 MiB -> 4.0 MiB`; nothing if neither side is known."""
    if cost.bytes == (None, None):
        return ""
    one, other = ("unknown" if side is None else size(side) for side in cost.bytes)
    return f"{one} -> {other}"


def compared(times: Times) -> str:
    """`3.4 ms -> 1.2 ms: 0.35 x (0.30 to 0.41), faster`; without an interval if there are too few steps."""
    words = f"{_time(times.before)} -> {_time(times.after)}"
    if times.ratio is not None:
        ratio = times.ratio
        return f"{words}: {ratio.value:.2f} x ({ratio.low:.2f} to {ratio.high:.2f}), {ratio.verdict}"
    return (
        f"{words}: {times.after / times.before:.2f} x" if times.before and times.after is not None else words
    )


def place(line: FusedLine) -> str:
    return f"{line.line} (backward)" if line.backward else line.line


def kernel_name(kernel: FusedKernel) -> str:
    return f"{kernel.name} (backward)" if kernel.backward else kernel.name


def kernel_costs(kernel: FusedKernel) -> str:
    """What it replaced and what that saved, on one line."""
    if not kernel.ops:
        why = "no op call of the eager run" if kernel.known else "unknown op calls"
        return f"{why} -> {_counted(kernel.cost.calls[1], 'run')}, {_time(kernel.cost.times.after)}"
    return _all(kernel.cost, "run")


OP_TITLES = ["line", "op", "calls:", "text"]


def op_cells(op: FusedOp) -> list[str]:
    """Rows of the table with OP_TITLES; a mark behind the op refers to `notes`."""
    return [op.line, f"{op.op} (by its line)" if op.by_line else op.op, _number(op.calls), _cut(op.text)]


def notes(kernels: list[FusedKernel]) -> list[str]:
    """What of the cells of these kernels' ops needs words."""
    ops = [op for kernel in kernels for op in kernel.ops]
    shared = any(abs(op.calls - round(op.calls)) > 0.005 for op in ops)
    return [_FRACTION] * shared + [_BY_LINE] * any(op.by_line for op in ops)


LINE_TITLES = ["line", "kernels:", "eager:", "compiled:", "ratio (95 %):", "verdict:", "text"]
LINES_SAID = (
    "All ops of a line; calls of compiled code are not in it. The time of a kernel of several lines is "
    "split by the times of their ops in the eager run."
)


def line_cells(line: FusedLine) -> list[str]:
    """Rows of the table with LINE_TITLES."""
    return [place(line), f"{len(line.kernels):,}", *_both(line.times), _cut(line.text)]


def _saved(numbers: tuple[float, float]) -> str:
    saved = numbers[0] - numbers[1]
    return f" ({_number(saved)} saved)" if saved > 0.005 else ""


MODULE_TITLES = ["module", "eager:", "compiled:", "ratio (95 %):", "verdict:"]
MODULES_SAID = (
    "Op calls that compiled code replaced or makes, by nn.Module, with those within it. The time of a kernel "
    "of several modules is split by the times of their ops in the eager run."
)


def module_cells(module: FusedModule) -> list[str]:
    """Rows of the table with MODULE_TITLES."""
    return [module.name, *_both(module.times)]


def _both(times: Times) -> list[str]:
    """Cells of both sides, the ratio with its interval, and the verdict."""
    ratio = times.ratio
    cells = [_time(times.before, ""), _time(times.after, "")]
    if ratio is None:
        return [*cells, "", ""]
    return [*cells, f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})", ratio.verdict]


def _time(ns: float | None, nothing: str = "nothing") -> str:
    return nothing if ns is None else duration(round(ns))


def _number(number: float) -> str:
    return f"{round(number):,}" if abs(number - round(number)) <= 0.005 else f"{number:,.2f}"


def _counted(number: float, noun: str) -> str:
    shown = _number(number)
    return f"{shown} {noun}{'' if shown == '1' else 's'}"


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."
