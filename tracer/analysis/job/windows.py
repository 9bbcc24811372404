"""The time of a rank between two of its collective calls, on the host and on its GPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracer.analysis.cover import Times


def host_windows(calls: pl.DataFrame) -> pl.DataFrame:
    """Of each call of a rank: window, group, number, and the time since its call before, in order.

    behind_group, behind_number, behind_end_ns: of that call, if its caller waits in it; else null.
    """
    blocked = pl.col("blocks").shift(1)
    return calls.sort("start_ns").select(
        *("group", "number"),
        window=pl.int_range(pl.len(), dtype=pl.Int64),
        from_ns=pl.col("start_ns").shift(1).fill_null(0),
        until_ns="start_ns",
        behind_group=pl.when(blocked).then(pl.col("group").shift(1)),
        behind_number=pl.when(blocked).then(pl.col("number").shift(1)),
        behind_end_ns=pl.when(blocked).then(pl.col("end_ns").shift(1)),
    )


def gpu_windows(calls: pl.DataFrame) -> pl.DataFrame:
    """As `host_windows`, of the calls that ran on the GPU: since the end of the one before, there.

    begun_ns: the begin of the one before. A rank that waits in it goes on beside it.
    """
    ordered = calls.drop_nulls("gpu_start_ns").sort("gpu_start_ns")
    before = pl.col("gpu_end_ns").cum_max().shift(1).fill_null(0)
    return ordered.select(
        *("group", "number"),
        window=pl.int_range(pl.len(), dtype=pl.Int64),
        from_ns=pl.min_horizontal(before, "gpu_start_ns"),
        until_ns="gpu_start_ns",
        begun_ns=pl.col("gpu_start_ns").shift(1).fill_null(0),
    )


def pieces(windows: pl.DataFrame, begins: Times, ends: Times) -> pl.DataFrame:
    """What windows (from_ns, until_ns) have of these times: of (their place), window, start_ns, total_ns."""
    starts, stops = windows["from_ns"].to_numpy(), windows["until_ns"].to_numpy()
    first, behind = np.searchsorted(stops, begins, "right"), np.searchsorted(starts, ends, "left")
    counts = np.maximum(behind - first, 0)
    of = np.repeat(np.arange(len(begins)), counts)
    window = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + first[of]
    begin = np.maximum(begins[of], starts[window])
    return pl.DataFrame(
        {
            "of": of.astype(np.int64),
            "window": window.astype(np.int64),
            "start_ns": begin.astype(np.int64),
            "total_ns": (np.minimum(ends[of], stops[window]) - begin).astype(np.int64),
        }
    ).filter(pl.col("total_ns") > 0)
