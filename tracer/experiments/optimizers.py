"""Which variant of an optimizer of torch takes a step in the recorded ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

from tracer.replay.replay_errors import CannotReplayError

_ALL = {"weight_decay": (0.0, 0.01), "maximize": (False, True)}
_FLAGS: dict[str, dict[str, tuple[Any, ...]]] = {
    "SGD": {"momentum": (0.0, 0.9), "nesterov": (False, True), **_ALL},
    "Adam": {"amsgrad": (False, True), "decoupled_weight_decay": (False, True), **_ALL},
    "AdamW": {"amsgrad": (False, True), **_ALL},
    "RMSprop": {"momentum": (0.0, 0.9), "centered": (False, True), **_ALL},
    "Adagrad": _ALL,
}
"""What decides which ops a step runs"""
_BESIDES = ("profiler::", "aten::_local_scalar_dense", "aten::lift_fresh")
"""Ranges, and reads of the number of steps: a recording has ops around them"""
_STEPS = 3  # in the first one buffers are made


def kind_of(name: str) -> Any:
    """The class of this name, which a trace gives. Raises CannotReplayError for another one."""
    import torch

    optim = torch.optim
    known = {one.__name__: one for one in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad)}
    if name not in known:
        raise CannotReplayError(f"no variant of {name} is known")
    return known[name]


def variant(name: str, options: dict[str, bool], ops: Sequence[str], device: str = "cpu") -> dict[str, Any]:
    """The flags with which the optimizer's step runs these ops, in this order.

    Of groups of parameters with different flags, those of most parameters or lists. Raises
    CannotReplayError if no variant runs them.
    """
    known = _sequences(name, options, device)
    of_some = set().union(*known)
    left = [op for op in ops if op in of_some]
    found: Counter[tuple[str, ...]] = Counter()
    at = 0
    while at < len(left):
        fits = (one for one in known if tuple(left[at : at + len(one)]) == one)
        longest = max(fits, key=len, default=None)
        if longest is None:
            break
        found[longest] += 1
        at += len(longest)
    if not found or at < len(left):
        raise CannotReplayError(f"the recorded ops are of no known variant of {name}")
    return known[found.most_common(1)[0][0]]


def _sequences(name: str, options: dict[str, bool], device: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """The ops of one parameter's step, and the flags that lead to them."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    flags = _FLAGS[name]
    for values in product(*flags.values()):
        chosen = dict(zip(flags, values, strict=True))
        try:
            ops = _ops_of(name, {**chosen, **options}, device)
        except (TypeError, ValueError):  # nesterov without momentum; a flag of a later torch
            continue
        found.setdefault(ops, chosen)
    return found


def _ops_of(name: str, options: dict[str, Any], device: str) -> tuple[str, ...]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Names(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    parameter = torch.nn.Parameter(torch.ones(2, device=device))
    parameter.grad = torch.ones_like(parameter)
    optimizer = kind_of(name)([parameter], lr=1e-4, **options)
    for _ in range(_STEPS - 1):
        optimizer.step()
    with Names():
        optimizer.step()
    return tuple(op for op in seen if not op.startswith(_BESIDES))
