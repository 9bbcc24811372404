"""The chain of hops and calls that the time of a dispatch path goes to."""

from __future__ import annotations

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
    ends = _ends([row["level"] for row in rows])
    places: list[int] = []
    first, last, own_ns = 0, len(rows), -1
    while step := _next_of_chain(_siblings(rows, ends, first, last), own_ns):
        place, row = step
        places.append(place)
        first, last, own_ns = place + 1, ends[place], _own_ns(row)
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
    """The usual time of a node's calls together on the host, or on the GPU where that is longer."""
    return max(int(node["median_ns"] * node["members"]), node.get("gpu_total_ns") or 0)


def _own_ns(node: dict[str, Any]) -> int:
    """0 where it is not known, as of a library call that only stacks name."""
    return int((node["median_self_ns"] or 0) * node["members"])


def _ends(levels: list[int]) -> list[int]:
    """Of each row the place after the last one in it: levels 0 1 2 1 0 -> 4 3 3 4 5."""
    ends = [len(levels)] * len(levels)
    open_rows: list[int] = []
    for place, level in enumerate(levels):
        while open_rows and levels[open_rows[-1]] >= level:
            ends[open_rows.pop()] = place
        open_rows.append(place)
    return ends


def _siblings(
    rows: list[dict[str, Any]], ends: list[int], first: int, last: int
) -> list[tuple[int, dict[str, Any]]]:
    """The outermost rows from place `first` until before `last`, with their places."""
    found = []
    while first < last:
        found.append((first, rows[first]))
        first = ends[first]
    return found
