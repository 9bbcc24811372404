"""Which part of a step each op call and each moment belongs to: forward, backward, the optimizer, ...

Every table, tree, page, export and diff asks here, so that none counts an op where another does not.

- backward: an autograd node called the op, wherever that ran: also in a closure that an optimizer calls.
- optimizer: in a range with which torch marks its optimizers, or in a range within such a one; an optimizer
  that a hook of the backward pass steps is the optimizer. What a closure of it computes is not.
- forward: in a call of an nn.Module, or a backward node came of it, and what lies between two such ops;
  calls of outermost modules from begin to end.
- data: in a range with which torch marks its data loaders, or in a thread that it names a worker of one.
- compile: in a phase of torch.compile.
- communication: an op of torch.distributed.
- other: none of these. Where a process has neither modules nor backward, all these ops are forward.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.analysis.cover import Cover, Times
from tracer.analysis.trees import rows_of_ids
from tracer.trace.tables.distinct import distinct

if TYPE_CHECKING:
    from tracer.trace import Trace

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
DATA, COMMUNICATION, COMPILE, OTHER = "data", "communication", "compile", "other"
PHASES = (DATA, COMPILE, COMMUNICATION, OPTIMIZER, BACKWARD, FORWARD, OTHER)
"""What several threads do at once counts for the first of these"""
RANGE_OPS = "profiler::_record_function"

_OF_OPTIMIZERS = "Optimizer."  # torch marks `Optimizer.step#Adam.step` and `Optimizer.zero_grad#...`
OF_STEPS = "Optimizer.step#"
OF_LOADERS = "enumerate(DataLoader)#"
_LOADING = "pt_data_worker"
_OF_TRANSFERS = ("gloo:", "nccl:", "mpi:", "ucc:", "xccl:")  # what back ends mark, on threads of their own
_OF_DISTRIBUTED = ("c10d::", "c10d_functional::", "_c10d_functional::", "symm_mem::")
_FIRST_GRADIENT = "aten::ones_like"  # what loss.backward() begins with
_Flags = NDArray[np.bool_]


def in_backward() -> pl.Expr:
    """Whether an autograd node called the op, of each row of `hops`; an optimizer may have asked for it."""
    return pl.col("backward_node").is_not_null()


def of_compiled_backward() -> pl.Expr:
    """Whether the code is that of a backward, of each row of `compiled_calls`."""
    return (pl.col("direction").cast(pl.String) == BACKWARD).fill_null(False)


def calling_line() -> pl.Expr:
    """The line that called the op, of each row of `hops`; BACKWARD if a thread of autograd did."""
    by_autograd = pl.col("called_from").is_null() & in_backward()
    line = pl.coalesce("called_from", "source").cast(pl.String)
    return pl.when(by_autograd).then(pl.lit(BACKWARD)).otherwise(line)


def phase_of_hops(trace: Trace) -> pl.Series:
    """The phase of each row of `hops`: that of its outermost op."""
    codes = np.zeros(len(trace.hops), np.uint32)
    for process in trace.hops["process"].unique().to_list():
        ops = ProcessPhases.of(trace, process).with_marks.filter(pl.col("row").is_not_null())
        codes[ops["row"].to_numpy()] = ops["phase"].to_physical().to_numpy()
    outer = trace.hops["parent"].is_null().to_numpy()
    root = np.maximum.accumulate(np.where(outer, np.arange(len(outer)), 0))
    return _named(codes[root])


def ops_of(trace: Trace, process: int) -> pl.DataFrame:
    """Outermost op calls of a process in the order of `hops`, then calls of compiled code.

    op, line (that called), start_ns, end_ns, thread, compiled, row (of `hops`; null: a call of compiled
    code), linked (a node of the backward pass came of it), hooked (an optimizer called it that a hook of the
    backward pass stepped) and phase (one of PHASES).

    The line of an op that a thread of autograd called is BACKWARD: no Python line called it. The ops with
    which torch.profiler.record_function begins and ends a range are left out.
    """
    return ProcessPhases.of(trace, process).ops


@dataclass(frozen=True)
class ProcessPhases:
    """The phases of a process: those of its `ops`, as ops_of has them, and what they enclose.

    `with_marks` has the ops that begin or end a range, too.
    """

    ops: pl.DataFrame
    with_marks: pl.DataFrame
    _ranges: _Ranges
    _hooks: _Spans

    @classmethod
    def of(cls, trace: Trace, process: int) -> ProcessPhases:
        known, ranges = _known(trace, process), _Ranges.of(trace, process)
        hooks = _in_hooks(ranges.optimizers, known)
        sequence = _Sequence.of(known, ranges, hooks)
        columns = ("op", "line", "start_ns", "end_ns", "thread", "compiled", "row", "linked")
        ops = known.select(
            *columns,
            hooked=pl.Series(sequence.as_given(sequence.hooked)),
            phase=_named(sequence.as_given(_phases(sequence))),
        )
        return cls(ops.filter(~known["mark"]), ops, ranges, hooks)

    def enclosed(self) -> list[tuple[str, Cover]]:
        """The time that each phase takes: its ops and what lies between them, the narrowest first.

        What several have in common belongs to the first.
        """
        told = _told(self.ops)
        return [
            (DATA, self._ranges.loaders.cover()),
            (COMPILE, self._ranges.compiling.cover()),
            (COMMUNICATION, self._ranges.transfers.cover()),
            (OPTIMIZER, self._hooks.cover()),
            (BACKWARD, _backward_passes(told)),
            (FORWARD, self._ranges.modules.cover()),
            (FORWARD, _forward_passes(told)),
            (BACKWARD, _begins_in_closures(told, self._ranges.steps)),
            (OPTIMIZER, self._ranges.optimizers.cover()),
        ]


# ---- what is known of each op ----------------------------------------------------------------------
def _known(trace: Trace, process: int) -> pl.DataFrame:
    """Columns of ops_of, and node (one called it), module (it is in one), mark (it begins or ends a range:
    all bool) and range (its name).
    """
    hops = trace.hops
    first, last = np.searchsorted(hops["process"].to_numpy(), [process, process + 1])
    part = hops.slice(first, last - first).with_row_index("row", int(first))
    outer = part["parent"].is_null()
    names = distinct(part, "op")["op"].cast(pl.String).drop_nulls()
    marks = names.filter(names.str.starts_with(RANGE_OPS)).to_list()
    rows = part.filter(outer).select(
        pl.col("op").cast(pl.String),
        calling_line().alias("line"),
        "start_ns",
        pl.col("end_ns").fill_null(pl.col("end_ns").max()),  # of an open hop
        pl.col("thread").cast(pl.Int64),
        pl.lit(False).alias("compiled"),
        pl.col("row").cast(pl.Int64),
        in_backward().alias("node"),
        pl.col("module").is_not_null().alias("module"),
        pl.col("op").is_in(marks).fill_null(False).alias("mark") if marks else pl.lit(False).alias("mark"),
        pl.col("range").cast(pl.String),
        linked=pl.Series(_linked(part, outer.to_numpy())),
    )
    calls = trace.compiled_calls.filter(pl.col("process") == process)
    return pl.concat([rows, _compiled(calls).select(rows.columns)]) if len(calls) else rows


def _linked(part: pl.DataFrame, outer: _Flags) -> _Flags:
    """Of each outermost hop, whether a node of the backward pass came of it or of a hop in it."""
    linked = part["forward_hop"].drop_nulls().unique().cast(pl.Int64).to_numpy()
    rows = rows_of_ids(part["id"].cast(pl.Int64).fill_null(-1).to_numpy(), linked) if len(linked) else linked
    root = np.cumsum(outer) - 1
    made = np.zeros(int(outer.sum()), np.bool_)
    made[root[rows[rows >= 0]]] = True
    return made


def _compiled(calls: pl.DataFrame) -> pl.DataFrame:
    backward = of_compiled_backward()
    forward = (pl.col("direction").cast(pl.String) == FORWARD).fill_null(False)
    return calls.select(
        "start_ns",
        "end_ns",
        op=pl.concat_str(
            [pl.lit("compiled"), pl.col("function").cast(pl.String)], separator=" ", ignore_nulls=True
        ),
        line=pl.col("called_from").cast(pl.String).fill_null(pl.when(backward).then(pl.lit(BACKWARD))),
        thread=pl.col("thread").cast(pl.Int64),
        compiled=pl.lit(True),
        row=pl.lit(None, pl.Int64),
        node=backward,
        module=pl.lit(False),
        mark=pl.lit(False),
        range=pl.lit(None, pl.String),
        linked=forward,
    )


@dataclass(frozen=True)
class _Spans:
    """Spans of time on threads: of each, in any order, its thread, start and end."""

    thread: Times
    start: Times
    end: Times

    @classmethod
    def of(cls, table: pl.DataFrame) -> _Spans:
        return cls(*(table[name].cast(pl.Int64).to_numpy() for name in ("thread", "start_ns", "end_ns")))

    def cover(self) -> Cover:
        return Cover.of(self.start, self.end)

    def around(self, thread: Times, moment: Times) -> tuple[Times, Times]:
        """When what these cover on the thread of each moment begins and ends there; -1: they do not."""
        begin, end = np.full(len(moment), -1, np.int64), np.full(len(moment), -1, np.int64)
        for number in np.unique(self.thread):
            mine = self.thread == number
            cover = Cover.of(self.start[mine], self.end[mine])
            rows = np.flatnonzero(thread == number)
            place = np.searchsorted(cover.starts, moment[rows], "right") - 1
            inside = (place >= 0) & (moment[rows] < cover.ends[place])
            begin[rows[inside]] = cover.starts[place[inside]]
            end[rows[inside]] = cover.ends[place[inside]]
        return begin, end

    def where(self, chosen: _Flags) -> _Spans:
        return _Spans(self.thread[chosen], self.start[chosen], self.end[chosen])


@dataclass(frozen=True)
class _Ranges:
    """What torch marks in a process."""

    optimizers: _Spans
    steps: _Spans
    loaders: _Spans
    transfers: _Spans
    compiling: _Spans
    modules: _Spans
    workers: Times
    """The threads of workers of a data loader, as torch names them"""

    @classmethod
    def of(cls, trace: Trace, process: int) -> _Ranges:
        ranges = trace.ranges.filter(pl.col("process") == process)
        name = ranges["name"].cast(pl.String)

        def named(*prefixes: str) -> _Spans:
            return _Spans.of(ranges.filter(_begins_with(name, prefixes)))

        return cls(
            *(named(_OF_OPTIMIZERS), named(OF_STEPS), named(OF_LOADERS), named(*_OF_TRANSFERS)),
            _Spans.of(trace.compile_phases.filter(pl.col("process") == process)),
            _Spans.of(trace.module_calls.filter(pl.col("process") == process)),
            _workers(trace, process),
        )


def _workers(trace: Trace, process: int) -> Times:
    threads = trace.threads.filter(pl.col("process") == process)
    return threads.filter(threads["name"].cast(pl.String) == _LOADING)["thread"].cast(pl.Int64).to_numpy()


def _begins_with(names: pl.Series, prefixes: Sequence[str]) -> pl.Series:
    """Whether a name begins with one of these."""
    return names.str.contains("|".join(f"^{re.escape(prefix)}" for prefix in prefixes)).fill_null(False)


# ---- the phase of each op --------------------------------------------------------------------------
@dataclass(frozen=True)
class _Sequence:
    """The ops of a process in the order of time, `order` their places in what was given; a flag for each."""

    order: Times
    makes_ones: _Flags
    thread: Times
    start: Times
    data: _Flags
    compiling: _Flags
    hooked: _Flags  # by an optimizer that a hook of the backward pass steps
    node: _Flags
    transfer: _Flags
    forward: _Flags  # of a module, or a backward node came of it
    linked: _Flags  # a backward node came of it
    optimizer: _Flags
    step_begin: Times  # of the optimizer's step that it is in; -1: none
    step_end: Times

    @classmethod
    def of(cls, known: pl.DataFrame, ranges: _Ranges, hooks: _Spans) -> _Sequence:
        order = np.argsort(known["start_ns"].to_numpy(), kind="stable")
        sorted_ = known[order]
        thread, start = (sorted_[name].fill_null(-1).to_numpy() for name in ("thread", "start_ns"))
        node, linked = sorted_["node"].to_numpy(), sorted_["linked"].to_numpy()

        def inside(spans: _Spans) -> _Flags:
            flags: _Flags = spans.around(thread, start)[0] >= 0
            return flags

        named = _begins_with(sorted_["range"], [_OF_OPTIMIZERS]).to_numpy()
        begin, end = ranges.steps.around(thread, start)
        return cls(
            order=order,
            makes_ones=(sorted_["op"] == _FIRST_GRADIENT).fill_null(False).to_numpy(),
            thread=thread,
            start=start,
            data=inside(ranges.loaders) | np.isin(thread, ranges.workers),
            compiling=inside(ranges.compiling),
            hooked=inside(hooks),
            node=node,
            transfer=_begins_with(sorted_["op"], _OF_DISTRIBUTED).to_numpy(),
            forward=(sorted_["module"].to_numpy() | linked) & ~node,
            linked=linked & ~node,
            optimizer=named | inside(ranges.optimizers),
            step_begin=begin,
            step_end=end,
        )

    def as_given(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of these ops, as those were given."""
        given = np.empty_like(values)
        given[self.order] = values
        return given


