"""Mermaid flowcharts of dispatch paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis.device_kernels import table_name
from tracer.base.visible import visible
from tracer.report.chain import chain_places, parents
from tracer.report.text import package_relative, shorten, shorten_kernel
from tracer.report.tree import time_text
from tracer.trace.certificate.counts import in_words
from tracer.trace.tables.schema import GPU_KINDS, HOP_KINDS

MOST_BOXES = 10
_WIDTH = 44
_COLOURS = {
    "autograd": "fill:#dbe9fb,stroke:#5b86c4,color:#111",
    "backend": "fill:#dcf1dd,stroke:#5a9a5e,color:#111",
    "library": "fill:#fbf0cf,stroke:#b59a3a,color:#111",
    "api": "fill:#f9e0d0,stroke:#c07c4d,color:#111",
    "gpu": "fill:#ecdcf5,stroke:#9160b0,color:#111",
}
"""Of hops at autograd's keys and at other keys, library calls, API calls, and what the GPU did"""
_TIME = re.compile(r"(?<=\d) (?=(?:us|ms|s)\b)")
_NARROW = '%%{init: {"flowchart": {"nodeSpacing": 16, "padding": 8}}}%%'
"""A page scales a diagram to its own width, and the letters with it: boxes are close to each other"""
_ARROWS = {"redispatch": "==>", "call": "-->", "gpu": "-.->"}
_ESCAPES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}


def flowchart(nodes: pl.DataFrame, limit: int = MOST_BOXES) -> str:
    """The hops of one path (rows of trees.fold), top down: `op [Key] time`, and below it the kernel function.

    Thick arrows are redispatches, thin ones calls, dotted ones lead to the GPU; the colour of a box says
    what it is (_COLOURS). Of more than `limit` boxes the chain that the time goes to and those with the most
    time in total, on the host or the GPU, are drawn, and a last one, which no arrow leads to, counts the
    rest. Of a chain of more than MOST_BOXES, the middle is left out.
    """
    lines = [_NARROW, "flowchart TD"]
    above: list[int] = []
    drawn, left = boxes(nodes, limit)
    for number, box in enumerate(drawn):
        lines.append(f'  h{number}["{"<br/>".join(map(_escaped, box.lines))}"]:::{box.kind}')
        del above[box.level :]
        if above:
            times = f'|"{box.count:,} x"|' if box.count > 1 else ""
            lines.append(f"  h{above[-1]} {_ARROWS[box.arrow]}{times} h{number}")
        above.append(number)
    if left:
        more = in_words(left, "more box", "more boxes")
        lines.append(f'  more["{more}, not drawn"]')
    used = {box.kind for box in drawn}
    lines += [f"  classDef {kind} {colour}" for kind, colour in _COLOURS.items() if kind in used]
    return "\n".join(lines)


@dataclass(frozen=True)
class Box:
    """One row of a path as it is drawn: `kind` is one of _COLOURS, `arrow` one of _ARROWS."""

    lines: list[str]
    kind: str
    arrow: str
    level: int
    count: int


def boxes(nodes: pl.DataFrame, limit: int = MOST_BOXES) -> tuple[list[Box], int]:
    """The boxes of a path (rows of trees.fold), and how many rows are left out."""
    drawn = _drawn(nodes, limit)
    found = []
    for node in nodes[drawn].iter_rows(named=True):
        is_hop, on_gpu = node["kind"] in HOP_KINDS, node["kind"] in GPU_KINDS
        name = f"{node['op']} [{node['key']}]" if is_hop else shorten_kernel(table_name(node["op"]), _WIDTH)
        marks = "".join(f" {mark}" for mark in ("raised", "open") if node[mark])
        lines = [f"{_label(name)} {'GPU ' if on_gpu else ''}{time_text(node)}{marks}"]
        lines += [_label(node["kernel"])] if node["kernel"] else []
        arrow = "redispatch" if node["kind"] == "redispatch" else "gpu" if on_gpu else "call"
        found.append(Box(lines, _kind(node), arrow, node["level"], node["count"]))
    return found, len(nodes) - len(drawn)


def colours(kind: str) -> tuple[str, str]:
    """(fill, stroke) of a kind of box."""
    parts = dict(part.split(":") for part in _COLOURS[kind].split(","))
    return parts["fill"], parts["stroke"]


def _kind(node: dict[str, Any]) -> str:
    """Which of _COLOURS a row has."""
    if node["kind"] in GPU_KINDS:
        return "gpu"
    if node["kind"] in HOP_KINDS:
        return "autograd" if str(node["key"]).startswith(("Autograd", "ADInplace")) else "backend"
    return "library" if node["kind"] == "library" else "api"


def _drawn(nodes: pl.DataFrame, limit: int) -> list[int]:
    """The places of the rows to draw: the chain that the time goes to, then what takes the most time.

    What encloses a drawn row is drawn too, but for the middle of a chain of more than MOST_BOXES.
    """
    # What runs on the GPU may take longer than the call that started it: there the larger time counts.
    measured = ("total_ns", *(name for name in ("gpu_total_ns",) if name in nodes.columns))
    by_weight = (
        nodes.select("level", weight=pl.max_horizontal(measured))
        .with_row_index("place")
        .sort("weight", "level", "place", descending=[True, False, False])
    )
    above = parents(nodes["level"].to_list())
    drawn = set(chain_places(nodes))
    for place in by_weight["place"]:
        if len(drawn) >= limit:
            break
        drawn |= _not_drawn(place, above, drawn, limit - len(drawn))
    places = sorted(drawn)
    most = max(limit, MOST_BOXES)
    if len(places) > most:
        places = places[: most // 2] + places[len(places) - (most - most // 2) :]
    return places


def _not_drawn(place: int, above: list[int], drawn: set[int], most: int) -> set[int]:
    """A row and those around it that are not drawn; none if there are more than `most`.

    Those around a row that is drawn are drawn.
    """
    more: set[int] = set()
    while place >= 0 and place not in drawn:
        if len(more) == most:
            return set()
        more.add(place)
        place = above[place]
    return more


def _label(text: str) -> str:
    return shorten(package_relative(visible(text)), _WIDTH)


def _escaped(text: str) -> str:
    """A number and its unit are not parted at the end of a line."""
    shown = "".join(_ESCAPES.get(letter, letter) for letter in text)
    return _TIME.sub("#160;", shown)
