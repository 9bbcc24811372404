"""Mermaid flowcharts of dispatch paths."""

from __future__ import annotations

import polars as pl

from tracer.analysis.device_kernels import table_name
from tracer.report.chain import chain_places
from tracer.report.text import package_relative, registration, shorten, shorten_kernel
from tracer.report.tree import time_text
from tracer.report.visible import visible
from tracer.trace.certificate.counts import in_words

_WIDTH = 56
_HOPS = ("call", "redispatch")
_GPU = ("kernel", "memcpy", "memset")
_ESCAPES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}


def flowchart(nodes: pl.DataFrame, limit: int = 14) -> str:
    """The hops of one path (rows of trees.fold), left to right: `op [Key]`, kernel, registration.

    Thick arrows are redispatches, thin ones calls, dotted ones lead to the GPU. Of more than `limit` boxes
    the chain that the time goes to and those with the most time in total, on the host or the GPU, are drawn,
    and a last one, which no arrow leads to, counts the rest.
    """
    lines = ["flowchart LR"]
    above: list[int] = []
    drawn = _drawn(nodes, limit)
    for number, node in enumerate(nodes[drawn].iter_rows(named=True)):
        is_hop, on_gpu = node["kind"] in _HOPS, node["kind"] in _GPU
        words = [
            f"{node['op']} [{node['key']}]" if is_hop else shorten_kernel(table_name(node["op"]), _WIDTH)
        ]
        words += [node["kernel"]] if node["kernel"] else []
        words += [registration(node["registered_at"])] if node["registered_at"] else []
        words.append(f"{'GPU ' if on_gpu else ''}{time_text(node)}")
        words += [mark for mark in ("raised", "open") if node[mark]]
        lines.append(f'  h{number}["{"<br/>".join(_label(word) for word in words)}"]')
        del above[node["level"] :]
        if above:
            arrow = "==>" if node["kind"] == "redispatch" else "-.->" if on_gpu else "-->"
            times = f'|"{node["count"]:,} x"|' if node["count"] > 1 else ""
            lines.append(f"  h{above[-1]} {arrow}{times} h{number}")
        above.append(number)
    if left := len(nodes) - len(drawn):
        more = in_words(left, "more box", "more boxes")
        lines.append(f'  more["{more}, not drawn"]')
    return "\n".join(lines)


def _drawn(nodes: pl.DataFrame, limit: int) -> list[int]:
    """The places of the rows to draw: the chain that the time goes to, then what takes the most time.

    What encloses a drawn row is drawn too. The chain may alone be longer than `limit`.
    """
    # What runs on the GPU may take longer than the call that started it: there the larger time counts.
    measured = ("total_ns", *(name for name in ("gpu_total_ns",) if name in nodes.columns))
    by_weight = (
        nodes.select("level", weight=pl.max_horizontal(measured))
        .with_row_index("place")
        .sort("weight", "level", "place", descending=[True, False, False])
    )
    enclosing = _enclosing(nodes["level"].to_list())
    drawn = set(chain_places(nodes))
    for place in by_weight["place"]:
        if len(drawn) >= limit:
            break
        more = {place, *enclosing[place]} - drawn
        if len(drawn) + len(more) <= limit:
            drawn |= more
    return sorted(drawn)


def _enclosing(levels: list[int]) -> list[tuple[int, ...]]:
    """For each row the places of the rows around it, outermost first."""
    above: list[int] = []
    found = []
    for place, level in enumerate(levels):
        del above[level:]
        found.append(tuple(above))
        above.append(place)
    return found


def _label(text: str) -> str:
    return "".join(
        _ESCAPES.get(letter, letter) for letter in shorten(package_relative(visible(text)), _WIDTH)
    )
