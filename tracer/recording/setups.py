"""How a program set up its optimizers and data loaders, written as soon as it is known."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from tracer.base import torch_abi

_MOST = 32
"""Optimizers, groups of one, or loaders that are described"""
OPTIONS = (
    *(
        "lr",
        "foreach",
        "fused",
        "capturable",
        "differentiable",
        "maximize",
        "amsgrad",
        "nesterov",
        "centered",
    ),
    *("momentum", "dampening", "weight_decay", "decoupled_weight_decay"),
)
"""Of an optimizer: what decides which ops its steps run"""
SETTINGS = ("num_workers", "batch_size", "pin_memory", "prefetch_factor", "persistent_workers")
"""Of a data loader"""
LOADERS = (torch_abi.LOADERS_MODULE, torch_abi.LOADER_BEGINS)
"""Module and name of the function that Loaders.wrap() replaces"""


class _Setups:
    """`write` gets all that are known, once for each new one."""

    def __init__(self, write: Callable[[list[Any]], object]) -> None:
        self._write = write
        self._known: list[Any] = []
        self._pid = os.getpid()

    def _add(self, described: dict[str, Any]) -> None:
        if self._pid != os.getpid():  # a forked process has its own
            self._pid, self._known = os.getpid(), []
        if described not in self._known and len(self._known) < _MOST:
            self._known.append(described)
            self._write(self._known)


class Optimizers(_Setups):
    """Those of a process that took a step."""

    def __init__(self, write: Callable[[list[Any]], object]) -> None:
        super().__init__(write)
        self._seen: weakref.WeakSet[object] = weakref.WeakSet()

    def stepped(self, optimizer: Any) -> None:
        try:
            if optimizer not in self._seen:
                self._seen.add(optimizer)
                self._add(_optimizer(optimizer))
        except Exception:  # a class of the program's with groups of another form; a full disk
            return


def _optimizer(optimizer: Any) -> dict[str, Any]:
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        options = {name: _option(name, group[name]) for name in OPTIONS if name in group}
        same = [one for one in groups if one["options"] == options]
        if same:
            same[0]["parameters"] += len(group["params"])
        elif len(groups) < _MOST:
            groups.append({"parameters": len(group["params"]), "options": options})
    kind = type(optimizer)
    return {"class": f"{kind.__module__}.{kind.__qualname__}", "groups": groups}


def _option(name: str, value: Any) -> Any:
    """A flag or a number; of the learning rate, which changes, whether it is one."""
    import torch

    if name == "lr":
        return "tensor" if isinstance(value, torch.Tensor) else "number"
    return value if isinstance(value, bool | int | float) else None


class Loaders(_Setups):
    """Data loaders that a process began to iterate."""

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What replaces the function that a loader calls when an iteration begins.

        Not the iterator itself: in the traceback of an error in the program's own sampler it would be seen.
        """

        def begins(*arguments: Any, **named: Any) -> Any:
            self._began(sys._getframe(1).f_locals.get("loader"))
            return original(*arguments, **named)

        return begins

    def _began(self, loader: Any) -> None:
        try:
            if loader is not None:
                self._add({name: _setting(getattr(loader, name, None)) for name in SETTINGS})
        except Exception:  # a full disk
            return


def _setting(value: Any) -> Any:
    return value if isinstance(value, bool | int) else None
