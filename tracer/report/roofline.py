"""The roofline of a GPU's kernels: operations a second against operations a byte, both logarithmic."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10, sqrt

from tracer.analysis.device_kernels import table_name
from tracer.analysis.kernel_survey import LEAST, SHORTEST, KernelRow
from tracer.analysis.limits import Limits
from tracer.base.visible import LONGEST, visible
from tracer.report.kernel_tables import KernelTables
from tracer.report.text import amount, count, duration

WIDTH, HEIGHT = 920, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 150, 16, 48
_LEAST_RADIUS, _MOST_RADIUS = 3.0, 14.0


@dataclass(frozen=True)
class Point:
    """A kernel. Places are pixels; `name` is that of the nodes of the page's tree."""

    x: float
    y: float
    radius: float
    bound: str
    name: str
    text: str


@dataclass(frozen=True)
class Roof:
    """A line from (x1, y1) to (x2, y2)."""

    x1: float
    y1: float
    x2: float
    y2: float
    text: str


@dataclass(frozen=True)
class Tick:
    place: float
    text: str


@dataclass(frozen=True)
class Roofline:
    device: str
    points: list[Point]
    roofs: list[Roof]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    note: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def rooflines(tables: KernelTables) -> list[Roofline]:
    """One for each device with kernels whose bytes and operations are known."""
    drawn = []
    for device, limits in tables.survey.limits.items():
        rows = [row for row in tables.survey.rows if row.device == device]
        known = [row for row in rows if _has_work(row)]
        if known:
            drawn.append(_roofline(limits, known, len(rows) - len(known)))
    return drawn


def _has_work(row: KernelRow) -> bool:
    return bool(row.work and row.work.bytes and row.work.flops and row.of_ns)


def _roofline(limits: Limits, rows: list[KernelRow], others: int) -> Roofline:
    places = [_place(row) for row in rows]
    peaks = {unit: peak for unit, peak in limits.flops_per_s.items() if unit in _units(rows)}
    peaks = peaks or limits.flops_per_s
    ridges = [peak / limits.bytes_per_s for peak in peaks.values() if limits.bytes_per_s]
    x_low, x_high = _decades([x for x, _ in places] + ridges)
    y_low, y_high = _decades([y for _, y in places] + list(peaks.values()))
    x_of = _Axis(x_low, x_high, _LEFT, WIDTH - _RIGHT)
    y_of = _Axis(y_low, y_high, HEIGHT - _BOTTOM, _TOP)
    longest = max(row.total_ns for row in rows) or 1
    points = [
        Point(
            x=x_of(x),
            y=y_of(y),
            radius=max(_LEAST_RADIUS, _MOST_RADIUS * sqrt(row.total_ns / longest)),
            bound=_bound(row),
            name=visible(row.kernel, LONGEST),
            text=_text(row, x, y),
        )
        for row, (x, y) in sorted(zip(rows, places, strict=True), key=lambda one: -one[0].total_ns)
    ]
    said = "Size: GPU time. A kernel below its roof has room; the names are in the table of kernels."
    more = f" {count(others, 'row')} of the kernel table with unknown or no FLOP not drawn." if others else ""
    return Roofline(
        device=visible(limits.name, 200),
        points=points,
        roofs=_roofs(limits.bytes_per_s, peaks, x_of, y_of),
        x_ticks=[Tick(x_of(10.0**power), amount(10.0**power, "")) for power in range(x_low, x_high + 1)],
        y_ticks=[
            Tick(y_of(10.0**power), amount(10.0**power, "FLOP/s")) for power in range(y_low, y_high + 1)
        ],
        note=said + more,
    )


def _place(row: KernelRow) -> tuple[float, float]:
    """FLOP a byte and FLOP/s of a call of the kernel's op, for which _has_work."""
    assert row.work is not None
    assert row.work.bytes
    assert row.work.flops
    assert row.of_ns
    return row.work.flops / row.work.bytes, row.work.flops / (row.of_ns * 1e-9)


def _bound(row: KernelRow) -> str:
    by = row.limit.by if row.limit else ""
    return {"bytes": "memory", SHORTEST: "floor", LEAST: "floor"}.get(by, "compute")


def _units(rows: list[KernelRow]) -> set[str]:
    return {row.limit.by for row in rows if row.limit}


def _text(row: KernelRow, x: float, y: float) -> str:
    words = [
        visible(table_name(row.kernel), 120),
        f"op {visible(row.op or 'unknown', 120)}",
        f"{amount(y, 'FLOP/s')} at {amount(x, 'FLOP/B')}",
        f"{duration(row.total_ns)} in {count(row.calls, 'call')}",
    ]
    if row.headroom is not None:
        words.append(f"head-room {100 * row.headroom:.0f} %")
    return "\n".join(words)


@dataclass(frozen=True)
class _Axis:
    """From powers of ten to pixels."""

    low: int
    high: int
    first: float
    last: float

    def __call__(self, value: float) -> float:
        share = (log10(value) - self.low) / (self.high - self.low)
        return round(self.first + share * (self.last - self.first), 1)


def _decades(values: list[float]) -> tuple[int, int]:
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return low, max(high, low + 1)


def _roofs(bandwidth: float, peaks: dict[str, float], x_of: _Axis, y_of: _Axis) -> list[Roof]:
    """The slope of the memory's bandwidth up to the highest peak, and a flat roof for each unit."""
    roofs = []
    left, right = 10.0**x_of.low, 10.0**x_of.high
    if bandwidth:
        start = max(left, 10.0**y_of.low / bandwidth)
        end = min(right, max(peaks.values(), default=10.0**y_of.high) / bandwidth)
        if start < end:
            name = amount(bandwidth, "B/s")
            roofs.append(Roof(x_of(start), y_of(start * bandwidth), x_of(end), y_of(end * bandwidth), name))
    for unit, peak in peaks.items():
        start = min(max(left, peak / bandwidth), right) if bandwidth else left
        roofs.append(
            Roof(x_of(start), y_of(peak), x_of(right), y_of(peak), f"{unit} {amount(peak, 'FLOP/s')}")
        )
    return roofs
