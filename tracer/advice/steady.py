"""The steady steps of a process, as the rules of advice look at them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracer.analysis.own_cost import OwnCost, own_cost
from tracer.analysis.phases import in_backward, of_compiled_backward
from tracer.analysis.step_times import preempted, step_times
from tracer.analysis.trees import Forest, counts, rows_of_ids

if TYPE_CHECKING:
    from tracer.trace import Trace

FEWEST = 3
"""Steps: in the first ones buffers are made, and one step says nothing of its own spread"""
_WORDS = ("op", "key", "kind", "source", "module", "range", "backward_node")
_NO_INPUTS = 2**32 - 1


class NoAdviceError(LookupError):
    """The message says why a trace gives none, and what to do."""


class TooFewStepsError(NoAdviceError):
    """The message says how many steady steps there are, and what to do."""


_DUAL = ("aten::_make_dual", "aten::_unpack_dual")


@dataclass(frozen=True)
class Tensor:
    """An argument, or one tensor of a list that is the argument at `position`.

    `list_length`: how many the list has, if more than are recorded.
    """

    position: int
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    dtype: str
    device: str
    requires_grad: bool
    list_length: int | None = None

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Steady:
    """`forest` has the hops of the steps, with texts for categories and `ns`: the time of each in ns, of
    outermost ones without what recording them and what is inside them cost.

    own      what recording a hop cost; None if that is not known
    step_ns  the median wall time of a step, without tracer's own cost
    left_out  steady steps that are not among these: their thread waited long for a core
    busy      such steps among these: too few others are there
    parts    the medians of the columns of analysis.step_times, by name
    """

    trace: Trace
    process: int
    steps: tuple[int, ...]
    own: OwnCost | None
    step_ns: float
    parts: dict[str, float]
    forest: Forest
    left_out: int = 0
    busy: int = 0

    @classmethod
    def of(cls, trace: Trace, times: pl.DataFrame | None = None) -> Steady:
        """Of the first process that has steady steps. Raises NoAdviceError. `times`: its step_times."""
        if trace.only_ops:
            raise NoAdviceError("advice needs all ops; record without --ops")
        times = step_times(trace) if times is None else times
        times = times.filter(pl.col("phase") == "steady")
        if times.is_empty():
            raise TooFewStepsError(
                "no step of this trace is steady; record 5 steps or more (tracer.step() ends one)"
            )
        process = int(times["process"].min())  # type: ignore[arg-type]
        times = times.filter(pl.col("process") == process)
        if len(times) < FEWEST:
            had = "1 step is" if len(times) == 1 else f"{len(times)} steps are"
            raise TooFewStepsError(f"{had} steady, which says too little; record 5 or more")
        quiet = times.filter(~preempted())
        left_out, busy = len(times) - len(quiet), 0
        if len(quiet) < FEWEST:
            quiet, left_out, busy = times, 0, left_out
        times = quiet
        steps = tuple(times["step"].to_list())
        cost = own_cost(trace.certificate, process)
        forest = _forest(trace, process, steps, cost)
        wall = float(times["wall_ns"].median())  # type: ignore[arg-type]
        parts = {
            name: float(median)  # type: ignore[arg-type]
            for name in times.columns
            if name.endswith("_ns") and (median := times[name].median()) is not None
        }
        found = cls(trace, process, steps, cost, wall, parts, forest, left_out, busy)
        return replace(found, step_ns=found.without_own(wall, forest.hops))

    @property
    def mostly_busy(self) -> bool:
        """Whether the median step waited long for a core: then no share of a step is known."""
        return 2 * self.busy > len(self.steps)

    @property
    def hops(self) -> pl.DataFrame:
        return self.forest.hops

    def without_own(self, ns: float, hops: pl.DataFrame) -> float:
        """A time of a step without what recording these hops, of all steps, cost; 1 ns at least."""
        if self.own is None:
            return ns
        outer = int(hops["parent"].is_null().sum())
        own = outer * self.own.outermost.ns + (len(hops) - outer) * self.own.inner.ns
        return max(ns - self.a_step(own), 1.0)

    @cached_property
    def roots(self) -> pl.DataFrame:
        """Outermost op calls in the order of time, with `gap`: the time until the next one of the thread."""
        gap = (pl.col("start_ns").shift(-1).over("thread") - pl.col("end_ns")).clip(0, 5_000_000).fill_null(0)
        return self.hops.filter(pl.col("parent").is_null()).sort("start_ns").with_columns(gap=gap)

    @cached_property
    def calls(self) -> pl.DataFrame:
        """Op calls at any depth, without redispatches."""
        return self.hops.filter(pl.col("kind") == "call")

    @cached_property
    def _signatures(self) -> dict[int, list[Tensor]]:
        known: dict[int, list[Tensor]] = {}
        wanted = self.hops["inputs"].drop_nulls().unique()
        rows = self.trace.signatures.filter(pl.col("id").is_in(wanted.implode()))
        columns = ("id", "position", "shape", "stride", "dtype", "device", "requires_grad", "list_length")
        for number, position, shape, stride, dtype, device, grad, length in rows.select(columns).iter_rows():
            tensor = Tensor(
                position,
                tuple(shape or ()),
                None if stride is None else tuple(stride),
                str(dtype or "").removeprefix("torch."),
                str(device or ""),
                bool(grad),
                length,
            )
            known.setdefault(number, []).append(tensor)
        return known

    def has_calls(self, hop: int) -> bool:
        """Whether an op call called another one: dropout does while a model trains."""
        return hop in self._callers

    @cached_property
    def _callers(self) -> set[int]:
        return set(self.calls["parent"].drop_nulls().to_list())

    def tensors(self, inputs: int | None) -> list[Tensor]:
        """The tensors that an op call got; none if shapes were not recorded."""
        return [] if inputs is None else self._signatures.get(inputs, [])

    @cached_property
    def _first_numbers(self) -> dict[int, int]:
        whole = self.trace.scalars.filter(pl.col("value").str.contains(r"^-?\d+$")).sort("id", "position")
        first = whole.group_by("id").agg(pl.col("value").first().cast(pl.Int64))
        return dict(first.iter_rows())

    def first_number(self, inputs: int | None) -> int | None:
        """The first whole number among the arguments of an op call; None: not recorded (--values scalars)."""
        return None if inputs is None else self._first_numbers.get(inputs)

    def with_inputs(self, fits: Any) -> list[int]:
        """The signatures whose tensors `fits` takes."""
        return [number for number, tensors in self._signatures.items() if fits(tensors)]

    def usual_ns(self, rows: pl.DataFrame, time: str = "ns") -> float:
        """What these calls take of a step: of each op, inputs and line calls x median.

        So a call that was preempted counts as the others do. Inputs that fewer than half of the steps have
        (a cache that grows) are too few for that: none counts more than such calls of its op and line do.
        """
        if rows.is_empty():
            return 0.0
        line, rare = ["op", "source"], pl.col("steps") * 2 < len(self.steps)
        groups = rows.group_by(*line, pl.col("inputs").fill_null(_NO_INPUTS)).agg(
            calls=pl.len(), each=pl.col(time).median(), steps=pl.col("step").n_unique()
        )
        usual = pl.when(rare).then(pl.min_horizontal("each", pl.col("each").filter(rare).median().over(line)))
        return self.a_step(float(groups.select((usual.otherwise("each") * pl.col("calls")).sum()).item()))

    def costly(self, rows: pl.DataFrame, by: str, least: float) -> dict[str, pl.DataFrame]:
        """The rows of each value of `by` whose usual_ns and gaps may be this share of a step.

        Half of some calls take their median or more, so that usual_ns is at most twice what all take.
        """
        whole = (pl.col("ns") + pl.col("gap")).sum().over(by)
        kept = rows.filter(2 * whole >= least * self.step_ns * len(self.steps))
        return {str(key): own for (key,), own in kept.partition_by(by, as_dict=True).items()}

    def roots_of(self, ids: pl.Series) -> list[int | None]:
        """The outermost hop of each of these hops, by id; None: not in these steps."""
        known = self.hops["id"].cast(pl.Int64).to_numpy()
        rows = rows_of_ids(known, ids.cast(pl.Int64).to_numpy())
        found = pl.Series(known[self.forest.root[rows]])
        return found.set(pl.Series(rows < 0), None).to_list()

    def hottest(
        self, calls: pl.DataFrame, most: int
    ) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
        """One call of each of the `most` costliest groups of op and inputs; their time and calls a step."""
        groups = (
            calls.group_by("op", "inputs", maintain_order=True)
            .agg(pl.col("id"), ns=pl.col("ns").median() * pl.len())
            .sort("ns", descending=True, maintain_order=True)
            .head(most)
        )
        ids, ns = groups["id"].to_list(), [self.a_step(one) for one in groups["ns"].to_list()]
        if self.on_gpu:
            of_group = (calls.filter(pl.col("id").is_in(own)) for own in ids)
            ns = [max(one, self.gpu_ns_below(own)) for one, own in zip(ns, of_group, strict=True)]
        return tuple(own[-1] for own in ids), tuple(ns), tuple(self.a_step(len(own)) for own in ids)

    @cached_property
    def forward_inputs(self) -> dict[int, tuple[int | None, int | None]]:
        """Of each hop its inputs and its parent, by id."""
        columns = self.hops.select("id", "inputs", "parent")
        return {number: (inputs, parent) for number, inputs, parent in columns.iter_rows()}

    def gpu_ns_below(self, calls: pl.DataFrame) -> float:
        """GPU time a step of what these calls and all below them launched."""
        if calls.is_empty() or self.gpu.is_empty():
            return 0.0
        inside = self.forest.below(np.isin(self.hops["id"].to_numpy(), calls["id"].to_numpy()))
        below = self.hops.filter(pl.Series(inside))["id"]
        work = self.gpu.filter(pl.col("hop").is_in(below.implode()))
        return self.a_step(int((work["end_ns"] - work["start_ns"]).sum()))

    def cost_ns(self, calls: pl.DataFrame) -> float:
        """What these calls take of a step: on a GPU of its time or of the host's, whichever is more."""
        return max(self.usual_ns(calls), self.gpu_ns_below(calls))

    def a_step(self, number: float) -> float:
        """Of all steps, to that of one."""
        return number / len(self.steps)

    def window(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows of another table of the trace that are of these steps."""
        mine = (pl.col("process") == self.process) & pl.col("step").is_in(self.steps)
        return table.filter(mine)

    @cached_property
    def gpu(self) -> pl.DataFrame:
        """GPU activities of the steps, by start; empty on the CPU."""
        return self.window(self.trace.gpu_activities).filter(pl.col("start_ns") > 0).sort("start_ns")

    @property
    def on_gpu(self) -> bool:
        return not self.gpu.is_empty()

    @property
    def settings(self) -> dict[str, Any]:
        return self.trace.environment.get("settings") or {}

    @property
    def cores(self) -> int | None:
        cores = self.trace.environment.get("cores")
        return cores if isinstance(cores, int) else None

    @property
    def never_backward(self) -> bool:
        """Whether the process certainly differentiated nothing, backward or forward (dual numbers)."""
        mine = pl.col("process") == self.process
        ran = self.trace.hops.filter(mine & (in_backward() | pl.col("op").cast(pl.String).is_in(_DUAL)))
        compiled = self.trace.compiled_calls.filter(mine & of_compiled_backward())
        return self.trace.whole_run and ran.is_empty() and compiled.is_empty()


def _forest(trace: Trace, process: int, steps: tuple[int, ...], cost: OwnCost | None) -> Forest:
    mine = (pl.col("process") == process) & pl.col("step").is_in(steps)
    hops = trace.hops.filter(mine).with_columns(pl.col(name).cast(pl.String) for name in _WORDS)
    forest = Forest.of(hops)
    time = (pl.col("end_ns") - pl.col("start_ns")).fill_null(0)
    if cost is not None:
        inside = counts(forest.root, len(hops)).astype(np.int64) - 1  # 0 or more, of outermost ones
        own = np.where(forest.parent < 0, inside * cost.inner.ns + cost.outermost.inside_ns, 0.0)
        time = (time - pl.Series(own)).clip(0)
    return Forest(hops.with_columns(ns=time.cast(pl.Float64)), forest.parent, forest.depth, forest.root)
