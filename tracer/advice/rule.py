"""What a rule of advice is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tracer.advice.finding import Finding
from tracer.advice.steady import Steady


class Rule(Protocol):
    """A module of tracer.advice.rules.

    looks_for   what it looks for, in a phrase
    threshold   from which share of a step on it says something, and why
    needs       what a recording must have for it: keys of NEEDS
    find        what it finds in the steady steps
    """

    __name__: str
    looks_for: str
    threshold: str
    needs: tuple[str, ...]

    def find(self, steady: Steady, /) -> Iterator[Finding]: ...


NEEDS = {
    "shapes": "shapes of arguments: record without --no-shapes",
    "sources": "Python lines: record without --no-source",
    "scalars": "arguments that are no tensors: record with --values scalars, to measure",
    "cuda": "a GPU, and CUDA calls: record with --cuda auto",
}
