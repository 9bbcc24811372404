"""The collectives that some ranks wait for when their traces are dumped, as others did not reach them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis.job.collectives import OF_TWO
from tracer.analysis.job.gpu_wait import launched_since_wait
from tracer.analysis.job.lateness import NOISE_NS
from tracer.analysis.job.part import RankPart
from tracer.analysis.last_ops import BOOKKEEPING, COLLECTIVES, last_ops

ALL_RANKS = "0"
"""torch's name of the group of all ranks"""
MOMENT: dict[str, pl.DataType | type[pl.DataType]] = {
    "dumped_ns": pl.Int64,
    "is_in": pl.Boolean,
    "op": pl.String,
    "op_ns": pl.Int64,
    "op_line": pl.String,
    "op_calls_ranks": pl.Boolean,
    "op_group": pl.String,
    "op_range": pl.String,
    "op_next": pl.String,
    "waits_ns": pl.List(pl.Int64),
    "launched": pl.List(pl.String),
}
"""Where a rank was when its trace was dumped: see `moment`"""
_LONG_NS = 1_000_000_000
_LONGER = 3
_ENOUGH = 3
"""A wait is usual if it is shorter than a second, and not longer than 3 times the longest one of at least 3
collectives before it in the group."""
SURELY = "surely"
PROBABLY = "probably"


@dataclass(frozen=True)
class Place:
    """A rank that did not reach the collective, and where it was instead.

    It was in `op`, which `line` called, for `since_ns`; or, if not `is_in`, had left that op and called no
    other one. `op` is None if it had called none. `waits` is SURELY or PROBABLY if that op is of
    torch.distributed and the rank waits for other ranks there, in `group` (None: send and recv). `within` is
    the range of record_function that its thread is in. If it is in no op, `next_line` is the line that came
    next after the same op before.
    """

    rank: int
    is_in: bool
    op: str | None
    line: str | None
    since_ns: int
    waits: str | None = None
    group: str | None = None
    within: str | None = None
    next_line: str | None = None


@dataclass(frozen=True)
class Caller:
    """A rank that called the collective `called_ns` before it was dumped.

    It `waits` there, SURELY or PROBABLY; or, if None, has called other ops since, and is at `place`.
    """

    rank: int
    called_ns: int
    waits: str | None
    place: Place


@dataclass(frozen=True)
class Outstanding:
    """A collective: the ranks `waiting` called it, those in `missing` had not when they were dumped.

    The first rank called it `longest_ns` ago, the last one `shortest_ns`, most of them at `line`. `callers`
    says of each rank of `waiting` whether it waits there, or where else it is. In the `before` collectives of
    the group that all reached the first rank waited for the last one `median_ns` in the median, and
    `most_ns` at most.
    """

    group: str
    number: int
    op: str
    line: str | None
    waiting: tuple[int, ...]
    missing: tuple[Place, ...]
    longest_ns: int
    shortest_ns: int
    callers: tuple[Caller, ...] = ()
    before: int = 0
    median_ns: int = 0
    most_ns: int = 0

    @property
    def is_usual(self) -> bool:
        """Whether ranks waited as long before: then the job probably goes on."""
        of_before = self.before >= _ENOUGH and self.longest_ns <= _LONGER * self.most_ns
        return of_before and self.longest_ns < _LONG_NS


@dataclass(frozen=True)
class Unanswered:
    """A call after which these ranks called no op, of a job whose other traces are not here to compare.

    `group` is None if it was send or recv; `number` is that of the call in its group, None: not known.
    """

    ranks: tuple[int, ...]
    op: str
    line: str | None
    group: str | None
    number: int | None
    longest_ns: int
    shortest_ns: int


