"""The stock kernels of the targets that overrides replace."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from typing import Any

from tracer.base.this_torch import this_torch
from tracer.overrides.target import Target

_kernels: dict[Target, Any] = {}


def stock_kernel(target: Target) -> Any:
    """The kernel of a target before any override; `call_boxed(key set, *arguments)` runs it."""
    return _kernels[target]


_NO_TENSOR = "Expected a value of type 'Tensor'"


def call_stock(
    kernel: Any, keys: Any, args: tuple, kwargs: dict[str, Any], of_tensors: Collection[int]
) -> Any:
    """With the arguments that an override was given: a number may be in the place of a tensor.

    torch takes it back as one for few operators, such as add, and refuses it before the kernel runs for
    the rest, such as remainder.

    of_tensors   the positions of arguments that are tensors
    """
    try:
        return kernel.call_boxed(keys, *args, **kwargs)
    except RuntimeError as error:
        if _NO_TENSOR not in str(error):
            raise
        tensors = [args[n] for n in of_tensors if n < len(args) and not _is_number(args[n])]
        if not tensors or len(tensors) == len(of_tensors):
            raise
    made = [
        _beside(tensors, one) if n in of_tensors and _is_number(one) else one for n, one in enumerate(args)
    ]
    return kernel.call_boxed(keys, *made, **kwargs)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def _beside(tensors: Sequence[Any], number: Any) -> Any:
    """Of the dtype that the number has beside the tensors: it promotes none."""
    torch = this_torch()
    dtypes = [torch.result_type(one, number) for one in tensors]
    return torch.tensor(number, dtype=reduce(torch.promote_types, dtypes))


def keep(targets: Iterable[Target]) -> None:
    """Keep the kernels of targets that have no override yet. Called before one is registered."""
    torch = this_torch()
    for target in targets:
        if target not in _kernels:
            _kernels[target] = torch.library.get_kernel(target.operator, target.key)


def forget_all_but(targets: Iterable[Target]) -> None:
    """Called when the overrides at the other targets are deregistered."""
    wanted = set(targets)
    for target in _kernels.keys() - wanted:
        del _kernels[target]
