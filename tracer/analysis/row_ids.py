"""For each line of a tree, the table and the row of the trace that it shows."""

from __future__ import annotations

import polars as pl

TABLES = {
    "hop": "hops",
    "compiled_call": "compiled_calls",
    "compiled_kernel": "compiled_kernels",
    "library_call": "library_calls",
    "api_call": "api_calls",
    "activity": "gpu_activities",
}
"""Column of links.combine -> table of the trace"""

_COLUMNS = {
    "call": "hop",
    "redispatch": "hop",
    "library": "library_call",
    "api": "api_call",
    "compiled": "compiled_call",
    "compiled kernel": "compiled_kernel",
}
"""Kind of a row -> the column with its id; all other kinds are GPU activities"""


def with_ids(nodes: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """`nodes` of trees.fold, with `table` and `id`: of a folded line, the first of its rows.

    `rows` is the frame that was folded: the hops, or those of links.combine. Both columns are null for a
    library call that has no row in the trace, because only the stacks of its API calls name it.
    """
    if "api_call" not in rows.columns:
        return nodes.with_columns(table=pl.lit("hops"), id=pl.col("hop").cast(pl.Int64))
    column = pl.col("kind").cast(pl.String).replace_strict(_COLUMNS, default="activity")
    known = [name for name in TABLES if name in rows.columns]
    chosen = pl.coalesce(pl.when(column == name).then(name) for name in known)
    ids = rows.select(
        hop="id",
        id=chosen.cast(pl.Int64),
        table=column.replace_strict(TABLES, return_dtype=pl.String),
    ).with_columns(table=pl.when(pl.col("id").is_not_null()).then("table"))
    return nodes.join(ids, on="hop", how="left", maintain_order="left")