def moment(part: RankPart, calls: pl.DataFrame) -> dict[str, Any]:
    """MOMENT: when the trace was dumped (null: it is no dump), and the op that the rank was in, or left last.

    Of its threads that call collectives, and the main thread: the one that did something last. If that op is
    of torch.distributed, `op_calls_ranks` says so, and `op_group` names its group. `op_range` is the open
    range of record_function, and `op_next` the line that came next after the same op before. `waits_ns` has
    the starts of the collective calls after which their thread called no op.
    `launched` is of launched_since_wait. `calls` are those of the rank.
    """
    dumped = part.trace.certificate.get("dumped_ns")
    row: dict[str, Any] = {**dict.fromkeys(MOMENT), "dumped_ns": dumped}
    if dumped is None:
        return row
    hops = part.trace.hops.filter(pl.col("process") == part.process)
    main = part.trace.processes.filter(pl.col("process") == part.process)["pid"].to_list()
    callers = hops.filter(pl.col("op").cast(pl.String).str.contains(COLLECTIVES))["thread"].unique().to_list()
    threads = last_ops(hops.filter(pl.col("thread").is_in([*main, *callers])), dumped)
    if len(threads):
        last = threads.sort("is_in", "since_ns", descending=[True, False]).row(0, named=True)
        row |= {name: last[name] for name in ("is_in", "op")}
        row |= {"op_ns": dumped - last["since_ns"], "op_line": last["source"]}
        row |= {"waits_ns": sorted(threads["waits_ns"].drop_nulls().to_list())}
        row |= {"op_calls_ranks": last["op"] == last["collective"]}
        groups = calls.filter(pl.col("start_ns") == pl.lit(last["waits_ns"], pl.Int64))["group"]
        row |= {"op_group": groups[0] if row["op_calls_ranks"] and len(groups) else None}
        row |= {"launched": launched_since_wait(part)}
        row |= {"op_range": _open_range(part, last["thread"]), "op_next": _next_line(hops, last)}
    return row


def _open_range(part: RankPart, thread: int) -> str | None:
    """The innermost range of record_function that this thread has begun and not ended."""
    ranges = part.trace.ranges
    of_thread = (pl.col("process") == part.process) & (pl.col("thread") == thread)
    found = ranges.filter(of_thread & pl.col("open")).sort("start_ns")["name"]
    return str(found[-1]) if len(found) and found[-1] is not None else None


def _next_line(hops: pl.DataFrame, last: Mapping[str, Any]) -> str | None:
    """The line after the op call that a thread left last, where it called the same op there before.

    For a.py:1, a.py:2, a.py:9, a.py:1, a.py:2 it is a.py:9. None: that op was not called there before, or
    the same line came next.
    """
    if last["is_in"] or last["source"] is None:
        return None
    of_thread = hops.filter((pl.col("thread") == last["thread"]) & pl.col("parent").is_null())
    texts = of_thread.sort("start_ns", maintain_order=True).select(
        pl.col("op").cast(pl.String), source=pl.coalesce(pl.col("called_from", "source").cast(pl.String))
    )
    texts = texts.filter(~pl.col("op").str.starts_with(BOOKKEEPING).fill_null(False))
    followed = texts.with_columns(following=pl.col("source").shift(-1))[:-1]
    same = (pl.col("op") == last["op"]) & (pl.col("source") == last["source"])
    lines = followed.filter(same & (pl.col("following") != last["source"]))["following"]
    return str(lines[-1]) if len(lines) else None


def unreached(counts: pl.DataFrame, dumped: Iterable[int]) -> pl.DataFrame:
    """group, number and rank: the first collective of a group that these ranks had not called.

    `counts` is how many calls each rank has in a group: rank, group, calls. Only ranks of `dumped` may be
    missing: what another trace lacks says nothing about where its rank is.
    """
    ranks = sorted(dumped)
    members = pl.concat(
        [
            counts.drop_nulls("group").select("rank", "group", "calls"),
            pl.DataFrame(
                {"rank": ranks, "group": ALL_RANKS, "calls": 0},
                {"rank": pl.Int64, "group": pl.String, "calls": pl.Int64},
            ),
        ]
    )
    most = members.group_by("rank", "group").agg(pl.col("calls").max())
    last = most.group_by("group").agg(most=pl.col("calls").max())
    own = most.filter(pl.col("rank").is_in(ranks))
    return (
        own.filter(pl.col("calls") == pl.col("calls").min().over("group"))
        .join(last, on="group")
        .filter(pl.col("calls") < pl.col("most"))
        .select("group", number="calls", rank="rank")
        .sort("group", "rank")
    )


