"""What the traces of a comparison lack, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tracer.analysis.cuda_tables import has_cuda
from tracer.analysis.difference.options import options_within
from tracer.analysis.difference.values import value_difference

if TYPE_CHECKING:
    from tracer.trace import Trace

Sides = tuple[Sequence["Trace"], Sequence["Trace"]]
_SIDES = ("before", "after")


def remarks(sides: Sides, uneven: int) -> list[str]:
    """One sentence each. `uneven`: kinds of op calls that only some runs of one side have."""
    found = [
        f"{name} is not complete, and what it lacks counts as a change; record it again"
        f"{' or leave it out' if len(side) > 2 else ''}: {trace.certificate['verdict']}"
        for place, side in enumerate(sides)
        for name, trace in zip(_names(side, place), side, strict=True)
        if not trace.certificate["complete"]
    ]
    if uneven:
        found.append(
            f"{uneven} kind{'s' * (uneven != 1)} of op calls are in some runs of one side only, "
            "and do not count as changes"
        )
    return [*found, *options_within(sides), *_lacking(sides), *_varying_values(sides)]


def _names(side: Sequence[Trace], place: int) -> list[str]:
    if len(side) == 1:
        return [("the first trace", "the second trace")[place]]
    return [str(trace.path) for trace in side]


def _lacking(sides: Sides) -> Iterator[str]:
    for what, option, has in (
        ("CUDA calls and GPU work", "--cuda on, on a machine with a GPU", has_cuda),
        ("hashes of values", "--values hash", _has_values),
    ):
        there: tuple[list[str], list[str]] = ([], [])
        for place, side in enumerate(sides):
            for name, trace in zip(_names(side, place), side, strict=True):
                there[has(trace)].append(name)
        if all(there):
            without, those = (_listed(names) for names in there)
            verb = "has" if len(there[True]) == 1 else "have"
            short = without.removesuffix(" trace") if len(there[False]) == 1 else without
            yield f"only {those} {verb} {what}, so they are not compared; record {short} with {option}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _has_values(trace: Trace) -> bool:
    return not trace.values.is_empty()


def _varying_values(sides: Sides) -> Iterator[str]:
    """Of the first two runs of each side: if they differ, so may the sides without any change."""
    for which, side in zip(_SIDES, sides, strict=True):
        found = value_difference(side[0], side[1]) if len(side) > 1 else None
        if found is not None and found.first is not None:
            at = found.first[0]
            where = f" at {at.line}" if at.line else ""
            yield (
                f"the values of two runs {which} differ too, first in {at.op}{where}, so values do not say "
                "what changed; set the seeds"
            )
