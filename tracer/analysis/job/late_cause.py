"""What made a rank late: a line on its host, more work of its GPU, other inputs, or a slower GPU."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracer.analysis.job.lines_before import GPU, HOST, IDLE

_LEAST, _MOST = 0.25, 3.0  # of what a rank was late
WORK, INPUTS, SLOWER = "gpu work", "gpu inputs", "slower gpu"
_PLACE = ("before", "op")
_WORK = (*_PLACE, "inputs", "kernel")
SUMS = ("taken_ns", "ran", "ran_ns")
"""`taken_ns`: the time of lines_before.LINES without waits"""


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

    `own` and `others` (of all of them) are keys and text of lines_before.LINES, and SUMS. All values are
    None if no part explains the lateness: it is less than a quarter of it, or over three times it.
    """
    on_gpu = _total(own, GPU) - _total(others, GPU) // ranks
    idle = _total(own, IDLE) - _total(others, IDLE) // ranks
    is_busy = on_gpu >= _LEAST * late_ns and on_gpu > idle
    found = _of_gpu(own, others, ranks, late_ns) if is_busy else _of_host(own, others, ranks)
    explains = _LEAST * late_ns <= (found.excess_ns or 0) <= _MOST * late_ns
    return found if explains else Cause()


def _total(rows: pl.DataFrame, at: str) -> int:
    return int(rows.filter(pl.col("at") == at)["taken_ns"].sum())


def _over(own: pl.DataFrame, others: pl.DataFrame, keys: tuple[str, ...], ranks: int) -> pl.DataFrame:
    """keys, text, SUMS, the others' mean of each (mean_ran), and excess_ns of the time, the most first."""
    sums = others.group_by(keys).agg((pl.col(name).sum() / ranks).alias(f"mean_{name}") for name in SUMS)
    return (
        own.group_by(keys)
        .agg(pl.col("text").max(), pl.col(SUMS).sum())
        .join(sums, on=keys, how="left", nulls_equal=True)
        .with_columns(pl.col("^mean_.*$").fill_null(0))
        .with_columns(excess_ns=pl.col("taken_ns") - pl.col("mean_taken_ns").cast(pl.Int64))
        .sort("excess_ns", *keys, descending=[True, *[False] * len(keys)], nulls_last=True)
    )


def _of_host(own: pl.DataFrame, others: pl.DataFrame, ranks: int) -> Cause:
    keys = ("before", "after", "op")
    on_host = pl.col("at") == HOST
    over = _over(own.filter(on_host), others.filter(on_host), keys, ranks)
    known = over.filter(~pl.all_horizontal(pl.col(*keys).is_null()))
    first = known.head(1).select(*keys, "text", "excess_ns").to_dicts()
    return Cause(HOST, **first[0]) if first else Cause()


def _of_gpu(own: pl.DataFrame, others: pl.DataFrame, ranks: int, late_ns: int) -> Cause:
    """Slower kernels, or more of them.

    A rank that waits runs kernels beside the collective in which it waits. How many there are and how long
    each takes is compared over all of them; only those behind the collective make a rank late.
    """
    own, others = (rows.filter(pl.col("at") == GPU) for rows in (own, others))
    of_one, of_others = pl.col("ran_ns") / pl.col("ran"), pl.col("mean_ran_ns") / pl.col("mean_ran")
    more_ran_ns = (pl.col("ran") - pl.col("mean_ran")) * of_one.fill_nan(0)
    of_kernels = _over(own, others, _WORK, ranks).with_columns(
        same=(pl.col("ran") > 0) & (pl.col("mean_ran") > 0),
        more_ns=pl.min_horizontal("excess_ns", more_ran_ns.cast(pl.Int64)),
    )
    same = of_kernels.filter("same").with_columns(as_others_ns=of_others * pl.col("ran"))
    taken_ns, as_others_ns = same.select(pl.col("ran_ns").cast(pl.Float64), "as_others_ns").sum().row(0)
    slower_ns = round(taken_ns - as_others_ns)
    more_ns = int(of_kernels["more_ns"].clip(0).sum())
    if slower_ns > more_ns:
        return Cause(SLOWER, slower_ns, ratio=taken_ns / max(1.0, as_others_ns))
    more = of_kernels.group_by(_PLACE).agg(pl.col("more_ns").clip(0).sum())
    places = _over(own, others, _PLACE, ranks).join(more, on=_PLACE, nulls_equal=True)
    place = places.sort("more_ns", descending=True, maintain_order=True).row(0, named=True)
    if place["more_ns"] < _LEAST * late_ns:
        return Cause(WORK, more_ns)
    here = pl.all_horizontal(pl.col(name).eq_missing(pl.lit(place[name], pl.String)) for name in _PLACE)
    kernel = of_kernels.filter(here).sort("more_ns", descending=True, maintain_order=True).row(0, named=True)
    inputs, others_inputs = (_most(rows.filter(here)) for rows in (own, others))
    is_other = others_inputs is not None and inputs != others_inputs
    return Cause(
        INPUTS if is_other else WORK,
        min(place["excess_ns"], int(place["ran_ns"] - place["mean_ran_ns"])),
        before=place["before"],
        op=place["op"],
        text=place["text"],
        inputs=inputs,
        others_inputs=others_inputs,
        kernel=kernel["kernel"],
        runs=round(place["ran"] - place["mean_ran"]),
    )


def _most(rows: pl.DataFrame) -> str | None:
    """The inputs of most time."""
    by = rows.group_by("inputs").agg(pl.col("taken_ns").sum()).sort("taken_ns", "inputs", descending=True)
    return by["inputs"][0] if len(by) else None
