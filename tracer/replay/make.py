"""Values of Python for planned arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tracer.base.boundary import torch_constant, torch_device, torch_dtype
from tracer.replay.arguments import Constant, Device, Dtype, TensorPlan
from tracer.replay.recipe import tensor as make_tensor


def plans(values: Iterable[Any]) -> Iterator[TensorPlan]:
    """The tensors among planned values, those of lists too."""
    for value in values:
        if isinstance(value, TensorPlan):
            yield value
        elif isinstance(value, list):
            yield from plans(value)


def integers_below(values: Iterable[Any]) -> int:
    """The smallest size of the floating-point tensors: an index below it fits every dimension."""
    wide = (plan for plan in plans(values) if plan.dtype.startswith(("float", "bfloat", "complex")))
    return max(min((size for plan in wide for size in plan.shape if size), default=2), 1)


def made(value: Any, below: int, device: str | None) -> Any:
    """The value; tensors are random, with integers smaller than `below`, on `device` if one is given."""
    import torch

    if isinstance(value, list):
        return [made(element, below, device) for element in value]
    if isinstance(value, TensorPlan):
        found = make_tensor(
            value.shape, value.stride, torch_dtype(value.dtype), device or value.device, below
        )
        found = found.conj() if value.conjugate else found
        found = torch._neg_view(found) if value.negative else found
        return found.requires_grad_() if value.requires_grad and not value.written else found
    if isinstance(value, Dtype):
        return torch_dtype(value.name)
    if isinstance(value, Device):
        return torch_device(device or value.name)
    if isinstance(value, Constant):
        return torch_constant(value.name)
    return value


def fresh(plan: Any, value: Any) -> Any:
    """What the op writes into, with the values that it had before; other values as they are."""
    if isinstance(plan, list):
        return [fresh(one, of_one) for one, of_one in zip(plan, value, strict=True)]
    if not isinstance(plan, TensorPlan) or not plan.written:
        return value
    storage = value.untyped_storage().clone()
    return value.new_empty(0).set_(storage, value.storage_offset(), value.shape, value.stride())


def widened(value: Any) -> Any:
    """Floating-point tensors in float64, complex ones in complex128."""
    import torch

    if isinstance(value, list):
        return [widened(element) for element in value]
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.is_complex():
        return value.to(torch.complex128)
    return value.to(torch.float64) if value.is_floating_point() else value
