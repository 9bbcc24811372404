"""What took the time of a rank before each of its collective calls, by line, op and kernel."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracer.analysis.cover import Cover
from tracer.analysis.gaps import gaps_within
from tracer.analysis.inputs_text import signature_texts
from tracer.analysis.job.collectives import NAMESPACE, communicates
from tracer.analysis.job.part import RankPart
from tracer.analysis.job.windows import gpu_windows, host_windows, pieces
from tracer.analysis.phases import ops_of
from tracer.analysis.source_lines import SourceLines
from tracer.analysis.trees import outermost_rows, parent_rows

HOST, GPU, IDLE = "host", "gpu", "idle"
LINES: dict[str, pl.DataType | type[pl.DataType]] = {
    "group": pl.String,
    "number": pl.Int64,
    **dict.fromkeys(("at", "before", "after", "op", "inputs", "kernel", "text"), pl.String),
    **dict.fromkeys(("total_ns", "ran", "ran_ns"), pl.Int64),
    "behind_group": pl.String,
    "behind_number": pl.Int64,
    "start_ns": pl.Int64,
}
_KEYS = ("at", "before", "after", "op", "inputs", "kernel")
_BEHIND = ("behind_group", "behind_number", "start_ns")
_SHORT_NS = 1_000  # what took less in all of a window explains no lateness


def lines_before(part: RankPart, calls: pl.DataFrame) -> pl.DataFrame:
    """LINES: what took a rank's time since its call before, of any group, for each of its collective calls.

    `calls` are those of collectives.collectives_of. Times are in ns, rows by group and number. By `at`:

    host  `before` and `after` are the lines of a gap between two ops, or `op` an op of the line `before`.
          `start_ns` is when a gap began behind a call in which its caller waits for all ranks, and
          `behind_group` and `behind_number` are of that call
    gpu   since the kernel of the call before: a `kernel`, or a copy by its name, that the outermost `op`
          with these `inputs` of line `before` launched; `ran` (how often) and `ran_ns` have those that began
          beside that kernel, too, with all of their time
    idle  how long the GPU ran nothing then

    `text` is what the line says: `after` of a gap, else `before`.
    """
    rows = pl.concat([_on_host(part, calls), _on_gpu(part, calls)], how="diagonal")
    table = rows.drop_nulls(["group", "number"]).filter(pl.max_horizontal("total_ns", "ran_ns") >= _SHORT_NS)
    table = with_text(part, table)
    kinds = {name: pl.col(name).cast(kind) for name, kind in LINES.items()}
    return table.select(kinds.values()).sort("group", "number", *_KEYS, *_BEHIND)


def with_text(part: RankPart, rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with what the line says, `after` or else `before`, as `text`."""
    line = pl.coalesce("after", "before")
    sources = SourceLines.of(part.trace)
    texts = {of: sources.text(of) or None for of in rows.select(line).to_series().unique().drop_nulls()}
    return rows.with_columns(text=line.replace_strict(texts, default=None, return_dtype=pl.String))


def _on_host(part: RankPart, calls: pl.DataFrame) -> pl.DataFrame:
    windows = host_windows(calls)
    if windows.is_empty():
        return pl.DataFrame(schema=LINES)
    rows = host_rows(part, windows)
    waits = pl.col("start_ns") == pl.col("behind_end_ns")
    keys = ("group", "number", "before", "after", "op", *_BEHIND)
    return (
        rows.join(windows.drop("from_ns", "until_ns"), on="window")
        .with_columns(pl.when(waits).then(pl.col(name)) for name in _BEHIND)
        .group_by(keys)
        .agg(pl.col("total_ns").sum(), runs=pl.len().cast(pl.Int64))
        .with_columns(at=pl.lit(HOST))
    )


def host_rows(part: RankPart, windows: pl.DataFrame) -> pl.DataFrame:
    """Of windows (window, from_ns, until_ns): window, before, after, op, total_ns, and start_ns of gaps."""
    ops = _of_python(ops_of(part.trace, part.process))
    return pl.concat([_gaps(part, windows, ops), _ops(windows, ops)], how="diagonal")


