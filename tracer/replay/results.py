"""The results of a replay, and how far they are from float64."""

from __future__ import annotations

from typing import Any

from tracer.compare.accuracy import Deviation, deviation
from tracer.replay.call import Call
from tracer.replay.make import tensors_in, widened, with_tensors


def exact_results(call: Call) -> list[Any] | str:
    """In float64 on the CPU, from the same values; why not, if the operator does not compute that."""
    import torch

    try:
        plain, by_name = call.split(with_tensors(call.made("cpu"), widened))
        with torch.no_grad():
            return tensors_in(call.op(*plain, **by_name))
    except Exception as error:  # whatever a kernel raises: it has no float64, or wants a GPU
        first = next(iter(str(error).splitlines()), "")
        return f"the operator does not compute in float64 on the CPU: {type(error).__name__}: {first}"[:200]


def errors(results: list[Any], exact: list[Any] | str | None) -> list[Deviation | None]:
    """How far each result is from float64; None if it has no values, or float64 has none."""
    if exact is None or isinstance(exact, str) or len(exact) != len(results):
        return [None] * len(results)
    return [_error(result, wide) for result, wide in zip(results, exact, strict=True)]


def _error(result: Any, wide: Any) -> Deviation | None:
    comparable = _has_elements(result) and _has_elements(wide) and result.is_floating_point()
    return deviation(result.cpu(), wide, None)[0] if comparable and result.shape == wide.shape else None


def _has_elements(tensor: Any) -> bool:
    """Elements that can be compared: not Meta, sparse, nested or quantized."""
    import torch

    strided = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized
    return strided and tensor.device.type != "meta"


def same_results(one: list[Any], other: list[Any]) -> bool | None:
    """Whether both are equal element by element; None if one has none to compare (Meta, sparse)."""
    import torch

    if not all(map(_has_elements, (*one, *other))):
        return None
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())
        for a, b in zip(one, other, strict=True)
    )
