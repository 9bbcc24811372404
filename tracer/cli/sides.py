"""The traces of the two sides of a comparison, as a user gives them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from tracer.cli.common import USAGE, chosen_trace, fail

_TWO = "give two traces, tracer diff BEFORE AFTER, or several a side: --before A B --after C D"
Sides = tuple[list[Path], list[Path]]


def chosen_sides(
    files: Sequence[Path] | None, before: Sequence[Path] | None, after: Sequence[Path] | None
) -> Sides:
    """Two arguments, or the values of both options. Ends the command if these are no two sides."""
    sides = list(before or ()), list(after or ())
    if files and any(sides):
        fail(f"{files[0]} is on neither side; put it behind --before or --after", USAGE)
    if files:
        if len(files) != 2:
            fail(_TWO, USAGE)
        sides = [files[0]], [files[1]]
    elif not any(sides):
        fail(_TWO, USAGE)
    for side, name in zip(sides, ("--before", "--after"), strict=True):
        if not side:
            fail(f"{name} has no trace; give the runs of that side: {name} A B", USAGE)
    found = [chosen_trace(file) for file in sides[0]], [chosen_trace(file) for file in sides[1]]
    _check_different([*found[0], *found[1]])
    return found


def _check_different(files: Sequence[Path]) -> None:
    """A recording that is there twice would be a run that differs from none."""
    for one, other in combinations(files, 2):
        if one.samefile(other):
            same = f"{one} is given twice" if one == other else f"{one} and {other} are one file"
            fail(f"{same}; record another run: tracer record -o OTHER.trace SCRIPT", USAGE)
