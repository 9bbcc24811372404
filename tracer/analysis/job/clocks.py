"""One clock for the times of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import polars as pl

EXACT, BY_COLLECTIVES, UNKNOWN = "exact", "collectives", "unknown"
_SCHEMA = {"rank": pl.Int64, "offset_ns": pl.Int64, "error_ns": pl.Int64, "how": pl.String}
_FEWEST = 3


class Clocked(Protocol):
    """A rank, the boot that names its host's clock, and that clock when times in its trace are 0."""

    @property
    def rank(self) -> int: ...
    @property
    def boot(self) -> str: ...
    @property
    def began_ns(self) -> int: ...


def offsets(parts: Sequence[Clocked], calls: pl.DataFrame) -> pl.DataFrame:
    """A row for each rank: what is added to its times, so that all are times of the first rank's trace.

    rank, offset_ns (null: not known), error_ns (how far it may be off; 0: not at all), how: EXACT (the first
    rank's host has the same clock), BY_COLLECTIVES (the device kernels of one collective end at the same time
    on all ranks, but for the time of a message: the median of their differences, and half of their
    interquartile range as the error), UNKNOWN (another host, and fewer than three such kernels).
    """
    first = parts[0]
    exact = {
        part.rank: part.began_ns - first.began_ns
        for part in parts
        if part.boot and part.boot == first.boot and part.began_ns and first.began_ns
    }
    exact[first.rank] = 0
    hosts: dict[str, list[Clocked]] = {}
    for part in parts:
        if part.rank not in exact:
            hosts.setdefault(part.boot or f"rank {part.rank}", []).append(part)
    rows: list[tuple[int, int | None, int | None, str]] = [
        (rank, offset, 0, EXACT) for rank, offset in exact.items()
    ]
    for others in hosts.values():
        rows += _by_collectives(others, exact, calls)
    return pl.DataFrame(sorted(rows), _SCHEMA, orient="row")


def _by_collectives(
    others: list[Clocked], known: dict[int, int], calls: pl.DataFrame
) -> list[tuple[int, int | None, int | None, str]]:
    """The ranks of one other host, which share a clock."""
    lead = others[0].began_ns
    own = pl.DataFrame(
        [(part.rank, part.began_ns - lead) for part in others],
        {"rank": pl.Int64, "shift": pl.Int64},
        orient="row",
    )
    theirs = pl.DataFrame(list(known.items()), {"rank": pl.Int64, "shift": pl.Int64}, orient="row")
    ended = calls.drop_nulls(["gpu_end_ns", "group", "number"])
    pairs = _ends(ended, theirs).join(_ends(ended, own), on=["group", "number"], suffix="_other")
    if len(pairs) < _FEWEST:
        return [(part.rank, None, None, UNKNOWN) for part in others]
    differences = pairs["end_ns"] - pairs["end_ns_other"]
    middle = int(differences.median() or 0)  # type: ignore[arg-type]
    quarter, three = (differences.quantile(q) or 0.0 for q in (0.25, 0.75))
    error = int((three - quarter) / 2) + 1
    return [(part.rank, middle + part.began_ns - lead, error, BY_COLLECTIVES) for part in others]


def _ends(calls: pl.DataFrame, shifts: pl.DataFrame) -> pl.DataFrame:
    """When the device kernels of each collective ended, on the ranks of `shifts`: the median of them."""
    ends = calls.join(shifts, on="rank").with_columns(end_ns=pl.col("gpu_end_ns") + pl.col("shift"))
    return ends.group_by("group", "number").agg(pl.col("end_ns").median().cast(pl.Int64))
