"""What each range of torch.profiler.record_function took."""

from __future__ import annotations

import polars as pl

OF_TORCH = "#"
"""In the names of ranges that torch itself marks: Optimizer.step#SGD.step"""


def of_the_script() -> pl.Expr:
    """The column `range` of hops, null where it is one of torch's own."""
    name = pl.col("range").cast(pl.String)
    return pl.when(~name.str.contains(OF_TORCH, literal=True)).then(name)


def range_times(ranges: pl.DataFrame) -> pl.DataFrame:
    """A row for each distinct path of ranges, in the order of their first begin.

    Columns: path (names of the ranges from the outermost one), depth, calls, total_ns, median_ns, p95_ns,
    longest_ns, and own_ns, the total without the ranges inside. Ranges that did not end count up to the
    last thing that their thread did.
    """
    duration = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    rows = ranges.select("id", "parent", "start_ns", duration, pl.col("name").cast(pl.String).fill_null("?"))
    inside = rows.group_by("parent").agg(inside=pl.col("ns").sum())
    rows = rows.join(inside, left_on="id", right_on="parent", how="left", maintain_order="left")
    depth, paths = 0, rows.filter(pl.col("parent").is_null()).with_columns(path=pl.concat_list("name"))
    levels = []
    while len(paths):
        levels.append(paths.with_columns(depth=pl.lit(depth, pl.Int64)))
        above = paths.select(parent="id", above="path")
        paths = rows.join(above, on="parent", how="inner", maintain_order="left").with_columns(
            path=pl.concat_list("above", "name")
        )
        paths, depth = paths.drop("above"), depth + 1
    if not levels:
        return pl.DataFrame(schema=_SCHEMA)
    found = (
        pl.concat(levels)
        .group_by("path")
        .agg(
            pl.col("depth").first(),
            first=pl.col("start_ns").min(),
            calls=pl.len().cast(pl.Int64),
            total_ns=pl.col("ns").sum(),
            median_ns=pl.col("ns").median().round().cast(pl.Int64),
            p95_ns=pl.col("ns").quantile(0.95, "nearest").cast(pl.Int64),
            longest_ns=pl.col("ns").max(),
            own_ns=(pl.col("ns") - pl.col("inside").fill_null(0)).sum(),
        )
    )
    return _outermost_first(found).select(list(_SCHEMA))


def _outermost_first(found: pl.DataFrame) -> pl.DataFrame:
    """Each path behind the one around it, paths within the same one by their first begin."""
    first = {tuple(path): number for path, number in found.select("path", "first").iter_rows()}

    def place(row: int) -> list[int]:
        path = found["path"][row].to_list()
        return [first[tuple(path[: length + 1])] for length in range(len(path))]

    return found[sorted(range(len(found)), key=place)]


_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "path": pl.List(pl.String),
    "depth": pl.Int64,
    **dict.fromkeys(("calls", "total_ns", "own_ns", "median_ns", "p95_ns", "longest_ns"), pl.Int64),
}
