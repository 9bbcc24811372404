"""Where the host's time of a step went, layer by layer, without what recording cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.host_nodes import HOP, Layer, host_nodes, layer_of
from tracer.analysis.own_cost import OwnCost, own_cost
from tracer.analysis.timeline import Timeline, timeline

if TYPE_CHECKING:
    from tracer.trace import Trace

PYTHON, BINDINGS, ENGINE, BORDER = Layer("python"), Layer("bindings"), Layer("engine"), Layer("border")
TRACER, REST = Layer("tracer"), Layer("rest")
_ORDER = (
    *("python", "bindings", "border", "engine", "hop", "key", "composite", "kernel"),
    *("compiled", "library", "api", "waiting"),
)


@dataclass(frozen=True)
class Scope:
    """Which part of the steps: hops that fit `hop`, with all inside them; None: everything.

    `gap`: whether the time between two ops that fit counts too, as between two ops of one line.
    `path`: a row for each hop and call of the paths, in place of one for each layer.
    """

    hop: Callable[[str | None, str | None], bool] | None = None
    gap: bool = False
    path: bool = False


@dataclass(frozen=True)
class Row:
    """A layer: nanoseconds a step without tracer's cost (None: not known); how many hops, calls or gaps."""

    layer: Layer
    ns: float | None
    times: float | None


@dataclass(frozen=True)
class Gpu:
    """What the GPU did for the calls in scope, at the same time as the host; nanoseconds a step.

    `queueing_ns` is the sum over activities of the time from the end of the call that launched one to its
    start, which overlap.
    """

    activities: float
    busy_ns: float
    queueing_ns: float


@dataclass(frozen=True)
class Ledger:
    """The rows add up to `wall_ns`. All times are means over the steps.

    wall_ns         the wall time of a step; of a line or an op, the host's time in it
    own_ns          what recording cost in it; None: the process did not measure it
    rest_ns         time whose layer is not known
    bare_ns         the wall time without tracer: wall_ns - own_ns; None: it is not known, `unknown` says why
    gpu             None: no GPU work was recorded
    """

    process: int
    steps: tuple[int, ...]
    wall_ns: float
    rows: tuple[Row, ...]
    own: OwnCost | None
    own_ns: float | None
    rest_ns: float
    bare_ns: float | None
    unknown: tuple[str, ...]
    hops: float
    other_threads_ns: float
    gpu: Gpu | None

    @property
    def empty(self) -> bool:
        """Whether nothing was in scope."""
        return not self.hops


@dataclass
class _Sums:
    recorded: dict[Layer, float] = field(default_factory=lambda: defaultdict(float))
    cost: dict[Layer, float] = field(default_factory=lambda: defaultdict(float))
    times: dict[Layer, int] = field(default_factory=lambda: defaultdict(int))
    wall: float = 0.0
    hops: int = 0
    other_threads: float = 0.0
    chosen: list[tuple[str, int]] = field(default_factory=list)
    first: dict[tuple[str, ...], int] = field(default_factory=dict)
    """The place of each path in the order in which they first ran"""

    def rank(self, row: Row) -> tuple[Any, ...]:
        """The sort key of a row: paths as a tree, layers of a kind with most time first."""
        path = row.layer.path
        places = [self.first[path[: depth + 1]] for depth in range(len(path))]
        return _ORDER.index(row.layer.kind), places, -(row.ns or 0.0), row.layer.name


