"""Values of Python for planned arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tracer.base.boundary import saved_tensors, torch_constant, torch_device, torch_dtype
from tracer.replay.arguments import Constant, Device, Dtype, FromFile, TensorPlan
from tracer.replay.recipe import fitted
from tracer.replay.recipe import tensor as make_tensor

_LARGEST = 16
"""Bytes of the largest element: memory of whole ones can be seen as any dtype"""


def tensors(values: Iterable[Any]) -> Iterator[TensorPlan | FromFile]:
    """The tensors among planned values, those of lists too."""
    for value in values:
        if isinstance(value, (TensorPlan, FromFile)):
            yield value
        elif isinstance(value, list):
            yield from tensors(value)


def plans(values: Iterable[Any]) -> Iterator[TensorPlan]:
    """Those of them whose values are drawn."""
    return (one for one in tensors(values) if isinstance(one, TensorPlan))


@dataclass(frozen=True)
class Memory:
    """What several tensors of a call share: `elements` of the dtype of the first one, on its device."""

    elements: int
    dtype: str
    device: str


def memories(values: Iterable[Any]) -> dict[int, Memory]:
    """By number; each tensor that shares it fits in."""
    found: dict[int, Memory] = {}
    size: dict[int, int] = {}
    for plan in plans(values):
        if plan.memory is None:
            continue
        number, before = plan.memory
        bytes_there = (before + plan.elements) * torch_dtype(plan.dtype).itemsize
        size[number] = max(size.get(number, 0), -(-bytes_there // _LARGEST) * _LARGEST)
        first = found.get(number, Memory(0, plan.dtype, plan.device))
        found[number] = replace(first, elements=size[number] // torch_dtype(first.dtype).itemsize)
    return found


def integers_below(values: Iterable[Any]) -> int:
    """The smallest size of the floating-point tensors: an index below it fits every dimension."""
    wide = (plan for plan in plans(values) if plan.dtype.startswith(("float", "bfloat", "complex")))
    return max(min((size for plan in wide for size in plan.shape if size), default=2), 1)


def made(values: list[Any], device: str | None) -> list[Any]:
    """The values, on `device` if one is given; tensors are random, with integers that are valid indices."""
    below = integers_below(values)
    shared = {
        number: make_tensor(
            (memory.elements,), (1,), torch_dtype(memory.dtype), device or memory.device, below
        )
        for number, memory in memories(values).items()
    }
    return [_made(value, below, device, shared) for value in values]


def _made(value: Any, below: int, device: str | None, shared: dict[int, Any]) -> Any:
    if isinstance(value, list):
        return [_made(element, below, device, shared) for element in value]
    if isinstance(value, TensorPlan):
        return _tensor(value, below, device, shared)
    if isinstance(value, FromFile):
        return _loaded(value, device)
    if isinstance(value, Dtype):
        return torch_dtype(value.name)
    if isinstance(value, Device):
        return torch_device(device or value.name)
    if isinstance(value, Constant):
        return torch_constant(value.name)
    return value


def _tensor(plan: TensorPlan, below: int, device: str | None, shared: dict[int, Any]) -> Any:
    import torch

    dtype = torch_dtype(plan.dtype)
    if plan.memory is None:
        found = make_tensor(plan.shape, plan.stride, dtype, device or plan.device, below)
    else:
        number, before = plan.memory
        found = shared[number].view(dtype).as_strided(plan.shape, plan.stride, before)
    if plan.fit:
        found = fitted(found, plan.fit)
    found = found.conj() if plan.conjugate else found
    found = torch._neg_view(found) if plan.negative else found
    return found.requires_grad_() if plan.requires_grad and not plan.written else found


def _loaded(given: FromFile, device: str | None) -> Any:
    there = saved_tensors(given.path)
    found = (there if given.place is None else there[given.place]).detach().to(device or given.device)
    return found.requires_grad_() if given.requires_grad and not given.written else found


def fresh(planned: list[Any], values: list[Any]) -> list[Any]:
    """What the op writes into, with the values that it had before, and what shares its memory."""
    copies: dict[int, Any] = {}
    pairs = list(_pairs(planned, values))
    for plan, value in pairs:
        if plan.written:
            copies.setdefault(_memory_of(value), value.untyped_storage().clone())
    anew = {id(value): _moved(value, copies) for _, value in pairs if _memory_of(value) in copies}
    return [
        [anew.get(id(one), one) for one in value] if isinstance(value, list) else anew.get(id(value), value)
        for value in values
    ]


def _pairs(planned: list[Any], values: list[Any]) -> Iterator[tuple[TensorPlan | FromFile, Any]]:
    for plan, value in zip(planned, values, strict=True):
        if isinstance(plan, list):
            yield from _pairs(plan, value)
        elif isinstance(plan, (TensorPlan, FromFile)):
            yield plan, value


def _memory_of(value: Any) -> int:
    """A number for its memory; of an empty one its own."""
    import torch

    if value.layout != torch.strided:
        return id(value)
    return int(value.untyped_storage().data_ptr()) or id(value)


def _moved(value: Any, copies: dict[int, Any]) -> Any:
    import torch

    storage = copies[_memory_of(value)]
    found = torch.empty(0, dtype=value.dtype, device=value.device)
    found.set_(storage, value.storage_offset(), value.shape, value.stride())
    found = found.conj() if value.is_conj() else found
    found = torch._neg_view(found) if value.is_neg() else found
    return found.requires_grad_() if value.requires_grad else found


def with_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with `change` of each tensor, in lists too."""
    import torch

    if isinstance(value, list):
        return [with_tensors(element, change) for element in value]
    return change(value) if isinstance(value, torch.Tensor) else value


def tensors_in(result: Any) -> list[Any]:
    """The tensors that an op call returned."""
    import torch

    if isinstance(result, torch.Tensor):
        return [result.detach()]
    if isinstance(result, (list, tuple)):
        return [tensor for element in result for tensor in tensors_in(element)]
    return []


def widened(tensor: Any) -> Any:
    """A floating-point tensor in float64, a complex one in complex128."""
    import torch

    tensor = tensor.detach()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor
