"""When a GPU had nothing to do, and what the host did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.links import UNKNOWN_FUNCTION, UNKNOWN_KERNEL
from tracer.analysis.runtime_survey import Steps, count_steps

if TYPE_CHECKING:
    from tracer.trace import Trace

LEAST_GAP_NS = 10_000
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Gap:
    """A time in which nothing ran on a device. Shares are of the gap; they overlap where threads do.

    `host` has what the host's threads did: {what (op, or API call outside ops), source, share},
    most first; `calls` the API calls within ops: {what, share}. `outside_share` is the part in which
    no thread of the process was in an op or an API call: Python, or waiting for something else.
    """

    start_ns: int
    duration_ns: int
    after: str
    before: str
    host: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    outside_share: float


@dataclass(frozen=True)
class Idleness:
    """One device in one process, which had `steps`. `gaps`: the longest of those that are long."""

    process: int
    device: int
    window_ns: int
    steps: Steps
    busy_ns: int
    long_gaps: int
    long_gaps_ns: int
    short_gaps: int
    short_gaps_ns: int
    gaps: list[Gap]

    @property
    def steady(self) -> bool:
        """Whether the window is that of the steady steps."""
        return self.steps.steady > 0

    @property
    def long_ns(self) -> int:
        """A gap is long if it takes at least this."""
        return _long_ns(self.window_ns)

    @property
    def idle_share(self) -> float:
        return 1 - self.busy_ns / self.window_ns if self.window_ns else 0.0


def idleness(trace: Trace, limit: int = 10) -> list[Idleness]:
    """Idle time of every device in steady state; over all its work where no step is steady.

    A gap is long if it takes at least 10 us and 1 % of that window.
    """
    timed = trace.gpu_activities.filter((pl.col("start_ns") > 0) & (pl.col("end_ns") >= pl.col("start_ns")))
    found = []
    for (process, device), activities in timed.partition_by(
        "process", "device", as_dict=True, maintain_order=True
    ).items():
        found.append(_of_device(trace, activities, int(process), int(device), limit))
    return sorted(found, key=lambda one: (one.process, one.device))


def _of_device(trace: Trace, activities: pl.DataFrame, process: int, device: int, limit: int) -> Idleness:
    window = _steady_window(trace, process)
    begin, end = window or activities.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    work = (
        activities.filter((pl.col("end_ns") > begin) & (pl.col("start_ns") < end))
        .sort("start_ns", "end_ns")
        .select("name", start=pl.col("start_ns").clip(begin, end), end=pl.col("end_ns").clip(begin, end))
        .with_columns(busy_until=pl.col("end").cum_max())
    )
    edges = pl.concat(
        [
            pl.DataFrame({"start": [begin], "busy_until": [begin], "name": ["the window's start"]}),
            work.select("start", "busy_until", pl.col("name").cast(pl.String).fill_null(UNKNOWN_KERNEL)),
            pl.DataFrame({"start": [end], "busy_until": [end], "name": ["the window's end"]}),
        ]
    )
    gaps = edges.select(
        begin="busy_until",
        length=pl.col("start").shift(-1) - pl.col("busy_until"),
        after="name",
        before=pl.col("name").shift(-1),
    ).filter(pl.col("length") > 0)
    window_ns = int(end - begin)
    long = pl.col("length") >= _long_ns(window_ns)
    long_gaps, short_gaps = gaps.filter(long), gaps.filter(~long)
    host, calls = _host(trace, process), _calls_in_ops(trace, process)
    return Idleness(
        process=process,
        device=device,
        window_ns=window_ns,
        steps=count_steps(trace, process),
        busy_ns=window_ns - int(gaps["length"].sum()),
        long_gaps=len(long_gaps),
        long_gaps_ns=int(long_gaps["length"].sum()),
        short_gaps=len(short_gaps),
        short_gaps_ns=int(short_gaps["length"].sum()),
        gaps=[
            _gap(row, host, calls)
            for row in long_gaps.sort("length", descending=True, maintain_order=True)
            .head(limit)
            .iter_rows(named=True)
        ],
    )


def _long_ns(window_ns: int) -> int:
    return max(LEAST_GAP_NS, ceil(LEAST_SHARE * window_ns))


def _steady_window(trace: Trace, process: int) -> tuple[int, int] | None:
    """From the first call of the first steady step to the end of the last."""
    told = [
        table.filter((pl.col("process") == process) & (pl.col("phase").cast(pl.String) == "steady")).select(
            "start_ns", "end_ns"
        )
        for table in (trace.hops, trace.api_calls)
    ]
    rows = pl.concat(told, how="vertical_relaxed")
    if rows.is_empty():
        return None
    return int(rows["start_ns"].min()), int(rows["end_ns"].max())  # type: ignore[arg-type]


def _host(trace: Trace, process: int) -> pl.DataFrame:
    """Outermost hops and API calls outside ops of a process: what, source, start_ns, end_ns."""
    hops = trace.hops.filter((pl.col("process") == process) & pl.col("parent").is_null()).select(
        pl.col("op", "source").cast(pl.String), "start_ns", "end_ns"
    )
    calls = trace.api_calls.filter((pl.col("process") == process) & pl.col("hop").is_null()).select(
        pl.col("name", "source").cast(pl.String), "start_ns", "end_ns"
    )
    return pl.concat(
        [
            hops.rename({"op": "what"}),
            calls.rename({"name": "what"}).with_columns(pl.col("what").fill_null(UNKNOWN_FUNCTION)),
        ]
    )


def _calls_in_ops(trace: Trace, process: int) -> pl.DataFrame:
    """API calls within ops of a process, without those within another one: what, start_ns, end_ns."""
    mine = pl.col("hop").is_not_null() & pl.col("parent").is_null() & (pl.col("process") == process)
    return trace.api_calls.filter(mine).select(
        "start_ns", "end_ns", what=pl.col("name").cast(pl.String).fill_null(UNKNOWN_FUNCTION)
    )


def _within(rows: pl.DataFrame, begin: int, length: int) -> pl.DataFrame:
    """The rows that overlap a time, cut to it."""
    overlap = (pl.col("end_ns") > begin) & (pl.col("start_ns") < begin + length)
    return rows.filter(overlap).with_columns(pl.col("start_ns", "end_ns").clip(begin, begin + length))


def _shares(rows: pl.DataFrame, length: int, *columns: str) -> list[dict[str, Any]]:
    """What took most of a time: the three with the largest share of it."""
    return (
        rows.group_by(columns, maintain_order=True)
        .agg(share=(pl.col("end_ns") - pl.col("start_ns")).sum() / length)
        .sort("share", descending=True, maintain_order=True)
        .head(3)
        .to_dicts()
    )


def _gap(gap: dict[str, Any], host: pl.DataFrame, calls: pl.DataFrame) -> Gap:
    begin, length = gap["begin"], gap["length"]
    meanwhile = _within(host, begin, length)
    covered = (
        meanwhile.sort("start_ns")
        .select("start_ns", "end_ns", before=pl.col("end_ns").cum_max().shift(1).fill_null(begin))
        .select((pl.col("end_ns") - pl.max_horizontal("start_ns", "before")).clip(0).sum())
        .item()
    )
    return Gap(
        start_ns=begin,
        duration_ns=length,
        after=gap["after"],
        before=gap["before"],
        host=_shares(meanwhile, length, "what", "source"),
        calls=_shares(_within(calls, begin, length), length, "what"),
        outside_share=1 - (covered or 0) / length,
    )
