"""Time outside ops: from the end of an outermost op to the start of the next one, by the lines around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.cover import Cover
from tracer.analysis.step_times import outermost, waits

if TYPE_CHECKING:
    from tracer.trace import Trace


@dataclass(frozen=True)
class Gaps:
    """Where no thread of a process was in an op, or in an API call that waits for the GPU.

    `of`: the time that was looked at: "steady steps", "steps", or "recording" where no step ended.
    `wall_ns` and `steps` are those of that time, added up over processes. `table`, most time first:
    before and after (the Python lines of the ops around the gap; null: no Python line;
    phases.BACKWARD: a thread of autograd), before_op and
    after_op (the most frequent ones), gaps (how many), total_ns, median_ns, p95_ns, longest_ns.
    """

    of: str
    wall_ns: int
    steps: int
    outside_ns: int
    table: pl.DataFrame


def gaps(trace: Trace) -> Gaps:
    """Of the steady steps; of all steps where none is steady, and of the recording where none ended."""
    steps = trace.steps.with_columns(pl.col("phase").cast(pl.String))
    steady = steps.filter(pl.col("phase") == "steady")
    of, windows = ("steady steps", steady) if len(steady) else ("steps", steps)
    if windows.is_empty():
        of = "recording"
        windows = trace.hops.group_by("process").agg(
            start_ns=pl.col("start_ns").min(),
            end_ns=pl.max_horizontal(pl.col("start_ns").max(), pl.col("end_ns").max()),
        )
    found = [
        gaps_within(trace, int(number), part.select("start_ns", "end_ns"))
        for (number,), part in windows.sort("process").partition_by("process", as_dict=True).items()
    ]
    rows = pl.concat(found) if found else _NONE
    return Gaps(
        of=of,
        wall_ns=int((windows["end_ns"] - windows["start_ns"]).sum()),
        steps=0 if of == "recording" else len(windows),
        outside_ns=int(rows["length"].sum()),
        table=_by_lines(rows),
    )


_NONE = pl.DataFrame(
    schema={
        **dict.fromkeys(("before", "after", "before_op", "after_op"), pl.String),
        **dict.fromkeys(("length", "end_ns"), pl.Int64),
    }
)


def gaps_within(
    trace: Trace, process: int, windows: pl.DataFrame, ops: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Every gap in the windows (start_ns, end_ns) of a process. `ops`: which of step_times.outermost count.

    before, after, before_op, after_op: the lines and ops around it; length: what of it is in the windows, ns;
    end_ns: when it ended.
    """
    waiting = waits(trace, process)
    events = pl.concat(
        [
            (outermost(trace, process) if ops is None else ops).select("op", "line", "start_ns", "end_ns"),
            waiting.filter(pl.col("hop").is_null()).select("line", "start_ns", "end_ns", op="name"),
        ],
        how="diagonal",
    )
    cover = Cover.of(events["start_ns"].to_numpy(), events["end_ns"].to_numpy())
    windows = windows.sort("start_ns")
    # A gap is cut to the windows: what it has of the time before the first op of a step counts there.
    inside = Cover.of(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    lengths = inside.within(cover.ends[:-1], cover.starts[1:])
    kept = np.flatnonzero(lengths > 0)
    before, after = cover.last[:-1][kept], cover.first[1:][kept]
    return pl.DataFrame(
        {
            "before": events["line"].gather(before),
            "after": events["line"].gather(after),
            "before_op": events["op"].gather(before),
            "after_op": events["op"].gather(after),
            "length": lengths[kept],
            "end_ns": cover.starts[1:][kept],
        },
        schema=_NONE.schema,
    )


def _by_lines(rows: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("length")
    return (
        rows.group_by("before", "after", maintain_order=True)
        .agg(
            pl.col("before_op", "after_op").mode(maintain_order=True).first(),
            gaps=pl.len().cast(pl.Int64),
            total_ns=length.sum(),
            median_ns=length.median().round().cast(pl.Int64),
            p95_ns=length.quantile(0.95, "higher").cast(pl.Int64),
            longest_ns=length.max(),
        )
        .sort("total_ns", descending=True, maintain_order=True)
    )
