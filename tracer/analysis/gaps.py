"""Time outside ops: from the end of an outermost op to the start of the next one, by the lines around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.cover import Cover
from tracer.analysis.phases import ops_of
from tracer.analysis.step_times import OUTLIER, recorded, waits

if TYPE_CHECKING:
    from tracer.trace import Trace


@dataclass(frozen=True)
class Gaps:
    """Where no thread of a process was in an op, or in an API call that waits for the GPU.

    `of`: the time that was looked at: "steady steps", "steps", "step 3", or "recording" where none ended.
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


def gaps(trace: Trace, step: int | None = None) -> Gaps:
    """Of the steady steps; of all steps where none is steady, and of the recording where none ended.

    With `step` of that step. Raises LookupError if no process ended it.
    """
    steps = trace.steps.with_columns(pl.col("phase").cast(pl.String))
    if step is not None:
        return _of_step(trace, steps.filter(pl.col("step") == step), step)
    steady = steps.filter(pl.col("phase") == "steady")
    of, windows = ("steady steps", steady) if len(steady) else ("steps", steps)
    return _of_windows(trace, of, windows) if len(windows) else gaps_of_recording(trace)


def gaps_of_recording(trace: Trace) -> Gaps:
    """Of all that was recorded, in steps or not."""
    return _of_windows(trace, "recording", recorded(trace))


def longest_gaps(trace: Trace, times: pl.DataFrame, most: int) -> pl.DataFrame:
    """The longest gap of each of `most` steps of step_times that took OUTLIER medians, the longest first.

    A step none of whose gaps is a tenth of it is left out.

    process, step, wall_ns, outside_ops_ns, and of the gap longest_ns, before and after (see Gaps). If imports
    took most of it: importing (the module that took longest), imports (how many) and importing_ns (of all).
    """
    slow = times.filter(pl.col("step").is_not_null() & (pl.col("of_median") >= OUTLIER))
    slow = slow.sort("wall_ns", descending=True).head(most)
    ops = {process: ops_of(trace, process) for process in slow["process"].unique()}
    rows = []
    for row in slow.iter_rows(named=True):
        process, begin, wall = row["process"], row["start_ns"], row["wall_ns"]
        window = pl.DataFrame({"start_ns": [begin], "end_ns": [begin + wall]})
        found = gaps_within(trace, process, window, ops[process]).rename({"length": "longest_ns"})
        longest = found.filter(pl.col("longest_ns") >= _LARGE * wall).sort("longest_ns", descending=True)
        for gap in longest.head(1).iter_rows(named=True):
            end = min(gap["end_ns"], begin + wall)
            rows.append({**row, **gap, **_imports(trace, process, end - gap["longest_ns"], end)})
    return pl.DataFrame(rows, _LONGEST)


def _imports(trace: Trace, process: int, begin: int, end: int) -> dict[str, object]:
    """What a process imported for most of this time; {}: something else took it."""
    taken = pl.min_horizontal(pl.col("end_ns"), end) - pl.max_horizontal(pl.col("start_ns"), begin)
    modules = (
        trace.imports.filter((pl.col("process") == process) & (taken > 0))
        .group_by(pl.col("module").cast(pl.String))
        .agg(imports=pl.len(), ns=taken.sum())
        .sort("ns", "module", descending=[True, False])
    )
    total = min(int(modules["ns"].sum()), end - begin)  # of several threads
    if 2 * total <= end - begin:
        return {}
    return {
        "importing": modules["module"][0],
        "imports": int(modules["imports"].sum()),
        "importing_ns": total,
    }


def _of_step(trace: Trace, windows: pl.DataFrame, step: int) -> Gaps:
    if windows.is_empty():
        raise LookupError(f"no step {step} ended in this recording; tracer steps shows those that did")
    return _of_windows(trace, f"step {step}", windows)


def _of_windows(trace: Trace, of: str, windows: pl.DataFrame) -> Gaps:
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


_LARGE = 0.1
_LONGEST = {
    "process": pl.UInt32,
    "step": pl.Int64,
    "wall_ns": pl.Int64,
    "outside_ops_ns": pl.Int64,
    "longest_ns": pl.Int64,
    "before": pl.String,
    "after": pl.String,
    "importing": pl.String,
    "imports": pl.Int64,
    "importing_ns": pl.Int64,
}
_NONE = pl.DataFrame(
    schema={
        **dict.fromkeys(("before", "after", "before_op", "after_op"), pl.String),
        **dict.fromkeys(("length", "end_ns"), pl.Int64),
    }
)


def gaps_within(
    trace: Trace, process: int, windows: pl.DataFrame, ops: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Every gap in the windows (start_ns, end_ns) of a process. `ops`: which of phases.ops_of count.

    before, after, before_op, after_op: the lines and ops around it; length: what of it is in the windows, ns;
    end_ns: when it ended.
    """
    waiting = waits(trace, process)
    events = pl.concat(
        [
            (ops_of(trace, process) if ops is None else ops).select("op", "line", "start_ns", "end_ns"),
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
