"""Overrides for the CPU that are right: they compute by other operators, and hand over what they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tracer.overrides import HandOver

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
RIGHT: dict[str, tuple[str, Callable[..., Any]]] = {}
"""By name the operator and the function"""


def right(operator: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        RIGHT[function.__name__] = operator, function
        return function

    return add


def only(condition: object, why: str) -> None:
    if not condition:
        raise HandOver(why)


def dense(*tensors: Any, dtypes: tuple[torch.dtype, ...] = FLOATS) -> None:
    only(all(isinstance(t, torch.Tensor) for t in tensors), "a number")
    only(all(t.layout == torch.strided and t.device.type == "cpu" for t in tensors), "not dense")
    only(len({t.dtype for t in tensors}) == 1 and tensors[0].dtype in dtypes, "dtype")


def has_dimension(x: torch.Tensor, dim: int) -> bool:
    return bool(x.dim()) and -x.dim() <= dim < x.dim()


@right("aten::convolution")
def convolution(x, weight, bias, *rest):
    dense(*(t for t in (x, weight, bias) if t is not None))
    wide = (None if t is None else t.double() for t in (x, weight, bias))
    return aten.convolution(*wide, *rest).to(x.dtype)


@right("aten::gelu_backward")
def gelu_backward(grad, x, *, approximate="none"):
    dense(grad, x)
    only(grad.shape == x.shape and grad.is_contiguous() and x.is_contiguous(), "layout")
    only(approximate in ("none", "tanh"), "approximate")
    g, z = grad.double(), x.double()
    if approximate == "none":
        normal = 0.5 * (1 + torch.erf(z * 0.5**0.5))
        return (g * (normal + z * torch.exp(-0.5 * z * z) * 0.3989422804014327)).to(x.dtype)
    k, c = 0.7978845608028654, 0.044715
    t = torch.tanh(k * (z + c * z**3))
    slope = 0.5 * z * (1 - t * t) * k * (1 + 3 * c * z * z)
    return (g * (0.5 * (1 + t) + slope)).to(x.dtype)


@right("aten::sum.dim_IntList")
def sum_(x, dim, keepdim=False, *, dtype=None):
    dense(x)
    only(dtype in (None, *FLOATS), "dtype")
    return torch.sum(x.double(), dim, keepdim).to(dtype or x.dtype)


@right("aten::sort.stable")
def sort(x, *, stable=None, dim=-1, descending=False):
    """Stable where that is not asked for: stock's equal elements are in another order."""
    dense(x)
    only(has_dimension(x, dim) and x.is_contiguous() and not x.isnan().any(), "form")
    places = torch.argsort(-x.double() if descending else x.double(), dim=dim, stable=True)
    return torch.gather(x, dim, places), places


@right("aten::div.Tensor_mode")
def div(a, b, *, rounding_mode=None):
    dense(a, b, dtypes=FLOATS[:1])
    only(rounding_mode in (None, "floor", "trunc"), "mode")
    only(bool(a.isfinite().all() and b.isfinite().all() and b.all()), "special numbers")
    quotient = torch.true_divide(a.double(), b.double())
    rounded = {"floor": quotient.floor, "trunc": quotient.trunc}.get(rounding_mode, lambda: quotient)
    return rounded().to(a.dtype)


@right("aten::pow.Tensor_Scalar")
def pow_scalar(x, exponent):
    dense(x)
    only(not isinstance(exponent, complex), "a complex number")
    return torch.float_power(x.double(), float(exponent)).to(x.dtype)


@right("aten::pow.Tensor_Tensor")
def pow_tensor(x, exponent):
    dense(x, exponent)
    return torch.pow(x.double(), exponent.double()).to(x.dtype)


@right("aten::gather")
def gather(x, dim, index, *, sparse_grad=False):
    only(index.dtype == torch.int64 and x.dim() == index.dim() and has_dimension(x, dim), "form")
    only(all(t.layout == torch.strided and t.device.type == "cpu" for t in (x, index)), "not dense")
    dim %= x.dim()
    fits = (own <= whole for d, (own, whole) in enumerate(zip(index.shape, x.shape, strict=True)) if d != dim)
    only(all(fits) and index.numel(), "sizes")
    only(int(index.min()) >= 0 and int(index.max()) < x.shape[dim], "range")
    places = list(torch.meshgrid(*(torch.arange(size) for size in index.shape), indexing="ij"))
    places[dim] = index
    return x[tuple(places)].contiguous()
