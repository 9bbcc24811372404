"""What a rank's GPU may still run when its trace is dumped, if the rank waits for it."""

from __future__ import annotations

import polars as pl

from tracer.analysis.job.part import RankPart
from tracer.analysis.runtime_survey import LAUNCH, SYNCHRONISATION


def launched_since_wait(part: RankPart) -> list[str] | None:
    """The lines that launched kernels since the rank last waited for its GPU; None: it waits for no GPU now.

    What it launched before had ended then. Which kernels have ended since is not known in a dump: CUPTI
    delivers no record while a kernel does not end.
    """
    texts = part.trace.api_calls.filter(pl.col("process") == part.process).select(
        "thread", "open", "start_ns", "end_ns", pl.col("role", "source").cast(pl.String)
    )
    waits = texts.filter(pl.col("role") == SYNCHRONISATION)
    now = waits.filter("open")
    if now.is_empty():
        return None
    before = waits.filter(~pl.col("open") & pl.col("thread").is_in(now["thread"].implode()))["end_ns"].max()
    launches = texts.filter((pl.col("role") == LAUNCH) & (pl.col("start_ns") >= (before or 0)))
    return sorted(launches["source"].drop_nulls().unique().to_list())
