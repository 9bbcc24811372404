"""The roofline of a GPU's kernels: operations a second against operations a byte, both logarithmic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import atan2, ceil, degrees, floor, log10, sqrt

from tracer.analysis.device_kernels import table_name
from tracer.analysis.kernel_survey import LEAST, SHORTEST, KernelRow
from tracer.analysis.limits import Limits
from tracer.base.visible import LONGEST, visible
from tracer.report.kernel_tables import KernelTables
from tracer.report.text import amount, count, duration

WIDTH, HEIGHT = 920, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 166, 30, 48
_LEAST_RADIUS, _MOST_RADIUS = 3.0, 14.0
_MARGIN = 0.2  # decades around what is drawn
_MOST_NAMES, _LONGEST_NAME = 14, 26
_LETTER, _LINE = 7.0, 13.0  # pixels, of the widest fonts of 11 px
_NEAR, _FARTHER = 4.0, (18.0, 34.0, 52.0, 74.0, 100.0)  # pixels from the circle to its name


Line = tuple[float, float, float, float]
"""x1, y1, x2, y2"""


@dataclass(frozen=True)
class Point:
    """A kernel. Places are pixels; `name` is that of the nodes of the page's tree, `short` is for a label."""

    x: float
    y: float
    radius: float
    bound: str
    name: str
    short: str
    text: str


@dataclass(frozen=True)
class Roof:
    """A line from (x1, y1) to (x2, y2), and where its text begins, `turn` degrees down.

    `used`: a kernel computes on its unit.
    """

    x1: float
    y1: float
    x2: float
    y2: float
    text: str
    text_x: float
    text_y: float
    turn: float = 0.0
    used: bool = True


@dataclass(frozen=True)
class Label:
    """A point's name. No two overlap; a point without room has none. `far`: a line leads to the point.

    `anchor`: what of the text is at (x, y): its `start`, `middle` or `end`.
    """

    x: float
    y: float
    text: str
    anchor: str
    point: Point
    far: bool

    @property
    def width(self) -> float:
        return _LETTER * len(self.text)

    @property
    def left(self) -> float:
        return self.x - self.width * {"start": 0, "middle": 0.5, "end": 1}[self.anchor]

    @property
    def leader(self) -> Line:
        """From the point to the nearest side of the text."""
        up = {"middle": _LINE * 0.8 if self.y > self.point.y else -_LINE * 0.3}.get(self.anchor, 4.0)
        return self.point.x, self.point.y, self.x, round(self.y - up, 1)

    def overlaps(self, other: Label) -> bool:
        beside = self.left >= other.left + other.width or other.left >= self.left + self.width
        return not beside and abs(self.y - other.y) < _LINE


@dataclass(frozen=True)
class Tick:
    place: float
    text: str


@dataclass(frozen=True)
class Roofline:
    device: str
    points: list[Point]
    labels: list[Label]
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
    peaks = _peaks(limits)
    ridges = [peak / limits.bytes_per_s for peak in peaks.values() if limits.bytes_per_s]
    x_of = _Axis.around([*(x for x, _ in places), *ridges], _LEFT, WIDTH - _RIGHT)
    y_of = _Axis.around([*(y for _, y in places), *peaks.values()], HEIGHT - _BOTTOM, _TOP)
    longest = max(row.total_ns for row in rows) or 1
    points = [
        Point(
            x=x_of(x),
            y=y_of(y),
            radius=max(_LEAST_RADIUS, _MOST_RADIUS * sqrt(row.total_ns / longest)),
            bound=_bound(row),
            name=visible(row.kernel, LONGEST),
            short=_short(row.kernel),
            text=_text(row, x, y),
        )
        for row, (x, y) in sorted(zip(rows, places, strict=True), key=lambda one: -one[0].total_ns)
    ]
    said = "Size: GPU time. A kernel below its roof has room. Kernels without a name here: point at them."
    more = f" {count(others, 'row')} of the kernel table with unknown or no FLOP not drawn." if others else ""
    roofs = _roofs(limits.bytes_per_s, peaks, _units(rows), x_of, y_of)
    return Roofline(
        device=visible(limits.name, 200),
        points=points,
        labels=_labels(points, roofs),
        roofs=roofs,
        x_ticks=x_of.ticks(),
        y_ticks=y_of.ticks(),
        note=said + more,
    )


def _peaks(limits: Limits) -> dict[str, float]:
    """FLOP/s by unit; one for all if they are one that the user measured."""
    peaks = limits.flops_per_s
    if limits.measured and len(set(peaks.values())) == 1:
        return {"measured": next(iter(peaks.values()))}
    return peaks


def _short(kernel: str) -> str:
    """`sm90_xmma_dgrad` of `sm90_xmma_dgrad tf32 nhwc 128x64x32 segment-k off`."""
    name = visible(re.split(r"[ <(]", table_name(kernel))[0] or kernel, 120)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\u2026"


