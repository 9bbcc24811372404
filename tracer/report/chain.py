"""The chain of hops and calls that the time of a dispatch path goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

_STANDS_OUT = 10


def chain_nodes(nodes: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of `nodes` (of one path, from trees.fold) that the time goes to, as dictionaries.

    From the outermost hop down to a call or to what the GPU did: to the most work of the GPU where there is
    any, unless something else took far longer, as loading code or waiting does.
    """
    rows = nodes.to_dicts()
    return [rows[place] for place in _places(rows)]


def chain_places(nodes: pl.DataFrame) -> list[int]:
    """Where the rows of `chain_nodes` are in `nodes`, outermost first."""
    return _places(nodes.to_dicts())


def _places(rows: list[dict[str, Any]]) -> list[int]:
    below: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for place, above in enumerate(parents([row["level"] for row in rows])):
        below.setdefault(above, []).append((place, rows[place]))
    places: list[int] = []
    at, own_ns = -1, -1
    while step := _next_of_chain(below.get(at, []), own_ns):
        at, own_ns = step[0], _own_ns(step[1])
        places.append(at)
    return places


def _next_of_chain(below: list[tuple[int, dict[str, Any]]], own_ns: int) -> tuple[int, dict[str, Any]] | None:
    """Of the nodes in a hop or call, with their places, the one that the time goes to.

    That is the one with the most GPU time. Where the GPU did nothing, or where another took so much longer
    that the GPU's work is beside the point, it is the one with the most time, of redispatches and of what
    takes longer than the own work of what they are in.
    """
    longer = [one for one in below if one[1]["kind"] == "redispatch" or _most_ns(one[1]) > own_ns]
    longest = max(longer, key=lambda one: _most_ns(one[1]), default=None)
    on_gpu = [one for one in below if one[1].get("gpu_total_ns")]
    if not on_gpu:
        return longest
    busiest = max(on_gpu, key=lambda one: (one[1]["gpu_total_ns"], _most_ns(one[1])))
    stands_out = longest and _most_ns(longest[1]) > _STANDS_OUT * _most_ns(busiest[1])
    return longest if stands_out else busiest


def _most_ns(node: dict[str, Any]) -> int:
    """The usual time of a node's calls together on the host, or on the GPU where that is longer.

    Of calls with the inputs that cost most, where that is known: most calls of an optimizer may be small.
    """
    return max(int(_usual(node, "usual_ns", "median_ns")), node.get("gpu_total_ns") or 0)


def _own_ns(node: dict[str, Any]) -> int:
    """0 where it is not known, as of a library call that only stacks name."""
    return int(_usual(node, "usual_self_ns", "median_self_ns"))


def _usual(node: dict[str, Any], known: str, median: str) -> float:
    usual = node.get(known)
    return (node[median] or 0) * node["members"] if usual is None else usual


def parents(levels: Sequence[int]) -> list[int]:
    """The place of the row around each row, -1 of an outermost one: levels 0 1 2 1 0 -> -1 0 1 0 -1."""
    open_rows: list[int] = []
    found = []
    for place, level in enumerate(levels):
        while open_rows and levels[open_rows[-1]] >= level:
            open_rows.pop()
        found.append(open_rows[-1] if open_rows else -1)
        open_rows.append(place)
    return found
