"""Ratios as horizontal bars around 1, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2

from tracer.base.visible import visible
from tracer.report.svg.picture import LETTER, WIDTH, drawn
from tracer.report.text import shorten_kernel

_ROW, _TOP, _BOTTOM = 22, 36, 28
_NAMES, _TEXTS = 390, 230  # pixels


@dataclass(frozen=True)
class Ratio:
    """A bar: `value` is drawn, `text` is at its end; `low` and `high` are the interval that judges it."""

    name: str
    value: float
    low: float
    high: float
    text: str


def bars_svg(title: str, ratios: Sequence[Ratio]) -> str:
    """Bars to the right of 1 where the ratio is above it; grey where its interval reaches 1."""
    logs = [log2(ratio.value) for ratio in ratios]
    low, high = min(floor(min(logs, default=0)), -1), max(ceil(max(logs, default=0)), 1)
    left, right = 8 + _NAMES, WIDTH - _TEXTS
    scale = (right - left) / (high - low)

    def place(power: float) -> float:
        return round(left + (power - low) * scale, 1)

    step = max(1, (high - low) // 8)
    ticks = [
        {"place": place(power), "text": f"{2.0**power:g} x"}
        for power in range(low, high + 1)
        if power % step == 0
    ]
    bars = []
    for number, (ratio, power) in enumerate(zip(ratios, logs, strict=True)):
        kind = "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "same"
        first, last = sorted((place(0), place(power)))
        bars.append(
            {
                "name": shorten_kernel(visible(ratio.name), int((_NAMES - 8) / LETTER)),
                "text": f"{visible(ratio.text)}  {ratio.value:.2f} x",
                "says": f"{visible(ratio.name)}: {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
                "kind": kind,
                "x": first,
                "y": _TOP + _ROW * number,
                "width": max(round(last - first, 1), 1.0),
            }
        )
    return drawn(
        "bars.svg.j2",
        title=visible(title),
        bars=bars,
        ticks=ticks,
        width=WIDTH,
        height=_TOP + _ROW * len(bars) + _BOTTOM,
        right=WIDTH - 8,
    )