def _in_hooks(optimizers: _Spans, ops: pl.DataFrame) -> _Spans:
    """The ranges of optimizers that began while an autograd node ran: the op that began each has the node."""
    began = np.zeros(len(optimizers.start), np.bool_)
    thread, start, end = (ops[name].fill_null(-1).to_numpy() for name in ("thread", "start_ns", "end_ns"))
    node = ops["node"].to_numpy()
    for number in np.unique(optimizers.thread):
        mine, rows = np.flatnonzero(optimizers.thread == number), np.flatnonzero(thread == number)
        place = np.searchsorted(start[rows], optimizers.start[mine], "right") - 1
        mine, around = mine[place >= 0], rows[place[place >= 0]]
        began[mine] = node[around] & (end[around] >= optimizers.start[mine])
    return optimizers.where(began)


def _phases(ops: _Sequence) -> NDArray[np.uint32]:
    """The phase of each op: its place in PHASES."""
    backward = ops.node & ~ops.hooked & ~ops.data & ~ops.compiling
    following = np.append(backward[1:], False) & (ops.thread == np.append(ops.thread[1:], -1))
    first_gradient = ops.makes_ones & following & ~ops.forward
    forward = ops.forward | (_between_forward(ops, backward) & ~first_gradient)
    told_apart = bool(ops.forward.any())
    found = [
        (ops.data, DATA),
        (ops.compiling, COMPILE),
        (ops.hooked, OPTIMIZER),
        (backward | first_gradient, BACKWARD),
        (ops.transfer, COMMUNICATION),
        (forward, FORWARD),
        (ops.optimizer, OPTIMIZER),
    ]
    codes = np.select(
        [flags for flags, _ in found],
        [PHASES.index(phase) for _, phase in found],
        PHASES.index(OTHER if told_apart else FORWARD),
    )
    return codes.astype(np.uint32)


