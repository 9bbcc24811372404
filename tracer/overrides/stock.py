"""The stock kernels of the targets that overrides replace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracer.overrides.target import Target

_kernels: dict[Target, Any] = {}


def stock_kernel(target: Target) -> Any:
    """The kernel of a target before any override; `call_boxed(key set, *arguments)` runs it."""
    return _kernels[target]


def keep(targets: Iterable[Target]) -> None:
    """Keep the kernels of targets that have no override yet. Called before one is registered."""
    import torch

    for target in targets:
        if target not in _kernels:
            _kernels[target] = torch.library.get_kernel(target.operator, target.key)


def forget_all_but(targets: Iterable[Target]) -> None:
    """Called when the overrides at the other targets are deregistered."""
    wanted = set(targets)
    for target in _kernels.keys() - wanted:
        del _kernels[target]