def outstanding(
    missing: pl.DataFrame,
    calls: pl.DataFrame,
    moments: pl.DataFrame,
    counts: pl.DataFrame,
    collectives: pl.DataFrame,
    whole: bool,
) -> tuple[Outstanding, ...]:
    """Those that ranks wait for, in the order in which they explain each other.

    `missing` is of `unreached`; `calls` has its collectives (rank, group, number, op, source, blocks,
    start_ns); `moments` has rank, offset_ns (to the one clock) and MOMENT; `counts` is of `counts`;
    `collectives` is of job.collectives.matched; `whole`: the traces of all ranks are here.

    A rank is missing only if it was dumped after another one called: without a common clock that is not
    known, and nothing is said.
    """
    at = {row["rank"]: row for row in moments.drop_nulls(["dumped_ns", "offset_ns"]).iter_rows(named=True)}
    called, absent = {}, {}
    of_missing = calls.join(missing, on=["group", "number"], how="semi")
    calls_of = of_missing.sort("rank").partition_by("group", "number", as_dict=True, maintain_order=True)
    for (group, number), own in missing.partition_by("group", "number", as_dict=True).items():
        of_group = calls_of.get((group, number), calls.clear())
        rows = [row for row in of_group.iter_rows(named=True) if row["rank"] in at]
        if not rows or of_group["op"].n_unique() > 1:
            continue
        first = min(row["start_ns"] + at[row["rank"]]["offset_ns"] for row in rows)
        ranks = [
            rank
            for rank in own["rank"]
            if rank in at and at[rank]["dumped_ns"] + at[rank]["offset_ns"] - first > NOISE_NS
        ]
        if ranks:
            called[str(group), int(number)], absent[str(group), int(number)] = rows, ranks
    places = places_of(at, called, counts, whole)
    skews = collectives.partition_by("group", as_dict=True)
    found = []
    for (group, number), rows in called.items():
        callers = [_caller(row, at[row["rank"]], places[row["rank"]]) for row in rows]
        before = skews.get((group,), collectives.clear()).filter(pl.col("number") < number)["skew_ns"]
        lines = pl.Series([row["source"] for row in rows], dtype=pl.String).drop_nulls().mode().sort()
        found.append(
            Outstanding(
                group=group,
                number=number,
                op=rows[0]["op"],
                line=lines[0] if len(lines) else None,
                waiting=tuple(caller.rank for caller in callers),
                missing=tuple(places[rank] for rank in absent[group, number]),
                longest_ns=max(caller.called_ns for caller in callers),
                shortest_ns=min(caller.called_ns for caller in callers),
                callers=tuple(callers),
                before=len(before),
                median_ns=int(before.median() or 0),  # type: ignore[arg-type]
                most_ns=int(before.max() or 0),  # type: ignore[arg-type]
            )
        )
    return _explained(sorted(found, key=lambda of: (of.is_usual, -of.longest_ns, of.group)))


def unanswered(moments: pl.DataFrame, counts: pl.DataFrame) -> tuple[Unanswered, ...]:
    """Of a job that is not whole and in which no rank is known to be missing: the longest wait first.

    `moments` and `counts` as in `outstanding`. A wait of less than a second is none that anyone looks for.
    """
    at = {row["rank"]: row for row in moments.drop_nulls("dumped_ns").iter_rows(named=True)}
    calls = {
        (rank, group): number for rank, group, number in counts.select("rank", "group", "calls").iter_rows()
    }
    together: dict[tuple[Any, ...], list[Place]] = {}
    for place in places_of(at, {}, counts, whole=False).values():
        if place.waits and place.since_ns >= _LONG_NS:
            number = calls.get((place.rank, place.group), 0) - 1
            key = (place.op, place.line, place.group, number if number >= 0 and place.group else None)
            together.setdefault(key, []).append(place)
    found = [
        Unanswered(
            ranks=tuple(place.rank for place in places),
            op=key[0],
            line=key[1],
            group=key[2],
            number=key[3],
            longest_ns=max(place.since_ns for place in places),
            shortest_ns=min(place.since_ns for place in places),
        )
        for key, places in together.items()
    ]
    return tuple(sorted(found, key=lambda of: -of.longest_ns))


def counts(calls: pl.DataFrame) -> pl.DataFrame:
    """How many numbered calls each rank has in each group that it called: rank, group, calls."""
    return calls.group_by("rank", "group").agg(calls=(pl.col("number").max() + 1).fill_null(0).cast(pl.Int64))