def _gaps(part: RankPart, windows: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """window, before, after, start_ns, total_ns. Calls of threads that run no Python are in gaps, too."""
    whole = windows.select(start_ns=pl.col("from_ns").first(), end_ns=pl.col("until_ns").last())
    gaps = gaps_within(part.trace, part.process, whole.head(1), ops)
    ends = np.minimum(gaps["end_ns"].to_numpy(), windows["until_ns"][-1])
    found = pieces(windows, ends - gaps["length"].to_numpy(), ends)
    return gaps.select("before", "after")[found["of"]].hstack(found.drop("of"))


def _ops(windows: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """window, before, op, total_ns: each op that began in a window, but collectives, which wait."""
    return (
        ops.filter(~pl.col("op").str.starts_with(NAMESPACE))
        .sort("start_ns")
        .join_asof(windows.select("window", "from_ns", "until_ns"), left_on="start_ns", right_on="from_ns")
        .filter(pl.col("start_ns") < pl.col("until_ns"))
        .select("window", "op", before="line", total_ns=pl.col("end_ns") - pl.col("start_ns"))
    )


def _of_python(ops: pl.DataFrame) -> pl.DataFrame:
    """Without the ops of threads that run no Python, such as gloo's: they are no place in the script."""
    has_line = (pl.col("line").is_not_null().any().over("thread")) | pl.col("thread").is_null()
    found = ops.filter(has_line)
    return found if len(found) else ops  # recorded without lines


def _on_gpu(part: RankPart, calls: pl.DataFrame) -> pl.DataFrame:
    windows = gpu_windows(calls)
    if windows.is_empty():
        return pl.DataFrame(schema=LINES)
    work = _work(part)
    begins, ends = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    found = pieces(windows, begins, ends)
    known = windows.select("window", "group", "number")
    kinds = work.select("before", "op", "inputs", "kernel")
    behind = kinds[found["of"]].hstack(found.drop("of", "start_ns"))
    rows = (
        pl.concat([behind, _begun(windows, work)], how="diagonal")
        .join(known, on="window")
        .group_by("group", "number", "before", "op", "inputs", "kernel")
        .agg(pl.col("total_ns", "ran", "ran_ns").sum())
        .with_columns(at=pl.lit(GPU))
    )
    busy = Cover.of(begins, ends).within(windows["from_ns"].to_numpy(), windows["until_ns"].to_numpy())
    idle = windows.select(
        *("group", "number"),
        total_ns=pl.col("until_ns") - pl.col("from_ns") - pl.Series(busy, dtype=pl.Int64),
        at=pl.lit(IDLE),
    )
    return pl.concat([rows, idle], how="diagonal")


def _begun(windows: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """before, op, inputs, kernel, window, ran (1), ran_ns: of all kernels since the call before began."""
    return (
        work.sort("start_ns")
        .join_asof(windows.select("window", "begun_ns", "until_ns"), left_on="start_ns", right_on="begun_ns")
        .filter(pl.col("start_ns") < pl.col("until_ns"))
        .select(
            *("before", "op", "inputs", "kernel", "window"),
            ran=pl.lit(1, pl.Int64),
            ran_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
    )


def _work(part: RankPart) -> pl.DataFrame:
    """before, op, inputs, kernel, start_ns, end_ns: kernels and copies of a rank, without communication."""
    hops = part.trace.hops
    work = part.trace.gpu_activities.filter(
        (pl.col("process") == part.process)
        & pl.col("start_ns").is_not_null()
        & pl.col("end_ns").is_not_null()
        & ~communicates()
    ).with_columns(hop=pl.col("hop").cast(pl.Int64))
    outermost = pl.Series(outermost_rows(parent_rows(hops)), dtype=pl.Int64)
    calls = hops.select(
        hop=pl.col("id").cast(pl.Int64), before=pl.coalesce("source", "called_from").cast(pl.String)
    ).hstack(hops.select(pl.col("op").cast(pl.String), signature="inputs")[outermost])
    known = work.select("hop", "name", "start_ns", "end_ns").join(calls, on="hop", how="left")
    texts = signature_texts(part.trace.signatures, known["signature"].unique())
    return known.select(
        *("before", "op", "start_ns", "end_ns"),
        inputs=pl.col("signature").cast(pl.Int64).replace_strict(texts, default=None, return_dtype=pl.String),
        kernel=pl.col("name").cast(pl.String),
    )
