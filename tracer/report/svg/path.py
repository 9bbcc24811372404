"""One dispatch path as a picture, from the Python line to the kernel: for a slide."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracer.base.visible import visible
from tracer.report import mermaid
from tracer.report.svg.picture import LETTER, WIDTH, drawn
from tracer.trace.certificate.counts import in_words

_INDENT, _GAP, _PADDING = 26, 22, 10
_HEADING, _LINE = 18, 16
_LONGEST_HEADING = int((WIDTH - 16) / LETTER)


def path_svg(nodes: pl.DataFrame, heading: list[str]) -> str:
    """The rows of trees.fold of one path that mermaid.boxes chooses, top down.

    `heading`: lines above it, such as the Python line and its text.
    """
    drawn_boxes, left_out = mermaid.boxes(nodes)
    top = 14 + _HEADING * len(heading)
    boxes: list[dict[str, Any]] = []
    arrows: list[dict[str, Any]] = []
    above: list[dict[str, Any]] = []
    y = top + 8
    for box in drawn_boxes:
        del above[box.level :]
        x = 8 + _INDENT * len(above)
        room = int((WIDTH - 16 - x - 2 * _PADDING) / LETTER)
        lines = [_cut(text, room) for text in box.lines]
        width = round(max(len(line) for line in lines) * LETTER + 2 * _PADDING)
        height = 12 + _LINE * len(lines)
        made = {"kind": box.kind, "lines": lines, "x": x, "y": y, "width": width, "height": height}
        if above:
            around = above[-1]
            arrows.append(
                {
                    "x": around["x"] + 12,
                    "y1": around["y"] + around["height"],
                    "x2": x - 1,
                    "y2": y + 15,
                    "kind": box.arrow,
                    "text": "",
                }
            )
        boxes.append(made)
        above.append(made)
        y += height + _GAP
    more = f"{in_words(left_out, 'more box', 'more boxes')}, not drawn" if left_out else ""
    heading = [_cut(visible(line), _LONGEST_HEADING) for line in heading]
    colours = [(kind, *mermaid.colours(kind)) for kind in dict.fromkeys(box.kind for box in drawn_boxes)]
    return drawn(
        "path.svg.j2",
        title=heading[0] if heading else "A dispatch path",
        heading=heading,
        boxes=boxes,
        arrows=arrows,
        more=more,
        colours=colours,
        width=WIDTH,
        height=y + (14 if more else 0),
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
