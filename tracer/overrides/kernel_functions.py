"""Kernel functions that an override puts into the dispatch table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from tracer.overrides.counts import HandedOver, Ran
from tracer.overrides.target import Target


@runtime_checkable
class Kernels(Protocol):
    """Kernel functions that are installed together: a Python function, or those of a C++ extension.

    `install` puts them at their targets, `remove` takes them away again; the counts go on over both.
    """

    @property
    def operators(self) -> Iterable[tuple[str, str]]: ...
    def install(self) -> None: ...
    def remove(self) -> None: ...
    def ran(self) -> Ran: ...
    def handed_over(self) -> HandedOver: ...


def targets_of(kernels: Kernels) -> list[Target]:
    return [Target(*target) for target in kernels.operators]
