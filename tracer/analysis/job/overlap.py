"""How much of the communication ran while the GPU computed."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracer.analysis.cover import Cover
from tracer.analysis.job.collectives import communicates
from tracer.analysis.job.part import RankPart


@dataclass(frozen=True)
class Overlap:
    """GPU time of a rank in nanoseconds, in its steady steps (in the recording where there are none).

    `communication_ns`: a kernel of NCCL ran; `beside_ns`: and another kernel too; `computing_ns`: another
    kernel ran; `wall_ns`: the steps.
    """

    communication_ns: int
    beside_ns: int
    computing_ns: int
    wall_ns: int


def overlap_of(part: RankPart) -> Overlap | None:
    """None if the GPU of the rank ran no kernel of NCCL."""
    activities = part.trace.gpu_activities.filter(
        (pl.col("process") == part.process)
        & (pl.col("kind").cast(pl.String) == "kernel")
        & pl.col("start_ns").is_not_null()
        & pl.col("end_ns").is_not_null()
    ).with_columns(communicates=communicates())
    if not activities["communicates"].any():
        return None
    steps = part.trace.steps.filter(
        (pl.col("process") == part.process) & (pl.col("phase").cast(pl.String) == "steady")
    )
    if steps.is_empty():
        steps = activities.select(pl.col("start_ns").min(), pl.col("end_ns").max())
    begins, ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    communication = _cover(activities.filter("communicates"))
    computing = _cover(activities.filter(~pl.col("communicates")))

    def within(cover: Cover) -> int:
        return int(cover.within(begins, ends).sum())

    both = _cover(activities)
    parts = within(communication), within(computing)
    return Overlap(
        communication_ns=parts[0],
        beside_ns=sum(parts) - within(both),
        computing_ns=parts[1],
        wall_ns=int((ends - begins).sum()),
    )


def _cover(activities: pl.DataFrame) -> Cover:
    return Cover.of(activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy())