def _named(codes: NDArray[np.uint32]) -> pl.Series:
    return pl.Series(PHASES, dtype=pl.Enum(PHASES)).gather(codes)


def _between_forward(ops: _Sequence, backward: _Flags) -> _Flags:
    """Ops between the first and the last of a forward pass that led to a backward one.

    A forward pass is what lies between two backward passes. Of ops of an optimizer only those are meant
    that its closure computes: from the first forward op within its step to the backward pass there.
    """
    index = np.arange(len(backward))
    first, last = _first_and_last(ops.linked, np.cumsum(backward))
    start = np.append(ops.start, np.iinfo(np.int64).max)
    begun, next_backward = start[first], start[_next(backward, index)]
    in_closure = (ops.step_begin >= 0) & (begun >= ops.step_begin) & (begun < ops.start)
    in_closure &= next_backward < ops.step_end
    flags: _Flags = np.where(ops.optimizer, in_closure, (index > first) & (index < last))
    return flags


def _first_and_last(flags: _Flags, part: Times) -> tuple[Times, Times]:
    """Of each place the first and the last flag in its part; len(flags) and -1: the part has none."""
    first, last = np.full(len(flags) + 1, len(flags)), np.full(len(flags) + 1, -1)
    places = np.flatnonzero(flags)
    np.minimum.at(first, part[places], places)
    np.maximum.at(last, part[places], places)
    return first[part], last[part]


