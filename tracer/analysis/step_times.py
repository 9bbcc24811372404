"""Where the wall time of each step goes: in ops, outside of them, and in waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.cover import Cover, Times
from tracer.analysis.phases import OTHER, PHASES, ProcessPhases
from tracer.analysis.runtime_survey import SYNCHRONISATION

if TYPE_CHECKING:
    from tracer.trace import Trace

OUTLIER = 1.5
"""A step is marked if it takes this many medians of the steady steps, or of all steps without those."""
BUSY = 0.2
"""A step was preempted if its thread waited this share of its time for a core: on a quiet machine runs of the
same work differ by less"""
WHOLE, AFTER = "whole recording", "after the last step"
_ENCLOSING = tuple(phase for phase in PHASES if phase != OTHER)
PARTS = ("waiting", *PHASES)
"""Of the time of a step that several of them take, each has what those before it do not"""


def step_times(trace: Trace) -> pl.DataFrame:
    """A row for each step of each process, in order, and one for what ran after the last step.

    Columns: process, step (null: not a step), name (the step's number in words), phase, module (whose call
    it is; null: the script or an optimizer said when it ended), start_ns, wall_ns, and its parts, which add
    up to it: waiting_ns (API calls that wait for the GPU), the time of each phase
    of analysis.phases (data_ns, compile_ns, communication_ns, optimizer_ns, backward_ns, forward_ns: its ops
    and what lies between them; calls of compiled code are in these too) and outside_ns (the rest, in no
    phase). Then other_ns (of the rest, what was in ops), of each phase what was outside ops
    (data_outside_ns, ...: no thread of the process was in an op or waited for the GPU), outside_ops_ns (all
    time outside ops), gpu_busy_ns (a kernel, copy or memset ran), ops (outermost op calls), cpu_ns (of the
    thread that ended the step; null: not known), preempted_ns (that thread was ready to run, but others had
    the cores) and of_median (wall_ns over the median of the process's steady steps; of all its steps without
    those).
    A process without steps has one row.
    """
    tables = [_of_process(trace, process, windows) for process, windows in _windows(trace)]
    return pl.concat(tables) if tables else _table(0, pl.DataFrame(schema=_WINDOW), {}).clear()


def waits(trace: Trace, process: int) -> pl.DataFrame:
    """API calls of a process that wait for the GPU: name, line, start_ns, end_ns, hop."""
    calls = trace.api_calls.filter(
        (pl.col("process") == process) & (pl.col("role").cast(pl.String) == SYNCHRONISATION)
    )
    return calls.select(
        pl.col("name").cast(pl.String),
        "start_ns",
        pl.col("end_ns").fill_null(pl.col("start_ns")),
        "hop",
        line=pl.col("source").cast(pl.String),
    )


_WINDOW = {
    "step": pl.Int64,
    "name": pl.String,
    "phase": pl.String,
    "module": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "cpu_ns": pl.Int64,
    "preempted_ns": pl.Int64,
}


def preempted() -> pl.Expr:
    """Of rows of step_times: whether the thread of the step waited long for a core."""
    return (pl.col("preempted_ns") >= BUSY * pl.col("wall_ns")).fill_null(False)


def recorded(trace: Trace) -> pl.DataFrame:
    """process, start_ns of its first hop and end_ns of its last one, of each process that has hops."""
    ends = pl.max_horizontal(pl.col("start_ns").max(), pl.col("end_ns").max())
    return trace.hops.group_by("process").agg(pl.col("start_ns").min(), end_ns=ends).sort("process")


def _windows(trace: Trace) -> Iterator[tuple[int, pl.DataFrame]]:
    """The steps of each process that has hops, as _WINDOW has them, and what comes after the last one."""
    for process, begin, end in recorded(trace).iter_rows():
        steps = trace.steps.filter(pl.col("process") == process).select(
            "step",
            "start_ns",
            "end_ns",
            "cpu_ns",
            "preempted_ns",
            name=pl.col("step").cast(pl.String),
            phase=pl.col("phase").cast(pl.String),
            module=pl.col("module").cast(pl.String),
        )
        last = steps["end_ns"].max() if len(steps) else None
        if last is None or last < end:
            rest = (
                None,
                WHOLE if last is None else AFTER,
                None,
                None,
                begin if last is None else last,
                end,
                None,
                None,
            )
            steps = pl.concat(
                [steps.select(list(_WINDOW)), pl.DataFrame([rest], _WINDOW, orient="row")], how="vertical"
            )
        yield int(process), steps.select(list(_WINDOW))


def _of_process(trace: Trace, process: int, windows: pl.DataFrame) -> pl.DataFrame:
    claims = Claims.of(trace, process)
    begins, ends = windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()
    taken = _Taken(begins, ends)
    parts = dict.fromkeys((f"{part}_ns" for part in PARTS), np.zeros(len(windows), np.int64))
    for part, starts, ends_of in claims.counted:
        parts[f"{part}_ns"] = taken.by(starts, ends_of)
    parts["outside_ops_ns"] = ends - begins - taken.so_far
    parts |= {f"{phase}_outside_ns": np.zeros(len(windows), np.int64) for phase in _ENCLOSING}
    for phase, starts, ends_of in claims.between:
        parts[f"{phase}_outside_ns"] = parts[f"{phase}_outside_ns"] + taken.by(starts, ends_of)
    for phase in _ENCLOSING:
        parts[f"{phase}_ns"] = parts[f"{phase}_ns"] + parts[f"{phase}_outside_ns"]
    parts["outside_ns"] = ends - begins - taken.so_far + parts[f"{OTHER}_ns"]
    parts["gpu_busy_ns"] = gpu_busy(trace, process).within(begins, ends)
    began = claims.began
    parts["ops"] = np.searchsorted(began, ends, "left") - np.searchsorted(began, begins, "left")
    return _table(process, windows, parts)


def gpu_busy(trace: Trace, process: int) -> Cover:
    """When a kernel, copy or memset of a process ran."""
    work = trace.gpu_activities.filter((pl.col("process") == process) & (pl.col("start_ns") > 0))
    return Cover.of(*_interval(work))


_Claim = tuple[str, Times, Times]


@dataclass(frozen=True)
class Claims:
    """What the time of a process is counted for: part, starts, ends. Of what several claim the first has it.

    counted   waits for the GPU, then the ops of each phase
    between   what the phases enclose between their ops
    began     when each op began that no compiled code is, in order
    """

    counted: list[_Claim]
    between: list[_Claim]
    began: Times

    @classmethod
    def of(cls, trace: Trace, process: int) -> Claims:
        phases = ProcessPhases.of(trace, process)
        ops = phases.ops
        counted = [("waiting", *_interval(waits(trace, process)))]
        counted += [(phase, *_interval(ops.filter(pl.col("phase") == phase))) for phase in PHASES]
        between = [(phase, cover.starts, cover.ends) for phase, cover in phases.enclosed()]
        return cls(counted, between, np.sort(ops.filter(~pl.col("compiled"))["start_ns"].to_numpy()))

    def pieces(self, begin: int, end: int) -> pl.DataFrame:
        """The parts of this time, in its order: part, start_ns, end_ns. What no phase has is left out.

        Added up by part they are the columns of step_times.
        """
        found = [pl.DataFrame(schema=_PIECE)]
        taken = Cover.of(np.empty(0, np.int64), np.empty(0, np.int64))
        for part, starts, ends in [*self.counted, *self.between]:
            inside = (starts < end) & (ends > begin)
            if not inside.any():
                continue
            starts, ends = np.maximum(starts[inside], begin), np.minimum(ends[inside], end)
            cover = Cover.of(np.append(taken.starts, starts), np.append(taken.ends, ends))
            new = pl.DataFrame(dict(zip(("start_ns", "end_ns"), cover.without(taken), strict=True)))
            found.append(new.select(pl.lit(part).alias("part"), pl.all()))
            taken = cover
        return _joined(pl.concat(found).filter(pl.col("part") != OTHER).sort("start_ns"))


_PIECE = {"part": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}


def _joined(pieces: pl.DataFrame) -> pl.DataFrame:
    """Pieces of a part that touch are one."""
    goes_on = (pl.col("part") == pl.col("part").shift(1)) & (pl.col("start_ns") == pl.col("end_ns").shift(1))
    return (
        pieces.group_by((~goes_on.fill_null(False)).cum_sum().alias("piece"), maintain_order=True)
        .agg(pl.col("part", "start_ns").first(), pl.col("end_ns").last())
        .drop("piece")
    )


class _Taken:
    """How much of each window is taken: what several threads do at once counts once."""

    def __init__(self, begins: Times, ends: Times) -> None:
        self._begins, self._ends = begins, ends
        self._starts, self._stops = np.empty(0, np.int64), np.empty(0, np.int64)
        self.so_far = np.zeros(len(begins), np.int64)

    def by(self, starts: Times, ends: Times) -> Times:
        """How much more of each window these intervals take than all those before."""
        cover = Cover.of(np.concatenate([self._starts, starts]), np.concatenate([self._stops, ends]))
        self._starts, self._stops = cover.starts, cover.ends
        before, self.so_far = self.so_far, cover.within(self._begins, self._ends)
        return self.so_far - before


def _interval(rows: pl.DataFrame) -> tuple[Times, Times]:
    return rows["start_ns"].to_numpy().astype(np.int64), rows["end_ns"].to_numpy().astype(np.int64)


def _table(process: int, windows: pl.DataFrame, parts: dict[str, Times]) -> pl.DataFrame:
    nothing = np.zeros(len(windows), np.int64)
    names = (
        *(f"{part}_ns" for part in PARTS),
        *("outside_ns", *(f"{phase}_outside_ns" for phase in _ENCLOSING), "outside_ops_ns"),
        *("gpu_busy_ns", "ops"),
    )
    wall = pl.col("end_ns") - pl.col("start_ns")
    steps = windows.filter(pl.col("step").is_not_null())
    steady = steps.filter(pl.col("phase") == "steady")
    usual = (steady if len(steady) else steps).select(wall.median()).item() if len(steps) > 1 else None
    return windows.select(
        pl.lit(process, pl.UInt32).alias("process"),
        *("step", "name", "phase", "module", "start_ns"),
        wall.alias("wall_ns"),
        *(pl.lit(pl.Series(parts.get(name, nothing), dtype=pl.Int64)).alias(name) for name in names),
        "cpu_ns",
        "preempted_ns",
        of_median=pl.when(pl.col("step").is_not_null())
        .then(wall / usual if usual else None)
        .cast(pl.Float64),
    )
