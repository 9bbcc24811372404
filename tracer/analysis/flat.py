"""The flat table of hops: what they cost by op, key and kernel, or by one of these or the source line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.around import AROUND, nested
from tracer.analysis.groups import GROUPS
from tracer.analysis.medians import finished_median
from tracer.analysis.phases import BACKWARD, FORWARD, OPTIMIZER, phase_of_hops
from tracer.analysis.ranges import wall_times
from tracer.analysis.trees import parent_rows

if TYPE_CHECKING:
    from tracer.trace import Trace

_IN_PHASES = ("module", "source")
_OF_ONE = ("median_ns", "p95_ns", "longest_ns")

_CLASSES = 16
"""How many classes of durations per doubling: a median is taken from their counts"""
_COLUMNS = {"self": "self_ns", "total": "total_ns", "median": "median_ns", "calls": "calls", "hops": "hops"}


def flat_table(
    trace: Trace, chosen: np.ndarray | None = None, by: str = "hop", phases: pl.Series | None = None
) -> pl.DataFrame:
    """A row for each distinct value of GROUPS[by] among the chosen hops (True in `chosen`; None: all).

    Columns: those of the group, calls (hops that are op calls and not redispatches), hops, total_ns,
    self_ns, median_ns, p95_ns, longest_ns, and gpu_ns where there are GPU activities: the time of those that
    its hops caused by themselves. A hop within another of its row counts in neither the total nor the
    median, so that no time is in a total twice; self times add up to the time in the chosen hops.

    By module and by range, total and those of one hop count the hops of modules or ranges inside too, and one
    without hops of its own is a row as well. By range, wall_ns is the time from begins to ends. By module and
    source, forward_ns, backward_ns, optimizer_ns and rest_ns are the parts of the total (`phases`: of each
    hop, if they are known already).
    """
    hops, names = trace.hops, GROUPS[by]
    chosen = np.ones(len(hops), np.bool_) if chosen is None else chosen
    rows, measured = _measured(trace, by, phases)
    own = (
        rows.filter(pl.Series(chosen))
        .group_by(names, maintain_order=True)
        .agg(pl.col(measured).sum(), calls=(pl.col("kind") == "call").sum(), hops=pl.len())
    )
    parent, around = parent_rows(hops), AROUND[by](trace) if by in AROUND else None
    code = _codes(hops, names) if around is None else around.number
    counted = np.flatnonzero(chosen & ~nested(code, parent, chosen))
    if around is None:
        totals = _totals(rows[counted], by)
    else:
        counted, value = around.counted(counted, parent, chosen)
        own = own.with_columns(pl.col(by).cast(pl.String))
        totals = _totals(rows[counted].with_columns(value.alias(by)), by)
    if by == "range":
        totals = _with_wall(totals, wall_times(trace.ranges), all_ranges=bool(chosen.all()))
    table = own.join(
        totals, on=names, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right"
    )
    return table.with_columns(pl.exclude(*names, *_OF_ONE).fill_null(0))


def _measured(trace: Trace, by: str, phases: pl.Series | None) -> tuple[pl.DataFrame, list[str]]:
    """The hops with what is counted of them, and the columns that are only their own."""
    hops, measured = trace.hops, ["self_ns"]
    rows = hops.select(*GROUPS[by], "kind", "self_ns", "open", ns=pl.col("end_ns") - pl.col("start_ns"))
    if len(trace.gpu_activities):
        rows = rows.with_columns(gpu_ns=_own_gpu(hops, trace.gpu_activities))
        measured.append("gpu_ns")
    if by in _IN_PHASES:
        rows = rows.with_columns(part=phase_of_hops(trace) if phases is None else phases)
    return rows, measured


def _with_wall(totals: pl.DataFrame, wall: pl.DataFrame, *, all_ranges: bool) -> pl.DataFrame:
    """With wall_ns; `all_ranges`: a row also for those in which no op ran."""
    wall = wall if all_ranges else wall.join(totals, on="range", how="semi")
    return totals.join(
        wall, on="range", how="full", coalesce=True, nulls_equal=True, maintain_order="left_right"
    )


def _totals(counted: pl.DataFrame, by: str) -> pl.DataFrame:
    ns, parts = pl.col("ns"), (FORWARD, BACKWARD, OPTIMIZER) if by in _IN_PHASES else ()
    table = counted.group_by(GROUPS[by], maintain_order=True).agg(
        total_ns=ns.sum(),
        median_ns=finished_median(ns),
        p95_ns=ns.quantile(0.95, "higher").cast(pl.Int64),
        longest_ns=ns.max(),
        **{f"{part}_ns": ns.filter(pl.col("part") == part).sum() for part in parts},
    )
    if not parts:
        return table
    return table.with_columns(rest_ns=pl.col("total_ns") - pl.sum_horizontal(f"{part}_ns" for part in parts))


def whole_ns(trace: Trace, chosen: np.ndarray | None = None) -> int:
    """The time in the chosen hops: of those within another one no second time."""
    hops = trace.hops
    chosen = np.ones(len(hops), np.bool_) if chosen is None else chosen
    outer = chosen & ~nested(np.zeros(len(hops), np.int64), parent_rows(hops), chosen)
    return int((hops["end_ns"] - hops["start_ns"]).filter(pl.Series(outer)).sum())


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
        inner = nested(_codes(hops, GROUPS[self._by]), parent_rows(hops), around)
        duration = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
        rows = hops.select(*names, "kind", "self_ns", duration).with_columns(own=pl.Series(~inner))
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
    return table.sort(_COLUMNS[by], descending=True, nulls_last=True, maintain_order=True)


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
