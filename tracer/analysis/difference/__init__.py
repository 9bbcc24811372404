"""What two traces do differently: op calls by the line that made them, chains, inputs, settings, times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tracer.analysis.chain import Chain
from tracer.analysis.cuda_tables import has_cuda
from tracer.analysis.difference.alignment import aligned
from tracer.analysis.difference.causes import causes
from tracer.analysis.difference.fusing import fusion
from tracer.analysis.difference.fusion import Fusion
from tracer.analysis.difference.kinds import OF_INPUTS, ORDER, Kind, side_of
from tracer.analysis.difference.options import options
from tracer.analysis.difference.text import without_comment
from tracer.analysis.difference.times import Both, Interval, Times, times_by_name, times_of
from tracer.analysis.difference.values import Place, ValueDifference, value_difference

if TYPE_CHECKING:
    from tracer.trace import Trace

__all__ = [
    "Both",
    "Change",
    "Difference",
    "Fusion",
    "Interval",
    "Kind",
    "Place",
    "Times",
    "ValueDifference",
    "difference",
]
_VARYING = 4  # different values of a property of inputs, in each of the runs
_FACTS = ("torch", "torch_cuda", "python", "cpu", "cores", "platform")


@dataclass(frozen=True)
class Change:
    """One kind of op calls in both traces; None where a trace has none."""

    before: Kind | None
    after: Kind | None
    what: tuple[str, ...]
    """new, vanished, another chain, dtype float32 -> bfloat16, ...; empty: the structure is the same"""
    times: Both

    @property
    def kind(self) -> Kind:
        kind = self.after or self.before
        assert kind is not None
        return kind

    @property
    def chains(self) -> tuple[Chain, Chain] | None:
        """The most frequent chains that only one side has, else of all; None if a side has no op calls."""
        if self.before is None or self.after is None:
            return None
        sides = self.before.chains, self.after.chains
        one, other = (
            next((chain for chain, _ in mine.most_common() if chain not in its), mine.most_common(1)[0][0])
            for mine, its in (sides, reversed(sides))
        )
        return one, other


@dataclass(frozen=True)
class Difference:
    """Two traces compared.

    steady           whether only steady steps were compared
    facts, settings  name -> (before, after), where they differ
    ops, modules     name -> what a step spends in outermost ops of that name, or in the ops of that
                     nn.Module and those in it; the largest change first
    remarks          what one of the traces lacks for more, and how to record it
    """

    step: Times
    gpu: Times
    steady: bool
    steps: tuple[int, int]
    changes: list[Change]
    facts: dict[str, tuple[Any, Any]]
    settings: dict[str, tuple[Any, Any]]
    ops: dict[str, Both]
    modules: dict[str, Both]
    causes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    values: ValueDifference | None = None
    """None: one of the traces has no hashes of values"""
    fusion: Fusion | None = None
    """None unless one of the traces has compiled code and the other has none"""

    @cached_property
    def structural(self) -> list[Change]:
        """Those whose structure or inputs changed, in the order in which they first ran."""
        begins = [
            min((kind.first_ns for kind in side if kind), default=0)
            for side in zip(*((change.before, change.after) for change in self.changes), strict=True)
        ]

        def since_the_begin(change: Change) -> int:
            side = 1 if change.after else 0
            return change.kind.first_ns - begins[side]

        return sorted((change for change in self.changes if change.what), key=since_the_begin)


def difference(before: Trace, after: Trace) -> Difference:
    """Aligns the kinds of op calls of two traces (difference.alignment) and compares them."""
    traces = (before, after)
    steady = all("steady" in trace.steps["phase"].cast(str).to_list() for trace in traces)
    numbers, lengths = zip(*_same_warm_up([_steps(trace, steady) for trace in traces]), strict=True)
    cuda = all(has_cuda(trace) for trace in traces)
    one, other = (
        side_of(trace, steady, steps, cuda=cuda) for trace, steps in zip(traces, numbers, strict=True)
    )
    fused = fusion(traces, (numbers[0], numbers[1]))
    changes = [_change(*pair) for pair in aligned(one.kinds, other.kinds)]
    if fused is not None:
        changes = [_with_kernels(change, fused) for change in changes]
    facts = _different(before.environment, after.environment, _FACTS)
    known = _settings(traces)
    settings = _different(known[0], known[1], tuple(dict.fromkeys([*known[0], *known[1]])))
    return Difference(
        step=times_of(*lengths),
        gpu=times_of(one.gpu_ns, other.gpu_ns),
        steady=steady,
        steps=(len(lengths[0]), len(lengths[1])),
        changes=changes,
        facts=facts,
        settings=settings,
        ops=times_by_name((one.ops, other.ops), (one.gpu_of_ops, other.gpu_of_ops)),
        modules=times_by_name((one.modules, other.modules), (one.gpu_of_modules, other.gpu_of_modules)),
        causes=[
            *options(before, after),
            *causes(changes, settings, facts, (_compiled(before), _compiled(after))),
        ],
        remarks=_remarks(traces),
        values=value_difference(before, after),
        fusion=fused,
    )


def _steps(trace: Trace, steady: bool) -> tuple[list[int], list[int]]:
    """The numbers and the lengths of the steps that are compared."""
    steps = trace.steps
    if steady:
        steps = steps.filter((steps["phase"].cast(str) == "steady").fill_null(False))
    return steps["step"].to_list(), (steps["end_ns"] - steps["start_ns"]).to_list()


def _same_warm_up(steps: list[tuple[list[int], list[int]]]) -> list[tuple[list[int], list[int]]]:
    """Without what one trace counts as warm-up and the other does not: a slow program hides it."""
    first = max((min(numbers, default=0) for numbers, _ in steps), default=0)
    later = [
        (
            [number for number in numbers if number >= first],
            times[-sum(number >= first for number in numbers) :],
        )
        for numbers, times in steps
    ]
    return later if all(numbers for numbers, _ in later) else steps


def _settings(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """torch's settings at the end of each recording, and each variable of the environment on its own."""
    sides = [dict(trace.environment.get("settings") or {}) for trace in traces]
    variables = [side.pop("variables", None) or {} for side in sides]
    unset = dict.fromkeys([name for of_side in variables for name in of_side], "not set")
    return [
        {**side, **unset, **of_side} if side else {} for side, of_side in zip(sides, variables, strict=True)
    ]


