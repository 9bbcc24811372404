"""How much memory torch's allocators had given out, and which lines and ops asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracer.analysis.phases import BACKWARD, in_backward
from tracer.analysis.trees import outermost_rows, parent_rows

if TYPE_CHECKING:
    from tracer.trace import Trace

_MOST_DEVICES = 64


@dataclass(frozen=True)
class MemoryUse:
    """One device in one process. Bytes are those given out since the recording began, and not taken back.

    peak_bytes      the most at one time, at `peak_ns`, in step `peak_step` (None: in no step)
    end_bytes       what was left at the end
    allocated_bytes of all blocks that were given out, `blocks`
    unknown         blocks that were taken back, and had been given out before the recording
    table           most at the peak first: source (the line, of a backward op its forward line; null: no
                    Python line), op (the outermost op call; null: no op), blocks, allocated_bytes,
                    freed_bytes, own_peak_bytes (the most at one time of this row alone), peak_bytes (at the
                    peak of the device)
    """

    process: int
    device: str
    peak_bytes: int
    peak_ns: int
    peak_step: int | None
    end_bytes: int
    allocated_bytes: int
    blocks: int
    unknown: int
    table: pl.DataFrame


def memory_use(trace: Trace) -> list[MemoryUse]:
    """The use of each device in each process that was recorded with `--memory`, most memory first.

    Of a trace of more devices than a machine has, of those with most blocks.
    """
    if trace.memory.is_empty():
        return []
    devices = trace.memory["device"].value_counts(sort=True)["device"].head(_MOST_DEVICES)
    asked = _with_origin(trace).filter(pl.col("device").is_in(devices.implode()))
    parts = asked.partition_by("process", "device", as_dict=True, maintain_order=True)
    found = [_of_device(int(process), str(device), part) for (process, device), part in parts.items()]
    return sorted(found, key=lambda use: -use.peak_bytes)


def of_recorded_blocks() -> pl.Expr:
    """Whether a row of `memory` is of a block that was given out while the recording ran."""
    return (pl.col("bytes") > 0).fill_null(False) | pl.col("allocated_by").is_not_null()


def curve(trace: Trace, process: int, device: str) -> pl.DataFrame:
    """The bytes given out on a device after each change: time_ns, bytes."""
    rows = trace.memory.filter((pl.col("process") == process) & (pl.col("device").cast(pl.String) == device))
    return rows.filter(of_recorded_blocks()).select("time_ns", pl.col("bytes").cum_sum())


def _with_origin(trace: Trace) -> pl.DataFrame:
    """The table with the op and line that asked for each block, also where it is taken back."""
    hops = trace.hops
    outermost = outermost_rows(parent_rows(hops))
    in_autograd = pl.col("source").is_null() & in_backward()
    asking = hops.select(
        hop="id",
        origin_op=pl.col("op").cast(pl.String).gather(outermost),
        source=pl.when(in_autograd)
        .then(pl.lit(BACKWARD))
        .otherwise(pl.coalesce(pl.col("source").cast(pl.String), pl.col("called_from").cast(pl.String)))
        .gather(outermost),
    )
    memory = trace.memory.with_columns(
        pl.col("device").cast(pl.String), block=pl.coalesce("allocated_by", "id")
    )
    blocks = memory.select("hop", block="id", line=pl.col("source").cast(pl.String)).join(
        asking, on="hop", how="left", maintain_order="left"
    )
    origins = blocks.select("block", source=pl.coalesce("source", "line"), op="origin_op")
    return memory.drop("source").join(origins, on="block", how="left", maintain_order="left")


def _of_device(process: int, device: str, rows: pl.DataFrame) -> MemoryUse:
    known = rows.filter(of_recorded_blocks())
    given = known.filter(pl.col("bytes") > 0)
    at = known["bytes"].cum_sum()
    top = int(at.arg_max() or 0)
    until = pl.col("row") <= top
    table = (
        known.with_row_index("row")
        .group_by("source", "op", maintain_order=True)
        .agg(
            blocks=(pl.col("bytes") > 0).sum(),
            allocated_bytes=pl.col("bytes").filter(pl.col("bytes") > 0).sum(),
            freed_bytes=-pl.col("bytes").filter(pl.col("bytes") < 0).sum(),
            own_peak_bytes=pl.col("bytes").cum_sum().max(),
            peak_bytes=pl.col("bytes").filter(until).sum(),
        )
        .sort("peak_bytes", "own_peak_bytes", "allocated_bytes", descending=True, maintain_order=True)
    )
    return MemoryUse(
        process=process,
        device=device,
        peak_bytes=int(at[top]) if len(at) else 0,
        peak_ns=int(known["time_ns"][top]) if len(at) else 0,
        peak_step=known["step"][top] if len(at) else None,
        end_bytes=int(at[-1]) if len(at) else 0,
        allocated_bytes=int(given["bytes"].sum()),
        blocks=len(given),
        unknown=len(rows) - len(known),
        table=table,
    )