def _labels(points: list[Point], roofs: list[Roof]) -> list[Label]:
    """The names of the points with the most time, each name once, where they cover no other and no roof."""
    kept: list[Label] = []
    lines = [(roof.x1, roof.y1, roof.x2, roof.y2) for roof in roofs]
    for point in points:
        if point.short in {label.text for label in kept}:
            continue
        free = (label for label in _around(point) if _has_room(label, points, kept, lines))
        if label := next(free, None):
            kept.append(label)
        if len(kept) == _MOST_NAMES:
            break
    return kept


def _around(point: Point) -> Iterator[Label]:
    """Where the name of a point may be: right of it, left, below, above; then farther away."""
    for distance in (_NEAR, *_FARTHER):
        away = point.radius + distance
        below, above = point.y + away + _LINE * 0.7, point.y - away
        for x, y, anchor in (
            (point.x + away, point.y + 4, "start"),
            (point.x - away, point.y + 4, "end"),
            (point.x, below, "middle"),
            (point.x, above, "middle"),
            (point.x + away, below, "start"),
            (point.x - away, below, "end"),
            (point.x - away, above, "end"),
        ):
            yield Label(round(x, 1), round(y, 1), point.short, anchor, point, distance > _NEAR)


def _has_room(label: Label, points: list[Point], labels: list[Label], roofs: list[Line]) -> bool:
    inside = label.left > _LEFT and label.left + label.width < WIDTH - _RIGHT
    return (
        inside
        and _TOP + _LINE < label.y < HEIGHT - _BOTTOM
        and not any(label.overlaps(other) for other in labels)
        and not any(_covers(label, point) for point in points)
        and not any(_crosses(label, line) for line in [*roofs, *(other.leader for other in labels)])
        and not any(_crosses(other, label.leader) for other in labels)
    )


def _covers(label: Label, point: Point) -> bool:
    """Whether the text and the circle overlap."""
    x = min(max(point.x, label.left), label.left + label.width)
    y = min(max(point.y, label.y - _LINE * 0.75), label.y + _LINE * 0.2)
    return (point.x - x) ** 2 + (point.y - y) ** 2 < point.radius**2


def _crosses(label: Label, line: Line) -> bool:
    """Whether the line passes through the text."""
    (x1, y1), (x2, y2) = sorted([line[:2], line[2:]])
    left, right = max(label.left, x1), min(label.left + label.width, x2)
    if left > right:
        return False
    steep = (y2 - y1) / (x2 - x1) if x2 > x1 else 0.0
    heights = [y1 + steep * (x - x1) for x in (left, right)] if x2 > x1 else [y1, y2]
    return min(heights) < label.y + _LINE * 0.2 and max(heights) > label.y - _LINE * 0.75


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
    """From numbers between two powers of ten, which need not be whole, to pixels."""

    low: float
    high: float
    first: float
    last: float

    @classmethod
    def around(cls, values: list[float], first: float, last: float) -> _Axis:
        """With a margin, and at least one whole power of ten."""
        low, high = log10(min(values)) - _MARGIN, log10(max(values)) + _MARGIN
        return cls(low, max(high, ceil(low) + _MARGIN), first, last)

    def __call__(self, value: float) -> float:
        share = (log10(value) - self.low) / (self.high - self.low)
        return round(self.first + share * (self.last - self.first), 1)

    def ticks(self) -> list[Tick]:
        powers = range(ceil(self.low), floor(self.high) + 1)
        return [Tick(self(10.0**power), amount(10.0**power, "").strip()) for power in powers]


def _roofs(bandwidth: float, peaks: dict[str, float], used: set[str], x_of: _Axis, y_of: _Axis) -> list[Roof]:
    """The slope of the memory's bandwidth up to the highest peak, and a flat roof for each unit."""
    roofs = []
    left, right = 10.0**x_of.low, 10.0**x_of.high
    if bandwidth:
        start = max(left, 10.0**y_of.low / bandwidth)
        end = min(right, max(peaks.values(), default=10.0**y_of.high) / bandwidth)
        if start < end:
            line = (x_of(start), y_of(start * bandwidth), x_of(end), y_of(end * bandwidth))
            turn = round(degrees(atan2(line[3] - line[1], line[2] - line[0])), 1)
            text = f"memory {amount(bandwidth, 'B/s')}"
            roofs.append(Roof(*line, text, line[0] + 6, line[1] - 9, turn))
    text_y = HEIGHT * 2.0
    for unit, peak in sorted(peaks.items(), key=lambda one: one[1]):
        start = min(max(left, peak / bandwidth), right) if bandwidth else left
        text_y = min(y_of(peak) + 4, text_y - _LINE)
        text = f"{unit} {amount(peak, 'FLOP/s')}"
        flat = (x_of(start), y_of(peak), x_of(right), y_of(peak))
        mine = unit in used or unit == "measured"
        roofs.append(Roof(*flat, text, WIDTH - _RIGHT + 4, round(text_y, 1), used=mine))
    return roofs
