"""Which schedule of torch.distributed.pipelining a rank ran, by its ranges of record_function."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracer.analysis.job.part import RankPart

SCHEDULE: dict[str, pl.DataType | type[pl.DataType]] = {
    "stages_here": pl.Int64,
    "microbatches": pl.Int64,
    "splits_backward": pl.Boolean,
}
"""How many stages the rank has (interleaved: several), the microbatches of a step, and whether a backward is
split into inputs and weights (zero-bubble). Null: not known, as no range says it"""
_ONE_STAGE = r"^Forward (\d+)$"
_STAGES = r"^PP:(\d+)([FIWB])(\d+)$"


def schedule_of(part: RankPart) -> dict[str, Any]:
    """SCHEDULE: of GPipe and 1F1B the ranges are `Forward 3`, of others `PP:1F3`: stage, work, microbatch."""
    names = part.trace.ranges.filter(pl.col("process") == part.process)["name"].cast(pl.String).unique()
    found = names.to_frame("name").select(
        stage=pl.col("name").str.extract(_STAGES, 1),
        work=pl.col("name").str.extract(_STAGES, 2),
        microbatch=pl.col("name").str.extract(_STAGES, 3),
        alone=pl.col("name").str.extract(_ONE_STAGE, 1),
    )
    several = found.drop_nulls("stage")
    if len(several):
        splits = several["work"].is_in(["I", "W"]).any()
        return dict(
            zip(
                SCHEDULE, (several["stage"].n_unique(), several["microbatch"].n_unique(), splits), strict=True
            )
        )
    alone = found["alone"].drop_nulls()
    return dict(zip(SCHEDULE, (1, len(alone), False) if len(alone) else (None,) * 3, strict=True))
