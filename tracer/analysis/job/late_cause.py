"""What made a rank late: a line on its host, more work of its GPU, other inputs, or a slower GPU."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracer.analysis.job.lines_before import BESIDE, GPU, HOST, IDLE

_LEAST, _MOST = 0.25, 3.0  # of what a rank was late
_SAME_RUNS = 0.5
WORK, INPUTS, SLOWER = "gpu work", "gpu inputs", "slower gpu"
_PLACE = ("before", "op")
_WORK = (*_PLACE, "inputs", "kernel")


@dataclass(frozen=True)
class Cause:
    """`why`: HOST, WORK (of the GPU, in one line or in many), INPUTS (of the same op and line) or SLOWER.

    `before`, `after`, `op`, `text`, `inputs` and `kernel` are as in lines_before.LINES; `kernel` is the one
    with the most time more, `runs` how many kernels more, `others_inputs` are those of most time on the other
    ranks, and `ratio` is how long the same kernels took, over the time on the other ranks. All are in the
    collectives in which the rank was late; None: it says nothing here.
    """

    why: str | None = None
    excess_ns: int | None = None
    before: str | None = None
    after: str | None = None
    op: str | None = None
    text: str | None = None
    inputs: str | None = None
    others_inputs: str | None = None
    kernel: str | None = None
    runs: int | None = None
    ratio: float | None = None


CAUSE: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("why", "before", "after", "op"), pl.String),
    "excess_ns": pl.Int64,
    **dict.fromkeys(("text", "inputs", "others_inputs", "kernel"), pl.String),
    "runs": pl.Int64,
    "ratio": pl.Float64,
}


def cause_of(own: pl.DataFrame, others: pl.DataFrame, ranks: int, late_ns: int) -> Cause:
    """What took longest on a rank that was late by `late_ns`, over the mean of `ranks` others.

    `own` and `others` (of all of them) are lines_before.LINES with `taken_ns`, the time without waits. All
    values are None if no part explains the lateness: it is less than a quarter of it, or over three times it.
    """
    on_gpu = _total(own, GPU) - _total(others, GPU) // ranks
    idle = _total(own, IDLE) - _total(others, IDLE) // ranks
    is_busy = on_gpu >= _LEAST * late_ns and on_gpu > idle
    found = _of_gpu(own, others, ranks, on_gpu, late_ns) if is_busy else _of_host(own, others, ranks)
    explains = _LEAST * late_ns <= (found.excess_ns or 0) <= _MOST * late_ns
    return found if explains else Cause()


def _total(rows: pl.DataFrame, at: str) -> int:
    return int(rows.filter(pl.col("at") == at)["taken_ns"].sum())


def _over(own: pl.DataFrame, others: pl.DataFrame, keys: tuple[str, ...], ranks: int) -> pl.DataFrame:
    """keys, text, runs, taken_ns, mean_runs, mean_ns (of the others) and excess_ns, the most first."""
    sums = others.group_by(keys).agg(
        mean_runs=pl.col("runs").sum() / ranks, mean_ns=pl.col("taken_ns").sum() // ranks
    )
    return (
        own.group_by(keys)
        .agg(pl.col("text").max(), pl.col("runs", "taken_ns").sum())
        .join(sums, on=keys, how="left", nulls_equal=True)
        .with_columns(pl.col("mean_runs", "mean_ns").fill_null(0))
        .with_columns(excess_ns=pl.col("taken_ns") - pl.col("mean_ns"))
        .sort("excess_ns", *keys, descending=[True, *[False] * len(keys)], nulls_last=True)
    )


def _of_host(own: pl.DataFrame, others: pl.DataFrame, ranks: int) -> Cause:
    keys = ("before", "after", "op")
    on_host = pl.col("at") == HOST
    over = _over(own.filter(on_host), others.filter(on_host), keys, ranks)
    known = over.filter(~pl.all_horizontal(pl.col(*keys).is_null()))
    first = known.head(1).select(*keys, "text", "excess_ns").to_dicts()
    return Cause(HOST, **first[0]) if first else Cause()


def _of_gpu(own: pl.DataFrame, others: pl.DataFrame, ranks: int, on_gpu_ns: int, late_ns: int) -> Cause:
    own, others = (rows.filter(pl.col("at").is_in([GPU, BESIDE])) for rows in (own, others))
    of_kernels = _over(own, others, _WORK, ranks).with_columns(
        same=(pl.col("runs") - pl.col("mean_runs")).abs() < _SAME_RUNS
    )
    same = of_kernels.filter("same")
    slower_ns = int(same["excess_ns"].sum())
    if slower_ns >= on_gpu_ns / 2:
        return Cause(
            SLOWER, slower_ns, ratio=int(same["taken_ns"].sum()) / max(1, int(same["mean_ns"].sum()))
        )
    more = of_kernels.filter(~pl.col("same")).group_by(_PLACE).agg(more_ns=pl.col("excess_ns").sum())
    places = _over(own, others, _PLACE, ranks).join(more, on=_PLACE, nulls_equal=True)
    place = places.sort("more_ns", descending=True, maintain_order=True).row(0, named=True)
    if place["excess_ns"] < _LEAST * late_ns:
        return Cause(WORK, on_gpu_ns)
    here = pl.all_horizontal(pl.col(name).eq_missing(pl.lit(place[name], pl.String)) for name in _PLACE)
    kernel = of_kernels.filter(here).row(0, named=True)
    inputs, others_inputs = (_most(rows.filter(here)) for rows in (own, others))
    is_other = others_inputs is not None and inputs != others_inputs
    return Cause(
        INPUTS if is_other else WORK,
        place["excess_ns"],
        before=place["before"],
        op=place["op"],
        text=place["text"],
        inputs=inputs,
        others_inputs=others_inputs,
        kernel=kernel["kernel"],
        runs=round(place["runs"] - place["mean_runs"]),
    )


def _most(rows: pl.DataFrame) -> str | None:
    """The inputs of most time."""
    by = rows.group_by("inputs").agg(pl.col("taken_ns").sum()).sort("taken_ns", "inputs", descending=True)
    return by["inputs"][0] if len(by) else None
