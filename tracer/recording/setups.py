"""How a program set up its optimizers and data loaders, written as soon as it is known."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from functools import partial
from types import GetSetDescriptorType
from typing import Any

from tracer.base import torch_abi
from tracer.base.interrupts import is_of_the_program
from tracer.base.this_torch import this_torch

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
    """Those of a process that took a step.

    Nothing of the program's is called: it may draw a random number, print, or end the process.
    """

    def __init__(self, write: Callable[[list[Any]], object]) -> None:
        super().__init__(write)
        self._seen: dict[int, weakref.ref[object]] = {}

    def stepped(self, optimizer: Any) -> None:
        try:
            number = id(optimizer)
            known = self._seen.get(number)
            if known is not None and known() is optimizer:
                return
            # No code of Python's, in which a signal may be handled: what is raised there is lost.
            self._seen[number] = weakref.ref(optimizer, partial(self._seen.pop, number))
            if described := _optimizer(optimizer):
                self._add(described)
        except Exception as error:  # a full disk; an audit hook; a class without weak references
            if is_of_the_program(error):
                raise


def _optimizer(optimizer: Any) -> dict[str, Any] | None:
    """None: it keeps its groups in another way than torch's optimizers."""
    listed = _attributes(optimizer).get("param_groups")
    if type(listed) is not list:
        return None
    groups: list[dict[str, Any]] = []
    for group in listed:
        if type(group) is not dict or type(group.get("params")) is not list:
            return None
        options = {name: _option(name, group[name]) for name in OPTIONS if name in group}
        same = [one for one in groups if one["options"] == options]
        if same:
            same[0]["parameters"] += len(group["params"])
        elif len(groups) < _MOST:
            groups.append({"parameters": len(group["params"]), "options": options})
    return {"class": _name_of(type(optimizer)), "groups": groups}


def _attributes(thing: object) -> dict[str, Any]:
    """Its own, without properties and __getattribute__ of its class: one may be called __dict__."""
    for kind in type.__dict__["__mro__"].__get__(type(thing)):
        getter = type.__dict__["__dict__"].__get__(kind).get("__dict__")
        if type(getter) is GetSetDescriptorType:
            own = getter.__get__(thing)
            return own if type(own) is dict else {}
    return {}


def _name_of(kind: type) -> str:
    """Past a metaclass of the program's."""
    parts = [type.__dict__[name].__get__(kind) for name in ("__module__", "__qualname__")]
    return ".".join(part if type(part) is str else "?" for part in parts)


def _option(name: str, value: Any) -> Any:
    """A flag or a number; of the learning rate, which changes, whether it is one."""
    if name == "lr":
        return "tensor" if type.__subclasscheck__(this_torch().Tensor, type(value)) else "number"
    return value if type(value) in (bool, int, float) else None


class Loaders(_Setups):
    """Data loaders that a process began to iterate."""

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What replaces the function that a loader calls when an iteration begins.

        Not the iterator itself: in the traceback of an error in the program's own sampler it would be seen.
        """

        def begins(*arguments: Any, **named: Any) -> Any:
            self._began()
            return original(*arguments, **named)

        return begins

    def _began(self) -> None:
        try:
            loader = sys._getframe(2).f_locals.get("loader")
            if loader is not None:
                own = _attributes(loader)
                self._add({name: _setting(own.get(name)) for name in SETTINGS})
        except Exception as error:  # a full disk; an audit hook; no attributes
            if is_of_the_program(error):
                raise


def _setting(value: Any) -> Any:
    return value if type(value) in (bool, int) else None