def to_match(counts: pl.DataFrame, found: Sequence[Outstanding], whole: bool) -> pl.DataFrame:
    """rank, calls: how many of them other ranks must have called too, so not those that are outstanding.

    If the job is `whole`, as no rank's trace is missing, a group that one rank called alone has no other one.
    """
    for of in found:
        reached = pl.when(pl.col("group") == of.group).then(of.number)
        counts = counts.with_columns(calls=pl.min_horizontal("calls", reached))
    if whole:
        alone = pl.col("group").is_not_null() & (pl.col("rank").n_unique().over("group") == 1)
        counts = counts.filter(~alone)
    return counts.group_by("rank").agg(pl.col("calls").sum()).sort("rank")


def without(collectives: pl.DataFrame, found: Sequence[Outstanding]) -> pl.DataFrame:
    """`collectives` (group, number) that all ranks reached: of the others nobody has come last."""
    for of in found:
        collectives = collectives.filter((pl.col("group") != of.group) | (pl.col("number") < of.number))
    return collectives


def places_of(
    at: Mapping[int, dict[str, Any]],
    called: Mapping[tuple[str, int], Sequence[dict[str, Any]]],
    counts: pl.DataFrame,
    whole: bool,
) -> dict[int, Place]:
    """Where each rank is. `called` has the calls of collectives that a rank did not reach."""
    waits = {
        (row["rank"], group): SURELY if row["blocks"] else PROBABLY
        for (group, _), rows in called.items()
        for row in rows
        if row["start_ns"] in (at[row["rank"]]["waits_ns"] or ())
    }
    most = counts.drop_nulls("group").group_by("group", "rank").agg(pl.col("calls").max())
    others = {
        group: dict(own.select("rank", "calls").iter_rows())
        for (group,), own in most.partition_by("group", as_dict=True).items()
    }

    def wait(row: dict[str, Any]) -> str | None:
        group, rank = row["op_group"], row["rank"]
        if not row["op_calls_ranks"] or row["is_in"]:
            return None
        if row["op"] in OF_TWO:
            return PROBABLY
        if group is None or (rank, group) in waits:
            return waits.get((rank, group))
        of_group = others.get(group, {})
        # If another rank has called it too, all have, and it is done; or one whose trace is not here has not.
        done = of_group.get(rank, 0) + (not whole)
        return None if any(calls >= done for other, calls in of_group.items() if other != rank) else PROBABLY

    return {rank: _place(row, wait(row)) for rank, row in at.items()}


def _place(row: dict[str, Any], waits: str | None) -> Place:
    since = row["dumped_ns"] - row["op_ns"] if row["op_ns"] is not None else row["dumped_ns"]
    group = row["op_group"] if waits else None
    return Place(
        rank=row["rank"],
        is_in=bool(row["is_in"]),
        op=row["op"],
        line=row["op_line"],
        since_ns=since,
        waits=waits,
        group=group,
        within=row["op_range"],
        next_line=None if waits else row["op_next"],
    )


def _caller(call: dict[str, Any], row: dict[str, Any], place: Place) -> Caller:
    waits = SURELY if call["blocks"] else PROBABLY
    is_last = call["start_ns"] in (row["waits_ns"] or ())
    called = max(0, row["dumped_ns"] - call["start_ns"])
    return Caller(call["rank"], called, waits if is_last else None, place)


def _explained(found: Sequence[Outstanding]) -> tuple[Outstanding, ...]:
    """Each collective after those in which ranks wait that are missing in it; of a circle, the first one."""
    waits: dict[int, set[int]] = {}
    for place, of in enumerate(found):
        for caller in of.callers:
            if caller.waits:
                waits.setdefault(caller.rank, set()).add(place)
    reasons = {
        place: set().union(*(waits.get(missing.rank, ()) for missing in of.missing)) - {place}
        for place, of in enumerate(found)
    }
    order: list[Outstanding] = []
    while reasons:
        chosen = next((place for place, why in reasons.items() if not why & reasons.keys()), min(reasons))
        del reasons[chosen]
        order.append(found[chosen])
    return tuple(order)