def _compiled(trace: Trace) -> int:
    """Calls of code that torch.compile made."""
    return int(trace.certificate.get("compiled_calls") or 0)


def _remarks(traces: Sequence[Trace]) -> list[str]:
    remarks = [
        f"the {which} trace is not complete, and what it lacks counts as a change: "
        f"{trace.certificate['verdict']}"
        for which, trace in zip(("first", "second"), traces, strict=True)
        if not trace.certificate["complete"]
    ]
    for what, option, there in (
        ("CUDA calls and GPU work", "--cuda on, on a machine with a GPU", [has_cuda(t) for t in traces]),
        ("hashes of values", "--values hash", [not t.values.is_empty() for t in traces]),
    ):
        if any(there) and not all(there):
            one, other = ("first", "second") if there[0] else ("second", "first")
            remarks.append(
                f"only the {one} trace has {what}, so they are not compared; record the {other} with {option}"
            )
    return remarks


def _change(before: Kind | None, after: Kind | None) -> Change:
    if before is None or after is None:
        what = ["new" if before is None else "vanished"]
    else:
        edited = without_comment(before.text) != without_comment(after.text)
        what = [f"line {before.text} -> {after.text}"] if edited else []
        what += [
            _changed(name, before.inputs[name], after.inputs[name])
            for name in OF_INPUTS
            if _differs(name, before.inputs, after.inputs)
        ]
        if set(before.chains) != set(after.chains):
            what.append("another chain")
    times = times_of(before.step_ns if before else [], after.step_ns if after else [])
    gpu = times_of(before.gpu_ns if before else [], after.gpu_ns if after else [])
    return Change(before, after, tuple(what), Both(times, gpu))


def _with_kernels(change: Change, fused: Fusion) -> Change:
    """Says of an op that only the eager run has which kernels compute it."""
    eager, compiled = (change.before, change.after) if fused.eager_first else (change.after, change.before)
    if eager is None or compiled is not None:
        return change
    ops = {
        kernel.name: [op.op for op in kernel.ops if op.text == eager.text]
        for kernel in fused.kernels
        if kernel.backward == eager.backward
    }
    chain_ops = {_base(link.op) for chain in eager.chains for link in chain}
    names = [name for name, of in ops.items() if chain_ops.intersection(of)]
    if not names:
        return change
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return replace(change, what=(*change.what, f"fused into {names[0]}{more}"))


def _base(op: str) -> str:
    """`aten::add` of `aten::add_.Tensor`: as op_calls.base_name."""
    return op.partition(".")[0].removesuffix("_")


def _differs(name: str, before: dict[str, set[str]], after: dict[str, set[str]]) -> bool:
    """Whether inputs have another dtype, shape, ...; not if both runs have many, and each run others.

    Strides that follow from another shape are no difference: the order of the dimensions in memory counts.
    """
    if name not in before or name not in after or before[name] == after[name]:
        return False
    if min(len(before[name]), len(after[name])) >= _VARYING:
        return False
    if name == "stride" and before.get("shape") != after.get("shape"):
        return before.get(ORDER) != after.get(ORDER)
    return True


def _changed(name: str, before: set[str], after: set[str]) -> str:
    """`dtype 0: float32 -> 0: bfloat16`, `shape also 0: 8x8`: of inputs by their position."""
    gone, come = (sorted(values) for values in (before - after, after - before))
    one, other = (", ".join(values[:2]) + ", ..." * (len(values) > 2) for values in (gone, come))
    if not gone:
        return f"{name} also {other}"
    return f"{name} {one} -> {other}" if come else f"{name} no longer {one}"


def _different(
    before: dict[str, Any], after: dict[str, Any], names: Sequence[str]
) -> dict[str, tuple[Any, Any]]:
    """What both traces know, and know differently."""
    return {
        name: (before[name], after[name])
        for name in names
        if before.get(name) is not None and after.get(name) is not None and before[name] != after[name]
    }
