"""The small trace that was recorded on a GPU (tests/gpu/sample.py), and what an op call in it did."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from tracer.trace import Trace, load

PATH = Path(__file__).parents[1] / "data" / "gpu.trace.xz"
Row = dict[str, Any]


class Sample:
    """The tables with texts as strings, and their rows by id."""

    def __init__(self) -> None:
        self.trace: Trace = load(PATH)
        self.hops = _plain(self.trace.hops)
        self.api_calls = _plain(self.trace.api_calls)
        self.library_calls = _plain(self.trace.library_calls)
        self.activities = _plain(self.trace.gpu_activities)
        self.cuda: Row = self.trace.certificate["cuda"]

    @cached_property
    def _hops(self) -> list[Row]:
        return self.hops.to_dicts()

    def hop(self, number: int) -> Row:
        return self._hops[number]

    def ops_around(self, row: Row) -> list[str]:
        """`aten::mm [CUDA]` of each hop around a call or an activity, outermost first."""
        ops, number = [], row["hop"]
        while number is not None:
            hop = self.hop(number)
            ops.insert(0, f"{hop['op']} [{hop['key']}]")
            number = hop["parent"]
        return ops

    def calls_of(self, op: str, *, line: int | None = None, step: int | None = 3) -> list[OpCall]:
        """What each outermost call of `op` in a step did, in order of time; of one script line if given."""
        found = self.hops.filter(pl.col("parent").is_null(), pl.col("op") == op)
        if step is not None:
            found = found.filter(pl.col("step") == step)
        if line is not None:
            found = found.filter(pl.col("source").str.ends_with(f":{line}"))
        return [self._call(number) for number in found.sort("start_ns")["id"]]

    def call_of(self, op: str, *, line: int | None = None, step: int = 3) -> OpCall:
        (call,) = self.calls_of(op, line=line, step=step)
        return call

    def stack_of(self, call: Row) -> list[Row]:
        return self.trace.stacks["frames"][call["stack"]].to_list()

    def by_correlation(self, activity: Row) -> Row:
        return self.api_calls.row(activity["api_call"], named=True)

    def _call(self, outermost: int) -> OpCall:
        inside, numbers = {outermost}, [outermost]
        for hop in self._hops[outermost + 1 :]:
            if hop["parent"] not in inside:
                if hop["parent"] is None and hop["thread"] == self.hop(outermost)["thread"]:
                    break
                continue
            inside.add(hop["id"])
            numbers.append(hop["id"])
        mine = pl.col("hop").is_in(numbers)
        return OpCall(
            self,
            [self.hop(number) for number in numbers],
            self.api_calls.filter(mine),
            self.library_calls.filter(mine),
            self.activities.filter(mine).sort("start_ns"),
        )


@dataclass(frozen=True)
class OpCall:
    """An outermost op call: its hops, and the API calls, library calls and GPU activities of all of them."""

    sample: Sample
    hops: list[Row]
    api_calls: pl.DataFrame
    library_calls: pl.DataFrame
    activities: pl.DataFrame

    @property
    def ops(self) -> list[str]:
        return [f"{hop['op']} [{hop['key']}]" for hop in self.hops]

    @property
    def kernels(self) -> pl.DataFrame:
        return self.activities.filter(pl.col("kind") == "kernel")

    @property
    def launches(self) -> list[str]:
        return self.api_calls.filter(pl.col("role") == "launch")["name"].to_list()

    def kernel(self, pattern: str = "") -> Row:
        rows = [row for row in self.kernels.iter_rows(named=True) if re.search(pattern, row["name"])]
        (row,) = rows
        return row

    def launch_of(self, kernel: Row) -> Row:
        return self.sample.by_correlation(kernel)

    def library_call_of(self, call: Row) -> Row:
        return self.sample.library_calls.row(call["library_call_id"], named=True)


def _plain(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pl.col(pl.Categorical).cast(pl.String))
