"""The flat table of hops: what they cost by op, key and kernel, or by one of these or the source line."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracer.analysis.groups import GROUPS
from tracer.analysis.medians import finished_median
from tracer.analysis.trees import parent_rows

_CLASSES = 16
"""How many classes of durations per doubling: a median is taken from their counts"""
_COLUMNS = {"self": "self_ns", "total": "total_ns", "median": "median_ns", "calls": "calls", "hops": "hops"}


def flat_table(
    hops: pl.DataFrame, chosen: np.ndarray, by: str = "hop", activities: pl.DataFrame | None = None
) -> pl.DataFrame:
    """A row for each distinct value of GROUPS[by] among the chosen hops (True in `chosen`).

    Columns: those of the group, calls (hops that are op calls and not redispatches), hops, total_ns,
    self_ns, median_ns, and gpu_ns where there are GPU activities: the time of those that its hops
    caused by themselves. A hop within another of its row counts in neither the total nor the median,
    so that no time is in a total twice; self times add up to the time in the chosen hops.
    """
    names = GROUPS[by]
    columns = [
        pl.col(names),
        pl.col("kind", "self_ns", "open"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
    ]
    nested = _nested(_codes(hops, names), parent_rows(hops), chosen)
    rows = hops.select(columns).with_columns(nested=pl.Series(nested))
    measured = ["self_ns"]
    if activities is not None and len(activities):
        rows = rows.with_columns(gpu_ns=_own_gpu(hops, activities))
        measured.append("gpu_ns")
    if not chosen.all():
        rows = rows.filter(pl.Series(chosen))
    own = pl.col("ns").filter(~pl.col("nested"))
    return rows.group_by(names, maintain_order=True).agg(
        pl.col(measured).sum(),
        calls=(pl.col("kind") == "call").sum(),
        hops=pl.len(),
        total_ns=own.sum(),
        median_ns=finished_median(pl.col("ns"), ~pl.col("nested")),
    )


class RunningFlat:
    """The flat table of hops that come in batches; needs memory for the rows, not for the hops.

    Medians are those of the middle of a class of durations, 16 classes to a doubling: at most 2.2 %
    off.
    """

    def __init__(self, by: str = "hop") -> None:
        self._names = list(GROUPS[by])
        self._by = by
        self._counts: pl.DataFrame | None = None
        self._classes: pl.DataFrame | None = None

    def add(self, hops: pl.DataFrame, chosen: np.ndarray) -> None:
        """Counts the chosen hops; the rest are there because chosen hops are inside them.

        A batch has all hops around the chosen ones, also open ones, which count once they end.
        """
        names = self._names
        hops = hops.with_columns(pl.col(names).cast(pl.Categorical))
        around = chosen | hops["open"].to_numpy()
        nested = _nested(_codes(hops, GROUPS[self._by]), parent_rows(hops), around)
        duration = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
        rows = hops.select(*names, "kind", "self_ns", duration).with_columns(own=pl.Series(~nested))
        rows = rows.filter(pl.Series(chosen & ~hops["open"].to_numpy()))
        own = rows.filter(pl.col("own"))
        size = np.floor(np.log2(own["ns"].to_numpy().clip(1)) * _CLASSES)
        own = own.with_columns(size=pl.Series(size.astype(np.int16)))
        counts = rows.group_by(names, maintain_order=True).agg(
            pl.col("self_ns").sum(),
            calls=(pl.col("kind") == "call").sum().cast(pl.Int64),
            hops=pl.len().cast(pl.Int64),
            total_ns=pl.col("ns").filter("own").sum(),
        )
        self._counts = _added(self._counts, counts, names)
        classes = own.group_by(*names, "size").agg(count=pl.len().cast(pl.Int64))
        self._classes = _added(self._classes, classes, [*names, "size"])

    def table(self) -> pl.DataFrame:
        """As flat_table, of all hops that were added; without gpu_ns."""
        if self._counts is None or self._classes is None:
            columns = {"self_ns": pl.Int64, "calls": pl.Int64, "hops": pl.Int64, "total_ns": pl.Int64}
            return pl.DataFrame(
                schema={**dict.fromkeys(self._names, pl.Categorical), **columns, "median_ns": pl.Int64}
            )
        middle = ((pl.col("size") + 0.5) / _CLASSES).cast(pl.Float64)
        medians = (
            self._classes.sort("size")
            .with_columns(
                below=pl.col("count").cum_sum().over(self._names),
                whole=pl.col("count").sum().over(self._names),
            )
            .filter(pl.col("below") * 2 >= pl.col("whole"))
            .group_by(self._names, maintain_order=True)
            .agg(median_ns=(pl.lit(2.0) ** middle.first()).round().cast(pl.Int64))
        )
        return self._counts.join(medians, on=self._names, how="left", nulls_equal=True, maintain_order="left")


def _added(known: pl.DataFrame | None, new: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    if known is None:
        return new
    return pl.concat([known, new]).group_by(names, maintain_order=True).agg(pl.all().sum())


def ranked(table: pl.DataFrame, by: str = "self") -> pl.DataFrame:
    """The table, most first by one of SORTS; equal rows stay in their order."""
    return table.sort(_COLUMNS[by], descending=True, maintain_order=True)


def _own_gpu(hops: pl.DataFrame, activities: pl.DataFrame) -> pl.Series:
    caused = activities.filter(pl.col("hop").is_not_null())
    took = (caused["end_ns"] - caused["start_ns"]).fill_null(0).to_numpy()
    ids = hops["id"].cast(pl.Int64).to_numpy()
    at = np.searchsorted(ids, caused["hop"].cast(pl.Int64).to_numpy())
    return pl.Series(np.bincount(at, weights=took, minlength=len(hops))[: len(hops)].astype(np.int64))


def _codes(hops: pl.DataFrame, names: tuple[str, ...]) -> np.ndarray:
    """One number a hop, equal where the columns are; at least 0."""
    code = np.zeros(len(hops), np.int64)
    for name in names:
        own = hops[name].cast(pl.Categorical).to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1
        code = code * (int(own.max(initial=0)) + 1) + own
    return code


def _nested(code: np.ndarray, parent: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """True for hops that a chosen hop with the same code encloses."""
    code = np.where(chosen, code, -1)
    nested = np.zeros(len(code), np.bool_)
    rows = np.flatnonzero((parent >= 0) & chosen)
    above = parent[rows]
    while len(rows):  # a round for each level of the forest
        same = code[above] == code[rows]
        nested[rows[same]] = True
        above = parent[above]
        further = ~same & (above >= 0)
        rows, above = rows[further], above[further]
    return nested
