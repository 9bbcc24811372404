"""When the GPU did nothing, and what the host did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.device_kernels import short_device_kernel, table_name
from tracer.analysis.idle import Gap, Idleness, idleness
from tracer.report.cells import code, prose, table, wrapped
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading, with_cuda
from tracer.report.text import count, duration, shorten_kernel, steady_steps

title = "Idle GPU"
level = 3
wanted = with_cuda

_NAME = 40
_LEAST_SHARE = 0.05


@dataclass(frozen=True)
class Idle:
    """One for each device of each process."""

    devices: list[Idleness]


def data(reading: Reading) -> Idle:
    return Idle(idleness(reading.trace))


def markdown(data: Idle, page: Page) -> str:
    return "\n\n".join(_device(one, len(data.devices) > 1, page) for one in data.devices)


def _device(one: Idleness, several: bool, page: Page) -> str:
    where = f"Device {one.device} of process {one.process}: " if several else ""
    over = f"the time from the first activity to the last ({duration(one.window_ns)})"
    if one.steady:
        over = f"the {duration(one.window_ns)} of {steady_steps(one.steps)}"
    text = wrapped(
        f"{where}{'nothing' if several else 'Nothing'} ran in {100 * one.idle_share:.1f} % of {over}: "
        f"{_gaps(one.long_gaps, 'long', one.long_gaps_ns)} and "
        f"{_gaps(one.short_gaps, 'shorter', one.short_gaps_ns, each=True)}. "
        f"A gap is long from {duration(one.long_ns)}: 1 % of that time, and 10 us at least."
    )
    if not one.gaps:
        return text
    cells = [
        [
            duration(gap.start_ns),
            duration(gap.duration_ns),
            _meanwhile(gap, page),
            _kernel(gap.after),
            _kernel(gap.before),
        ]
        for gap in one.gaps
    ]
    return paragraphs(text, table(["at:", "for:", "the host meanwhile", "after", "before"], cells))


def _meanwhile(gap: Gap, page: Page) -> str:
    words = [
        f"{100 * row['share']:.0f} % {code(row['what'])}"
        + (f" ({prose(page.sources.name(row['source']))})" if row["source"] else "")
        for row in gap.host[:2]
        if row["share"] >= _LEAST_SHARE
    ]
    words += [
        f"of that {100 * row['share']:.0f} % in {code(row['what'])}"
        for row in gap.calls[:1]
        if row["share"] >= _LEAST_SHARE
    ]
    if gap.outside_share >= _LEAST_SHARE:
        words.append(f"{100 * gap.outside_share:.0f} % outside ops (Python)")
    return ", ".join(words)


def _gaps(number: int, kind: str, ns: int, *, each: bool = False) -> str:
    """`3 long gaps (1.2 ms)`, `no long gap`"""
    if not number:
        return f"no {kind} gap"
    mean = f", {duration(ns // number)} each" if each else ""
    return f"{count(number, f'{kind} gap')} ({duration(ns)}{mean})"


def _kernel(name: str) -> str:
    if name.startswith("the window"):
        return name.replace("the window's ", "the ")
    return code(shorten_kernel(table_name(short_device_kernel(name)), _NAME))
