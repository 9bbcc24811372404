"""From when on the calls of each rank are counted, so that one number is one collective on all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tracer.analysis.job.part import RankPart

NEVER = 1 << 62
"""Of a rank whose calls cannot be counted: tracer attach began its trace when others had begun already"""


@dataclass(frozen=True)
class Numbering:
    """The calls of rank R count from `begins[R]` (ns of its trace), the begin of `step` on each.

    `step` is None if every trace has the first call. `begins` lacks each rank whose calls cannot be counted.
    """

    step: int | None
    begins: Mapping[int, int]

    def of(self, calls: pl.DataFrame) -> pl.DataFrame:
        """`calls` (start_ns, rank, group...) with their numbers; null before the begin."""
        if self.step is None and not any(self.begins.values()):
            known = pl.col("rank").is_in(list(self.begins))
            return calls.with_columns(number=pl.when(known).then("number"))
        begin = pl.col("rank").replace_strict(dict(self.begins), default=NEVER, return_dtype=pl.Int64)
        counts = pl.col("start_ns") >= begin
        first = pl.col("number").filter(counts).min().over("rank", "group")
        return calls.with_columns(number=pl.when(counts).then(pl.col("number") - first))


def whole_from(part: RankPart) -> int | None:
    """From when on a trace has all collective calls of its rank, ns; None: it has the first one too.

    A ring overwrites the oldest hops of each thread, so the thread that begins last decides.
    """
    certificate = part.trace.certificate
    if certificate.get("attached"):
        return NEVER
    if not certificate.get("overwritten_hops"):
        return None
    hops = part.trace.hops.filter(pl.col("process") == part.process).select(
        "thread", "start_ns", calls=pl.col("op").cast(pl.String).str.starts_with("c10d::")
    )
    firsts = hops.group_by("thread").agg(pl.col("start_ns").min(), pl.col("calls").any()).filter("calls")
    return int(firsts["start_ns"].max() or 0)  # type: ignore[arg-type]


def numbering(whole: Mapping[int, int | None], steps: Mapping[int, pl.DataFrame]) -> Numbering:
    """How to count, out of `whole_from` of each rank and its steps (step, start_ns).

    Where a trace lacks the first calls, all are counted from the first step that is whole in every trace.
    """
    if all(begin is None for begin in whole.values()):
        return Numbering(None, dict.fromkeys(whole, 0))
    firsts = [
        steps[rank].filter(pl.col("start_ns") > (-1 if begin is None else begin))["step"].min()
        for rank, begin in whole.items()
    ]
    if any(first is None for first in firsts):
        return Numbering(None, {})
    step = max(int(first) for first in firsts)  # type: ignore[arg-type]
    begins = {rank: own.filter(pl.col("step") == step)["start_ns"].min() for rank, own in steps.items()}
    if any(begin is None for begin in begins.values()):
        return Numbering(None, {})
    return Numbering(step, {rank: int(begin) for rank, begin in begins.items()})  # type: ignore[arg-type]