def median_step(steps: pl.DataFrame) -> tuple[int, int]:
    """The process and number of the steady step whose wall time is the median; of any step without those.

    Of several processes that with the lowest number. ValueError: there is no step.
    """
    if steps.is_empty():
        raise ValueError("no step ended")
    mine = steps.filter(pl.col("process") == pl.col("process").min())
    steady = mine.filter(pl.col("phase").cast(pl.String) == "steady")
    of = steady if len(steady) else mine
    ranked = of.with_columns(wall=pl.col("end_ns") - pl.col("start_ns")).sort("wall", "step")
    row = ranked.row((len(ranked) - 1) // 2, named=True)
    return int(row["process"]), int(row["step"])


def ledger(trace: Trace, process: int, first: int, last: int, scope: Scope | None = None) -> Ledger:
    """Of the steps `first` to `last` of a process, those that ended. ValueError: none of them did."""
    scope = scope or Scope()
    steps = trace.steps.filter((pl.col("process") == process) & pl.col("step").is_between(first, last)).sort(
        "step"
    )
    if steps.is_empty():
        raise ValueError(f"no step from {first} to {last} in process {process}")
    cost, sums = own_cost(trace.certificate, process), _Sums()
    for begin, end in steps.select("start_ns", "end_ns").iter_rows():
        nodes = host_nodes(trace, process, begin, end)
        _add(sums, nodes, timeline(nodes, begin, end), scope, cost)
    return _ledger(trace, process, steps, scope, cost, sums)


def _add(sums: _Sums, nodes: pl.DataFrame, line: Timeline, scope: Scope, cost: OwnCost | None) -> None:
    """Adds a step. Recorded time and tracer's cost go to the layer in whose time they are."""
    rows = nodes.to_dicts()
    layers = [layer_of(row["node"], row["key"], row["composite"], row["waits"]) for row in rows]
    fits = [scope.hop is None or (row["node"] == HOP and scope.hop(row["op"], row["line"])) for row in rows]
    for place in line.order:  # from the outside inwards
        parent = line.parents[place]
        fits[place] = fits[place] or (parent >= 0 and fits[parent])
    if scope.path:
        _as_paths(sums, rows, layers, fits, line)
    backward = _in_backward(rows, line)
    for piece in line.pieces:
        length = piece.end - piece.start
        if piece.owner >= 0:
            if not fits[piece.owner]:
                continue
            sums.recorded[layers[piece.owner]] += length
            sums.other_threads += length * piece.other_thread
        else:
            between = (piece.before, piece.after)
            if scope.hop is not None and not (scope.gap and all(p >= 0 and fits[p] for p in between)):
                continue
            layer = _between(backward, *between)
            sums.recorded[layer] += length
            sums.times[layer] += 1
        sums.wall += length
    for place in line.counted:
        if fits[place]:
            sums.times[layers[place]] += 1
            sums.hops += rows[place]["node"] == HOP
            sums.chosen.append((rows[place]["node"], rows[place]["id"]))
        if cost is not None and rows[place]["node"] == HOP:
            one = cost.outermost if rows[place]["outermost"] else cost.inner
            if fits[place]:
                sums.cost[layers[place]] += one.inside_ns
            parent = line.parents[place]
            if parent >= 0:
                if fits[parent]:
                    sums.cost[layers[parent]] += one.around_ns
            elif scope.hop is None or (scope.gap and fits[place] and line.before(place, fits)):
                sums.cost[_between(backward, line.previous.get(place, -1), place)] += one.around_ns


def _as_paths(
    sums: _Sums, rows: list[dict[str, Any]], layers: list[Layer], fits: list[bool], line: Timeline
) -> None:
    """Gives each node that fits a layer of its own, the same for all nodes with the same path."""
    for place in line.order:
        if not fits[place]:
            continue
        row, parent = rows[place], line.parents[place]
        outer = layers[parent].path if parent >= 0 and fits[parent] else ()
        name = f"{row['op'] or 'unknown'} [{row['key']}]" if row["node"] == HOP else str(row["op"])
        path = (*outer, name)
        layers[place] = Layer("hop", name, path)
        sums.first.setdefault(path, len(sums.first))


def _in_backward(rows: list[dict[str, Any]], line: Timeline) -> dict[int, bool]:
    """Of each outermost node whether it is a part of backward; a call outside ops is as what ran before."""
    found, last = {}, False
    for place in line.previous:
        flag = rows[place]["backward"]
        last = found[place] = last if flag is None else flag
    return found


def _between(backward: dict[int, bool], before: int, after: int) -> Layer:
    """The layer of the time between two outermost nodes; -1: there is none in the step."""
    flags = {backward[place] for place in (before, after) if place in backward}
    if flags == {True, False}:
        return BORDER
    return ENGINE if flags == {True} else PYTHON


def _ledger(
    trace: Trace, process: int, steps: pl.DataFrame, scope: Scope, cost: OwnCost | None, sums: _Sums
) -> Ledger:
    count = len(steps)
    net = {
        layer: max(ns - sums.cost[layer], 0.0) / count for layer, ns in sums.recorded.items() if layer != REST
    }
    own = sum(sums.cost.values()) / count if cost is not None else None
    wall = sums.wall / count
    rest = wall - sum(net.values()) - (own or 0.0)
    found = [Row(layer, ns, sums.times[layer] / count) for layer, ns in net.items()]
    if scope.hop is None or scope.gap:
        found.append(Row(BINDINGS, None, None))
    found.sort(key=sums.rank)
    rows = (*found, Row(TRACER, own, sums.hops / count), Row(REST, rest, None))
    unknown = _unknown(trace, cost)
    return Ledger(
        process=process,
        steps=tuple(steps["step"].to_list()),
        wall_ns=wall,
        rows=rows,
        own=cost,
        own_ns=own,
        rest_ns=rest,
        bare_ns=None if unknown or own is None else wall - own,
        unknown=unknown,
        hops=sums.hops / count,
        other_threads_ns=sums.other_threads / count,
        gpu=_gpu(trace, sums, count),
    )


def _unknown(trace: Trace, cost: OwnCost | None) -> tuple[str, ...]:
    """Why the wall time without tracer is not known."""
    options: Mapping[str, Any] = trace.environment.get("options") or {}
    why = []
    if cost is None:
        why.append("the cost of hops was not measured (process killed, or old trace)")
    if (trace.certificate.get("cuda") or {}).get("api_calls"):
        why.append("the cost of CUPTI is not measured")
    if len(trace.compiled_calls):
        why.append("the cost of following compiled code is not measured")
    if options.get("memory"):
        why.append("the cost of --memory is not measured")
    values = options.get("values") or "none"
    if values in ("hash", "all"):
        why.append("the cost of hashing results (--values hash) is not measured")
    elif values != "none" and cost is not None and not cost.boxed:
        why.append("the cost of --values scalars was not measured (old trace)")
    return tuple(why)


def _gpu(trace: Trace, sums: _Sums, steps: int) -> Gpu | None:
    if trace.gpu_activities.is_empty():
        return None
    calls = [number for node, number in sums.chosen if node == "api"]
    work = trace.gpu_activities.filter(
        pl.col("api_call").cast(pl.Int64).is_in(calls) & (pl.col("start_ns") > 0)
    ).select("start_ns", "end_ns", call=pl.col("api_call").cast(pl.Int64))
    ended = trace.api_calls.select(pl.col("id").cast(pl.Int64).alias("call"), called=pl.col("end_ns"))
    known = work.join(ended, on="call", how="left")
    queueing = known.select((pl.col("start_ns") - pl.col("called")).clip(0).sum()).item() or 0
    busy = known.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item() or 0
    return Gpu(len(work) / steps, busy / steps, queueing / steps)
