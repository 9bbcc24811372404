"""Ranks that wait in different collectives of one group when their traces are dumped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl


@dataclass(frozen=True)
class Mismatch:
    """Call `number` of `group` is another op on some ranks, and all these ranks have called no op since.

    `ops` has each op, the line that called it, and its ranks. The first of them called `longest_ns` ago.
    """

    group: str
    number: int
    ops: tuple[tuple[str, str | None, tuple[int, ...]], ...]
    longest_ns: int
    shortest_ns: int


def mismatches(calls: pl.DataFrame, moments: pl.DataFrame) -> tuple[Mismatch, ...]:
    """The longest wait first. `calls` are of all ranks with their numbers; `moments` has rank and MOMENT."""
    at = {row["rank"]: row for row in moments.drop_nulls("dumped_ns").iter_rows(named=True)}
    keys = ["group", "number"]
    differ = calls.drop_nulls(keys).group_by(keys).agg(ops=pl.col("op").n_unique()).filter(pl.col("ops") > 1)
    found = []
    own = calls.join(differ, on=keys, how="semi").sort("rank")
    for (group, number), rows in own.partition_by(keys, as_dict=True).items():
        ended: list[int] = []
        ops: dict[tuple[str, str | None], list[int]] = {}
        for row in rows.iter_rows(named=True):
            if row["rank"] in at and row["start_ns"] in (at[row["rank"]]["waits_ns"] or ()):
                ended.append(_ago(row, at[row["rank"]]))
                ops.setdefault((row["op"], row["source"]), []).append(row["rank"])
        if len(ended) == len(rows):
            each = tuple((op, line, tuple(ranks)) for (op, line), ranks in ops.items())
            found.append(Mismatch(str(group), int(number), each, max(ended), min(ended)))
    return tuple(sorted(found, key=lambda of: (-of.longest_ns, of.group)))


def _ago(call: dict[str, Any], at: dict[str, Any]) -> int:
    return max(0, int(at["dumped_ns"]) - int(call["start_ns"]))
