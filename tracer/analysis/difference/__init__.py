"""What two versions of a program do differently: op calls by line, chains, inputs, settings, times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.cuda_tables import has_cuda
from tracer.analysis.difference.alignment import aligned, renamed_files
from tracer.analysis.difference.cause import Cause
from tracer.analysis.difference.causes import causes
from tracer.analysis.difference.change import Change, change_of, with_kernels
from tracer.analysis.difference.circumstances import facts_of, settings_of
from tracer.analysis.difference.compared_steps import ComparedSteps
from tracer.analysis.difference.folding import cause_of
from tracer.analysis.difference.fusing import fusion, texts_of
from tracer.analysis.difference.fusion import Fusion
from tracer.analysis.difference.kernel_change import KernelChange
from tracer.analysis.difference.kinds import Kind, Side, side_of
from tracer.analysis.difference.lines import Line, confirmed, shorter_side, times_by_line, usual_step
from tracer.analysis.difference.options import options
from tracer.analysis.difference.outside import Between, outside_of
from tracer.analysis.difference.pace import Pace, pace_of
from tracer.analysis.difference.places import Places
from tracer.analysis.difference.remarks import remarks
from tracer.analysis.difference.several import by_run, kinds_of_runs, share_a_line
from tracer.analysis.difference.times import Both, Interval, Times, times_by_name, times_of
from tracer.analysis.difference.values import Place, ValueDifference, value_difference

if TYPE_CHECKING:
    from tracer.trace import Trace

__all__ = [
    "Between",
    "Both",
    "Cause",
    "Change",
    "Difference",
    "DifferenceError",
    "Fusion",
    "Interval",
    "Kind",
    "Pace",
    "Place",
    "Times",
    "ValueDifference",
    "difference",
]
Sides = tuple[Sequence["Trace"], Sequence["Trace"]]


class DifferenceError(ValueError):
    """These traces cannot be compared; the message says what to do."""


@dataclass(frozen=True)
class Difference:
    """The runs of two sides compared.

    runs             how many each side has
    steady           whether only steady steps were compared
    steps            how many each side has; (0, 0): a trace has none, and whole runs are compared
    usual            a step without interruptions (lines.usual_step); None: a part of it is in no line
    pace             what the unchanged lines did; None: too few of them take time
    facts, settings  name -> (before, after), where they differ
    ops, modules     name -> what a step spends in outermost ops of that name, or in the ops of that
                     nn.Module and those in it; the largest change first
    lines            (name, backward) -> what a step spends in all op calls of the line
    outside          lines before and after -> what a step spends outside ops between them
    remarks          what the traces lack for more, and what to do
    """

    runs: tuple[int, int]
    step: Times
    usual: Times | None
    gpu: Times
    steady: bool
    steps: tuple[int, int]
    pace: Pace | None
    changes: list[Change]
    facts: dict[str, tuple[Any, Any]]
    settings: dict[str, tuple[Any, Any]]
    ops: dict[str, Both]
    modules: dict[str, Both]
    lines: dict[Line, Both]
    outside: dict[Between, Both]
    causes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    values: ValueDifference | None = None
    """None: one of the traces has no hashes of values"""
    fusion: Fusion | None = None
    """None unless one of the traces has compiled code and the other has none"""

    @property
    def several(self) -> bool:
        """Whether both sides show how runs of one program differ."""
        return min(self.runs) > 1

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


def difference(before: Sequence[Trace], after: Sequence[Trace]) -> Difference:
    """Aligns the kinds of op calls of all runs (difference.alignment) and compares the two sides.

    Raises DifferenceError if runs of one side are of different scripts.
    """
    traces, sides = [*before, *after], (before, after)
    steps, first, second = ComparedSteps.of(traces), slice(len(before)), slice(len(before), None)
    runs = _runs(traces, steps)
    one, other = runs[first], runs[second]
    for side, of_side in zip(sides, (one, other), strict=True):
        _check_scripts(side, of_side)
    changes = [change_of(*pair) for pair in aligned(kinds_of_runs(one), kinds_of_runs(other))]
    fused = fusion((before[0], after[0]), (steps.numbers[0] or (), steps.numbers[len(before)] or ()))
    if fused is not None:
        changes = [with_kernels(change, fused) for change in changes]
    outside, lines = _times((one, other), lambda run: run.outside), times_by_line(changes)
    rows = [*lines.values(), *outside.values()]
    pace = pace_of(_unchanged(changes, lines, outside, (len(before), len(after))), shorter_side(rows))
    changes = [replace(change, times=change.times.judged(pace)) for change in changes]
    facts, settings = facts_of(sides), settings_of(sides)
    likely = _causes(sides, changes, settings, facts)
    changes = [replace(change, cause=cause_of(change, likely)) for change in changes]
    step = times_of(steps.lengths[first], steps.lengths[second])
    gpu = times_of([run.gpu_ns for run in one], [run.gpu_ns for run in other])
    usual = None
    if not any(has_cuda(trace) or _compiled(trace) for trace in traces):
        usual = usual_step(rows, (len(before), len(after)))
    return Difference(
        runs=(len(before), len(after)),
        step=_step(step, gpu, usual, pace),
        usual=usual,
        gpu=gpu,
        steady=steps.steady,
        steps=(steps.count(first), steps.count(second)),
        pace=pace,
        changes=changes,
        facts=facts,
        settings=settings,
        ops=_judged(_times((one, other), lambda run: run.ops, lambda run: run.gpu_of_ops), pace),
        modules=_judged(_times((one, other), lambda run: run.modules, lambda run: run.gpu_of_modules), pace),
        lines=_judged(lines, pace),
        outside=_judged(outside, pace),
        causes=[*options(before[0], after[0]), *(cause.text for cause in likely)],
        remarks=[
            *_other_script(sides, one[0], other[0]),
            *remarks(sides, sum(change.uneven for change in changes)),
        ],
        values=value_difference(before[0], after[0]),
        fusion=fused,
    )


def _runs(traces: Sequence[Trace], steps: ComparedSteps) -> list[Side]:
    cuda = all(has_cuda(trace) for trace in traces)
    first = texts_of(traces[0])
    files: dict[str, str] = {}
    for trace in traces[1:]:
        files |= renamed_files(first, texts_of(trace))
    places = Places(files)
    return [
        replace(side_of(trace, steps.steady, numbers, cuda=cuda), outside=outside_of(trace, numbers, places))
        for trace, numbers in zip(traces, steps.numbers, strict=True)
    ]


def _times(
    sides: tuple[Sequence[Side], Sequence[Side]],
    host: Callable[[Side], dict[Any, Any]],
    gpu: Callable[[Side], dict[Any, Any]] = lambda _: {},
) -> dict[Any, Both]:
    of_host, of_gpu = (tuple(by_run(side, of) for side in sides) for of in (host, gpu))
    return times_by_name((of_host[0], of_host[1]), (of_gpu[0], of_gpu[1]))


def _judged(times: dict[Any, Both], pace: Pace | None) -> dict[Any, Both]:
    return {name: both.judged(pace) for name, both in times.items()}


def _unchanged(
    changes: Sequence[Change], lines: dict[Line, Both], outside: dict[Between, Both], runs: tuple[int, int]
) -> list[list[dict[Any, float]]]:
    """What unchanged lines take in each run of both sides, and what is outside ops between two of them."""
    edited = {
        kind.line for change in changes if change.what for kind in (change.before, change.after) if kind
    }
    rows: dict[Any, Both] = {line: both for line, both in lines.items() if line[0] not in edited}
    rows |= {around: both for around, both in outside.items() if not edited.intersection(around)}
    return [
        [
            {name: both.times.runs[side][run] for name, both in rows.items() if both.times.runs[side]}
            for run in range(number)
        ]
        for side, number in enumerate(runs)
    ]


def _step(step: Times, gpu: Times, usual: Times | None, pace: Pace | None) -> Times:
    """Its verdict: not that of the machine, unless the GPU, which has its own pace, says the same."""
    if gpu.verdict == step.verdict:
        return step
    judged = step.judged(pace)
    return judged if usual is None else confirmed(judged, usual, pace)


def _check_scripts(traces: Sequence[Trace], runs: Sequence[Side]) -> None:
    for trace, run in zip(traces[1:], runs[1:], strict=True):
        if not share_a_line(runs[0], run):
            raise DifferenceError(
                f"{traces[0].path} and {trace.path} are on one side and have no Python line in common; "
                "give runs of the same script"
            )


def _other_script(sides: Sides, one: Side, other: Side) -> list[str]:
    if share_a_line(one, other):
        return []
    names = [Path((side[0].environment.get("argv") or ["?"])[0]).name for side in sides]
    return [
        f"the sides have no Python line in common ({names[0]} before, {names[1]} after), so all of it counts "
        "as changed; to compare versions of a script, record each with tracer record"
    ]


def _causes(
    sides: Sides,
    changes: Sequence[Change],
    settings: dict[str, tuple[Any, Any]],
    facts: dict[str, tuple[Any, Any]],
) -> list[Cause]:
    one, other = (_compiled(side[0]) for side in sides)
    return causes(changes, settings, facts, (one, other), lambda kernel: _registered(sides[1][0], kernel))


def _registered(trace: Trace, kernel: KernelChange) -> str:
    """`main.cpp:12` of the second kernel function."""
    op, key, name = kernel.side(1)
    of = {"op": op, "key": key, "kernel": name}
    fits = [pl.col(column).cast(pl.String) == value for column, value in of.items()]
    places = trace.hops.filter(fits)["registered_at"].drop_nulls().head(1)
    return str(places[0]).rpartition("/")[2] if len(places) else ""


def _compiled(trace: Trace) -> int:
    """Calls of code that torch.compile made."""
    return int(trace.certificate.get("compiled_calls") or 0)
