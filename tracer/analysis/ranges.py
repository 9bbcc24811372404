"""What each range of torch.profiler.record_function took."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.analysis.trees import depths, levels, parent_rows
from tracer.trace.tables.distinct import numbered

OF_TORCH = "#"
"""In the names of ranges that torch itself marks: Optimizer.step#SGD.step"""
_MOST_NAMES = 128
"""Of a path. With all of them, the memory for n ranges in each other would grow with n squared"""
_MOST_TEXT, _LEAST_CUT = 1 << 24, 1000
"""Bytes of all headings together; each may have as many characters as a line of a tree shows"""


def headings(hops: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    """`outer > inner` of each hop: the ranges that it is in, without torch's own; null if there is none."""
    numbers, paths = paths_of_hops(hops, ranges)
    longest = max(_LEAST_CUT, _MOST_TEXT // len(paths))
    return pl.Series([_heading(path, longest) for path in paths], dtype=pl.String).gather(numbers)


def _heading(path: tuple[str, ...], longest: int) -> str | None:
    text = ""
    for name in path:
        if OF_TORCH not in name and len(text) <= longest:
            text += f" > {name}" if text else name
    return f"{text[:longest]}..." if len(text) > longest else text or None


def paths_of_hops(
    hops: pl.DataFrame, ranges: pl.DataFrame
) -> tuple[NDArray[np.int64], list[tuple[str, ...]]]:
    """The number of the path of ranges that each hop is in; and the names on each path, outermost first.

    Of a path of more than 128 names, the innermost and the 127 outermost ones.
    Number 0 is in no range. A range whose begin is not in the trace is a path of its own.
    """
    if not hops["range"].count():
        return np.zeros(len(hops), np.int64), [()]
    number, above = _paths(parent_rows(ranges), ranges["name"].cast(pl.String).fill_null("?"))
    first = np.unique(number, return_index=True)[1]
    paths: list[tuple[str, ...]] = [()]
    for outer, name in zip(above, ranges["name"].cast(pl.String).gather(first), strict=True):
        paths.append((*paths[outer + 1][: _MOST_NAMES - 1], name or "?"))
    wanted, names = numbered(hops["range"])
    found = np.append(number + 1, 0)[_range_rows(hops, ranges, wanted, names)]
    alone = np.flatnonzero((found == 0) & (wanted >= 0))
    found[alone] = wanted[alone] + len(paths)
    return found, paths + [(name,) for name in names]


def _range_rows(
    hops: pl.DataFrame, ranges: pl.DataFrame, wanted: NDArray[np.int64], names: list[str]
) -> NDArray[np.int64]:
    """The row of the innermost range of each hop: the last of its name that began on its thread, or one
    around that; -1: none. `wanted`: of each hop which of `names` that range has (-1: none).
    """
    numbers = {name: number for number, name in enumerate(names)}
    name = np.array([numbers.get(text or "", -2) for text in ranges["name"].cast(pl.String)], np.int64)
    keys = [pl.col("process", "thread", "start_ns").cast(pl.Int64)]
    inside = np.flatnonzero(wanted >= 0)
    begins = ranges.select(*keys, name=name, row=pl.row_index().cast(pl.Int64))
    moments = hops[inside].select(*keys, name=wanted[inside], row=pl.lit(None, pl.Int64))
    last = pl.col("row").forward_fill().over("process", "thread", "name")
    every = pl.concat([begins, moments]).with_row_index("place").sort("start_ns", maintain_order=True)
    row = every.select("place", last).sort("place")["row"][len(ranges) :].fill_null(-1).to_numpy()
    name, begun = np.append(name, -2), hops["start_ns"].to_numpy()[inside]
    end, parent = np.append(ranges["end_ns"].to_numpy(), 0), np.append(parent_rows(ranges), -1)
    while (wrong := (row >= 0) & ((end[row] < begun) | (name[row] != wanted[inside]))).any():
        row = np.where(wrong, parent[row], row)
    rows = np.full(len(hops), -1)
    rows[inside] = row
    return rows


def wall_times(ranges: pl.DataFrame) -> pl.DataFrame:
    """range (its name), wall_ns: from begin to end; what is in another range of its name counts there."""
    wall, around = dict[str, int](), list[str]()
    for name, depth, total in range_times(ranges).select("name", "depth", "total_ns").iter_rows():
        del around[depth:]
        wall[name] = wall.get(name, 0) + (0 if name in around else total)
        around.append(name)
    return pl.DataFrame(list(wall.items()), {"range": pl.String, "wall_ns": pl.Int64}, orient="row")


def lanes(ranges: pl.DataFrame) -> tuple[list[int], list[int]]:
    """Where to draw ranges that overlap: the lane of each, and the row around it there (-1: none).

    Of the lanes of its thread, each range has that of its parent, or the first in which nothing else is then.
    """
    lane, around = list[int](), list[int]()
    drawn: dict[tuple[int, int], list[list[int]]] = {}
    ends, parents = ranges["end_ns"].to_list(), parent_rows(ranges).tolist()
    for row, (process, thread, start) in enumerate(
        ranges.select("process", "thread", "start_ns").iter_rows()
    ):
        of_thread = drawn.setdefault((process, thread), [])
        for rows in of_thread:
            while rows and ends[rows[-1]] <= start:
                rows.pop()
        fits = (place for place, rows in enumerate(of_thread) if rows[-1:] == parents[row : row + 1])
        free = (place for place, rows in enumerate(of_thread) if not rows)
        place = next(fits, next(free, len(of_thread)))
        if place == len(of_thread):
            of_thread.append([])
        around.append(of_thread[place][-1] if of_thread[place] else -1)
        of_thread[place].append(row)
        lane.append(place)
    return lane, around


def range_times(ranges: pl.DataFrame) -> pl.DataFrame:
    """A row for each distinct path of ranges, below that of the path around it, by their first begins.

    Columns: name (of the innermost range), depth, calls, total_ns, median_ns, p95_ns, longest_ns, and own_ns,
    the total without the ranges inside. Ranges that did not end count up to the last thing that their thread
    did.
    """
    duration = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    rows = ranges.select("id", "parent", "start_ns", duration, pl.col("name").cast(pl.String).fill_null("?"))
    inside = _covered_by_those_inside(ranges)
    rows = rows.join(inside, left_on="id", right_on="parent", how="left", maintain_order="left")
    parent = parent_rows(rows)
    path, above = _paths(parent, rows["name"])
    found = (
        rows.with_columns(path=pl.Series(path), depth=pl.Series(depths(parent), dtype=pl.Int64))
        .group_by("path")
        .agg(
            pl.col("name", "depth").first(),
            first=pl.col("start_ns").min(),
            calls=pl.len().cast(pl.Int64),
            total_ns=pl.col("ns").sum(),
            median_ns=pl.col("ns").median().round().cast(pl.Int64),
            p95_ns=pl.col("ns").quantile(0.95, "higher").cast(pl.Int64),
            longest_ns=pl.col("ns").max(),
            own_ns=(pl.col("ns") - pl.col("inside").fill_null(0)).sum(),
        )
        .sort("path")
    )
    return found[_outermost_first(above, found["first"].to_list())].select(list(_SCHEMA))


def _covered_by_those_inside(ranges: pl.DataFrame) -> pl.DataFrame:
    """For each `parent`, how long one or more of the ranges inside it were open (`inside`)."""
    ended = pl.col("end_ns").cum_max().shift(1).over("parent")
    alone = pl.col("end_ns") - pl.max_horizontal("start_ns", ended)
    children = ranges.filter(pl.col("parent").is_not_null()).sort("start_ns", maintain_order=True)
    return children.with_columns(alone=alone.clip(0)).group_by("parent").agg(inside=pl.col("alone").sum())


def _paths(parent: np.ndarray, names: pl.Series) -> tuple[np.ndarray, list[int]]:
    """The number of each row's path, and of each path that of the one around it (-1: none)."""
    name = names.cast(pl.Categorical).to_physical().cast(pl.Int64).to_numpy()
    many = int(name.max(initial=0)) + 1
    path, above = np.full(len(parent) + 1, -1, np.int64), list[int]()
    for rows in levels(parent):
        distinct, of_row = np.unique((path[parent[rows]] + 1) * many + name[rows], return_inverse=True)
        path[rows] = of_row + len(above)
        above += (distinct // many - 1).tolist()
    return path[:-1], above


def _outermost_first(above: list[int], first: list[int]) -> list[int]:
    """Each path behind the one around it, paths within the same one by their first begin."""
    below: dict[int, list[int]] = {}
    for path in sorted(range(len(above)), key=lambda path: first[path], reverse=True):
        below.setdefault(above[path], []).append(path)
    order, left = list[int](), below.get(-1, [])
    while left:
        order.append(path := left.pop())
        left += below.get(path, [])
    return order


_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "name": pl.String,
    "depth": pl.Int64,
    **dict.fromkeys(("calls", "total_ns", "own_ns", "median_ns", "p95_ns", "longest_ns"), pl.Int64),
}
