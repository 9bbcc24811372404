"""One kind of op calls on both sides, and what changed in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tracer.analysis.chain import Chain
from tracer.analysis.difference.cause import Cause
from tracer.analysis.difference.fusion import Fusion
from tracer.analysis.difference.kinds import OF_INPUTS, ORDER, Kind
from tracer.analysis.difference.text import without_comment
from tracer.analysis.difference.times import Both, Runs, times_of

EDITED = "line "
"""In Change.what: how it begins if the text of the line is another one"""
OTHER_CHAIN = "another chain"
"""In Change.what: the hops, library calls or kernels are others"""
_VARYING = 4  # different values of a property of inputs, in each of the runs


@dataclass(frozen=True)
class Change:
    """One kind of op calls on both sides; None where a side has none."""

    before: Kind | None
    after: Kind | None
    what: tuple[str, ...]
    """new, vanished, another chain, dtype float32 -> bfloat16, ...; empty: the structure is the same"""
    times: Both
    cause: Cause | None = None
    """The likely cause that explains all of it"""

    @property
    def kind(self) -> Kind:
        kind = self.after or self.before
        assert kind is not None
        return kind

    @property
    def uneven(self) -> bool:
        """Whether it is on one side only, and not in every run of it: no change of the program."""
        return not self.what and None in (self.before, self.after)

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


def change_of(before: Kind | None, after: Kind | None) -> Change:
    """With several runs a side, only what is so in each run of one side and in none of the other changed."""
    sides = (before, after)
    times = times_of(*(_runs(kind, lambda run: run.step_ns) for kind in sides))
    gpu = times_of(*(_runs(kind, lambda run: run.gpu_ns) for kind in sides))
    return Change(before, after, tuple(_what(before, after)), Both(times, gpu))


def _runs(kind: Kind | None, times: Callable[[Kind], list[int]]) -> Runs:
    return [times(run) for run in kind.runs] if kind else []


def _what(before: Kind | None, after: Kind | None) -> list[str]:
    if before is None or after is None:
        only = before or after
        return [] if only is None or not only.in_every_run else ["vanished" if before else "new"]
    edited = without_comment(before.text) != without_comment(after.text)
    what = [f"{EDITED}{before.text} -> {after.text}"] if edited else []
    what += [words for name in OF_INPUTS if (words := _of_input(name, before, after))]
    return what + [OTHER_CHAIN] * any(_only(before, after, lambda kind: set(kind.chains)))


def _only(before: Kind, after: Kind, values: Callable[[Kind], set]) -> tuple[set, set]:
    """What all runs before have and none after, and the other way round."""
    return before.always(values) - values(after), after.always(values) - values(before)


def _of_input(name: str, before: Kind, after: Kind) -> str:
    """`dtype 0: float32 -> 0: bfloat16`, `shape also 0: 8x8`: of inputs by their position; "": the same.

    Not if all runs have many, and each run others. Strides that follow from another shape are no
    difference: the order of the dimensions in memory counts.
    """
    sides = before.inputs, after.inputs
    if not all(name in side for side in sides) or min(len(side[name]) for side in sides) >= _VARYING:
        return ""
    other_shape, order = sides[0].get("shape") != sides[1].get("shape"), [side.get(ORDER) for side in sides]
    if name == "stride" and other_shape and order[0] == order[1]:
        return ""
    gone, come = (sorted(side) for side in _only(before, after, lambda kind: kind.inputs.get(name, set())))
    if not gone and not come:
        return ""
    one, other = (", ".join(values[:2]) + ", ..." * (len(values) > 2) for values in (gone, come))
    if not gone:
        return f"{name} also {other}"
    return f"{name} {one} -> {other}" if come else f"{name} no longer {one}"


def with_kernels(change: Change, fused: Fusion) -> Change:
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