def _next(flags: _Flags, index: Times) -> Times:
    """The place of the next flag from each place on; len(flags): there is none."""
    where = np.where(flags, index, len(flags))
    found: Times = np.minimum.accumulate(where[::-1])[::-1]
    return found


# ---- what lies between the ops of a phase ----------------------------------------------------------
def _told(ops: pl.DataFrame) -> pl.DataFrame:
    """Ops in the order of time, without those of threads that only load data, send it or are in no phase."""
    minor = pl.col("phase").is_in([DATA, COMMUNICATION, OTHER])
    major = ops.filter(~minor)["thread"].unique()
    return ops.filter(~minor | pl.col("thread").is_in(major.implode())).sort("start_ns", maintain_order=True)


def _backward_passes(told: pl.DataFrame) -> Cover:
    """From the first to the last op of each backward pass, what its hooks do included."""
    return _stretches(told, ((told["phase"] == BACKWARD) | told["hooked"]).to_numpy())


def _forward_passes(told: pl.DataFrame) -> Cover:
    """From the first to the last op of each forward pass that a backward node came of."""
    forward = (told["phase"] == FORWARD).to_numpy()
    first, last = _first_and_last(told["linked"].to_numpy() & forward, np.cumsum(~forward))
    place = np.arange(len(forward))
    return _stretches(told, forward & (place >= first) & (place <= last))


def _begins_in_closures(told: pl.DataFrame, steps: _Spans) -> Cover:
    """From the last forward op to the first backward one, in a step of an optimizer."""
    phase, end = told["phase"], told["end_ns"].to_numpy()
    turns = np.flatnonzero((phase == BACKWARD).to_numpy()[1:] & (phase == FORWARD).to_numpy()[:-1]) + 1
    start, thread = told["start_ns"].to_numpy()[turns], told["thread"].fill_null(-1).to_numpy()[turns - 1]
    within = steps.around(thread, start)[0] >= 0
    return Cover.of(end[turns - 1][within], start[within])


def _stretches(told: pl.DataFrame, mine: _Flags) -> Cover:
    """From the first to the last of ops that follow one another."""
    begins = np.flatnonzero(mine & ~np.append(False, mine)[:-1])
    ends = np.flatnonzero(mine & ~np.append(mine, False)[1:])
    latest = np.maximum.accumulate(np.where(mine, told["end_ns"].to_numpy(), 0))
    return Cover.of(told["start_ns"].to_numpy()[begins], latest[ends])
