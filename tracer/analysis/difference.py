"""What two traces do differently: op calls by the line that made them, chains, inputs, settings, times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import polars as pl

from tracer.analysis.cuda_tables import CudaTables
from tracer.analysis.links import combine
from tracer.analysis.source_lines import SourceLines
from tracer.analysis.step_times import RANGE_OPS
from tracer.analysis.trees import Forest, counts
from tracer.analysis.value_difference import ValueDifference, value_difference

_RESAMPLES, _SEED = 2_000, 0  # the same samples give the same interval
_LEAST_SAMPLES = 3
_LONGEST_CHAIN = 400  # lines
_KEY = re.compile(r"\[(\w+)\]")
_FACTS = ("torch", "torch_cuda", "python", "cpu", "cores", "platform")
_OF_INPUTS = ("dtype", "shape", "stride", "device", "layout", "requires_grad")


class Compared(CudaTables, Protocol):
    """What this reads of a trace."""

    @property
    def environment(self) -> dict[str, Any]: ...
    @property
    def signatures(self) -> pl.DataFrame: ...
    @property
    def source_lines(self) -> pl.DataFrame: ...
    @property
    def steps(self) -> pl.DataFrame: ...
    @property
    def values(self) -> pl.DataFrame: ...


@dataclass(frozen=True)
class Interval:
    """The ratio of two medians, after / before, with its 95 % interval by bootstrap."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """slower, faster or no change: what the interval can tell."""
        return "slower" if self.low > 1 else "faster" if self.high < 1 else "no change"


@dataclass(frozen=True)
class Times:
    """Medians in nanoseconds of a step, or of what a step spends in one kind of op calls."""

    before: float | None
    after: float | None
    ratio: Interval | None
    """None where one side has fewer than three steps"""


@dataclass(frozen=True)
class Kind:
    """Outermost op calls of one operator at one line, forward or backward, of one trace."""

    line: str
    text: str
    op: str
    backward: bool
    calls: int
    first_ns: int
    chains: Counter[str]
    """The chain of hops, library calls and kernels as text, by how often it ran; most often first"""
    inputs: dict[str, set[str]]
    """dtype, shape, stride, ... -> what the tensors had"""
    step_ns: list[int]
    """Of each step"""


@dataclass(frozen=True)
class Change:
    """One kind of op calls in both traces; None where a trace has none."""

    before: Kind | None
    after: Kind | None
    what: tuple[str, ...]
    """new, vanished, another chain, dtype float32 -> bfloat16, ...; empty: the structure is the same"""
    times: Times

    @property
    def kind(self) -> Kind:
        kind = self.after or self.before
        assert kind is not None
        return kind


@dataclass(frozen=True)
class Difference:
    """Two traces compared.

    steady           whether only steady steps were compared
    facts, settings  name -> (before, after), where they differ
    """

    step: Times
    steady: bool
    steps: tuple[int, int]
    changes: list[Change]
    facts: dict[str, tuple[Any, Any]]
    settings: dict[str, tuple[Any, Any]]
    modules: dict[str, Times] = field(default_factory=dict)
    """What a step spends in the ops of each nn.Module and those in it, the largest change first"""
    causes: list[str] = field(default_factory=list)
    values: ValueDifference | None = None
    """None: one of the traces has no hashes of values"""

    @property
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


def difference(before: Compared, after: Compared) -> Difference:
    """Kinds of op calls are the same if file, text of the line, operator and direction are."""
    steady = all("steady" in trace.steps["phase"].cast(pl.String) for trace in (before, after))
    steps = _same_warm_up([_steps(trace, steady) for trace in (before, after)])
    kinds = [
        _kinds(trace, steady, numbers) for trace, (numbers, _) in zip((before, after), steps, strict=True)
    ]
    numbered = [numbers for numbers, _ in steps]
    changes = [_change(kinds[0].get(key), kinds[1].get(key)) for key in dict.fromkeys([*kinds[0], *kinds[1]])]
    facts = _different(before.environment, after.environment, _FACTS)
    known = [trace.environment.get("settings") or {} for trace in (before, after)]
    settings = _different(known[0], known[1], tuple(dict.fromkeys([*known[0], *known[1]])))
    found = Difference(
        step=_times(steps[0][1], steps[1][1]),
        steady=steady,
        steps=(len(steps[0][1]), len(steps[1][1])),
        changes=changes,
        facts=facts,
        settings=settings,
        modules=_modules(
            [_module_times(trace, numbers) for trace, numbers in zip((before, after), numbered, strict=True)]
        ),
        values=value_difference(before, after),
    )
    found.causes.extend(_causes(found))
    return found


def _steps(trace: Compared, steady: bool) -> tuple[list[int], list[int]]:
    """The numbers and the lengths of the steps that are compared."""
    steps = trace.steps
    if steady:
        steps = steps.filter((pl.col("phase").cast(pl.String) == "steady").fill_null(False))
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


def _kinds(trace: Compared, steady: bool, steps: list[int]) -> dict[tuple[str, ...], Kind]:
    rows = combine(trace).rows
    forest = Forest.of(rows)
    sources = SourceLines.of(trace)
    outermost = forest.parent < 0
    wanted = outermost & (~rows["op"].cast(pl.String).str.starts_with(RANGE_OPS).fill_null(False)).to_numpy()
    if steady:
        wanted &= rows["step"].is_in(steps).fill_null(False).to_numpy()
    table = (
        rows.filter(pl.Series(wanted))
        .select(
            "inputs",
            "step",
            "start_ns",
            pl.col("op").cast(pl.String).fill_null("?"),
            line=pl.coalesce(pl.col("source").cast(pl.String), pl.lit("")),
            backward=pl.col("backward_node").is_not_null(),
            ns=pl.col("end_ns") - pl.col("start_ns"),
        )
        .with_columns(structure=pl.Series(forest.structure[wanted]), row=pl.Series(np.flatnonzero(wanted)))
    )
    chains = _chains(forest, table)
    inputs = _inputs(trace.signatures)
    kinds: dict[tuple[str, ...], Kind] = {}
    groups = table.partition_by("line", "op", "backward", as_dict=True, maintain_order=True)
    for (line, op, backward), part in groups.items():
        name, text = (sources.name(line), sources.text(line)) if line else ("no Python line", "")
        file = name.rpartition(":")[0]
        key = (file, text or name, op, str(backward))
        counted = part["structure"].value_counts(sort=True).iter_rows()
        by_step = dict(part.group_by("step").agg(pl.col("ns").sum()).iter_rows())
        made = Kind(
            line=name,
            text=text,
            op=op,
            backward=backward,
            calls=len(part),
            first_ns=int(part["start_ns"][0]),
            chains=Counter({chains[structure]: count for structure, count in counted}),
            inputs=_merged(
                [inputs.get(number, {}) for number in part["inputs"].unique() if number is not None]
            ),
            step_ns=[by_step.get(step, 0) for step in steps],
        )
        kinds[key] = _joined(kinds[key], made) if key in kinds else made
    return kinds


def _module_times(trace: Compared, steps: list[int]) -> dict[str, list[int]]:
    """Of each module what each step spent in outermost ops that it or a module in it called."""
    rows = (
        trace.hops.select("step", "start_ns", "end_ns", "parent", pl.col("module").cast(pl.String))
        .filter(pl.col("parent").is_null() & pl.col("module").is_not_null() & pl.col("step").is_in(steps))
        .group_by("module", "step")
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )
    found: dict[str, dict[int, int]] = {}
    for module, step, ns in rows.iter_rows():
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            of_step = found.setdefault(".".join(parts[:depth]), {})
            of_step[step] = of_step.get(step, 0) + ns
    return {module: [of_step.get(step, 0) for step in steps] for module, of_step in found.items()}


def _modules(sides: list[dict[str, list[int]]]) -> dict[str, Times]:
    names = dict.fromkeys([*sides[0], *sides[1]])
    times = {name: _times(sides[0].get(name, []), sides[1].get(name, [])) for name in names}

    def change(name: str) -> float:
        return abs((times[name].after or 0) - (times[name].before or 0))

    return {name: times[name] for name in sorted(names, key=change, reverse=True)}


def _joined(one: Kind, other: Kind) -> Kind:
    """Two lines of a file with the same text."""
    return Kind(
        line=one.line,
        text=one.text,
        op=one.op,
        backward=one.backward,
        calls=one.calls + other.calls,
        first_ns=min(one.first_ns, other.first_ns),
        chains=one.chains + other.chains,
        inputs=_merged([one.inputs, other.inputs]),
        step_ns=[sum(pair) for pair in zip(one.step_ns, other.step_ns, strict=True)],
    )


def _merged(parts: Sequence[dict[str, set[str]]]) -> dict[str, set[str]]:
    merged: dict[str, set[str]] = {}
    for part in parts:
        for name, values in part.items():
            merged.setdefault(name, set()).update(values)
    return merged


def _chains(forest: Forest, table: pl.DataFrame) -> dict[int, str]:
    """The text of each distinct structure: a line for each row, indented by its depth."""
    first = table.group_by("structure").agg(pl.col("row").min())
    columns = forest.hops.select(pl.col("op", "key", "kernel").cast(pl.String))
    sizes = counts(forest.root, len(forest.root))
    texts = {}
    for structure, row in first.iter_rows():
        span = slice(row, row + min(int(sizes[row]), _LONGEST_CHAIN))
        depths = forest.depth[span]
        lines = []
        for (op, key, kernel), depth in zip(columns[span].iter_rows(), depths.tolist(), strict=True):
            words = [op or "?", *([f"[{key}]"] if key else []), *([kernel] if kernel else [])]
            lines.append("  " * depth + " ".join(words))
        texts[structure] = "\n".join(lines)
    return texts


def _inputs(signatures: pl.DataFrame) -> dict[int, dict[str, set[str]]]:
    """Of each signature what its tensors had, `0: 32x64` by position."""
    found: dict[int, dict[str, set[str]]] = {}
    for row in signatures.iter_rows(named=True):
        of_call = found.setdefault(row["id"], {})
        for name in _OF_INPUTS:
            value = row[name]
            if value is not None:
                text = "x".join(map(str, value)) or "scalar" if isinstance(value, list) else str(value)
                of_call.setdefault(name, set()).add(f"{row['position']}: {text.removeprefix('torch.')}")
    return found


def _change(before: Kind | None, after: Kind | None) -> Change:
    what: list[str] = []
    if before is None or after is None:
        what = ["new" if before is None else "vanished"]
    else:
        what = [
            _changed(name, before.inputs[name], after.inputs[name])
            for name in _OF_INPUTS
            if name in before.inputs and name in after.inputs and before.inputs[name] != after.inputs[name]
        ]
        if set(before.chains) != set(after.chains):
            what.append("another chain")
    times = _times(before.step_ns if before else [], after.step_ns if after else [])
    return Change(before, after, tuple(what), times)


def _changed(name: str, before: set[str], after: set[str]) -> str:
    """`dtype 0: float32 -> 0: bfloat16`, `shape also 0: 8x8`: of inputs by their position."""
    gone, come = (sorted(values) for values in (before - after, after - before))
    one, other = (", ".join(values[:2]) + ", ..." * (len(values) > 2) for values in (gone, come))
    if not gone:
        return f"{name} also {other}"
    return f"{name} {one} -> {other}" if come else f"{name} no longer {one}"


def _times(before: Sequence[int], after: Sequence[int]) -> Times:
    medians = [float(np.median(times)) if times else None for times in (before, after)]
    ratio = None
    if min(len(before), len(after)) >= _LEAST_SAMPLES and medians[0]:
        ratio = _ratio(np.array(before, float), np.array(after, float))
    return Times(medians[0], medians[1], ratio)


def _ratio(before: np.ndarray, after: np.ndarray) -> Interval:
    """Steps of each side are drawn again, with replacement; the two sides are independent."""
    random = np.random.default_rng(_SEED)
    drawn = [
        np.median(times[random.integers(0, len(times), (_RESAMPLES, len(times)))], axis=1)
        for times in (before, after)
    ]
    ratios = drawn[1] / np.maximum(drawn[0], 1e-9)
    low, high = np.percentile(ratios, [2.5, 97.5]).tolist()
    return Interval(float(np.median(after) / np.median(before)), low, high)


def _different(
    before: dict[str, Any], after: dict[str, Any], names: Sequence[str]
) -> dict[str, tuple[Any, Any]]:
    return {
        name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    }


def _causes(found: Difference) -> list[str]:
    """What is likely behind the changes, the most telling first: the environment, then inputs."""
    names = {**found.settings, **{name: pair for name, pair in found.facts.items() if name != "platform"}}
    causes = [f"{name} {_word(one)} -> {_word(other)}" for name, (one, other) in names.items()]
    counted: Counter[str] = Counter()
    for change in found.changes:
        counted.update({what.partition(" ")[0] for what in change.what} & set(_OF_INPUTS))
    causes += [
        f"{name} of inputs differs in {number} kind{'s' * (number != 1)} of op calls"
        for name, number in counted.most_common()
    ]
    keys = _keys_that_came_and_went(found)
    return causes + keys


def _keys_that_came_and_went(found: Difference) -> list[str]:
    """Dispatch keys that only one trace has in the chains that differ: autocast, autograd, an override."""
    sides: list[set[str]] = [set(), set()]
    for change in found.changes:
        if change.before is None or change.after is None:
            continue
        for side, kind in zip(sides, (change.before, change.after), strict=True):
            for chain in kind.chains:
                side |= set(_KEY.findall(chain))
    return [
        *(f"key {key} only before" for key in sorted(sides[0] - sides[1])),
        *(f"key {key} only after" for key in sorted(sides[1] - sides[0])),
    ]


def _word(value: Any) -> str:
    return "unknown" if value is None else str(value)
