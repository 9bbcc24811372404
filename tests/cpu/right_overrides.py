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


@right("aten::native_layer_norm")
def layer_norm(x, shape, weight, bias, eps):
    """In float64, the variance in two passes."""
    given = [t for t in (x, weight, bias) if t is not None]
    dense(*given, dtypes=FLOATS[:2])
    only(len(shape) and list(x.shape[-len(shape) :]) == list(shape) and x.numel(), "shape")
    only(all(list(t.shape) == list(shape) for t in given[1:]), "shape of weight or bias")
    only(x.is_contiguous(), "layout")
    dims = [-1 - n for n in range(len(shape))]
    wide = x.double()
    mean = wide.mean(dims, keepdim=True)
    deviation = ((wide - mean).square().mean(dims, keepdim=True) + eps).rsqrt()
    result = (wide - mean) * deviation
    result = result if weight is None else result * weight.double()
    result = result if bias is None else result + bias.double()
    return tuple(one.to(x.dtype) for one in (result, mean, deviation))


@right("aten::topk")
def topk(x, k, dim=-1, largest=True, sorted=True):
    """By a stable sort: of equal elements others are first than with stock."""
    dense(x, dtypes=FLOATS[:2])
    only(has_dimension(x, dim) and 0 < k <= x.shape[dim] and not x.isnan().any(), "form")
    both = torch.sort(x, dim=dim, descending=largest, stable=True)
    return tuple(one.narrow(dim, 0, k).clone(memory_format=torch.contiguous_format) for one in both)


@right("aten::_softmax")
def softmax(x, dim, half):
    dense(x, dtypes=FLOATS[:2])
    only(has_dimension(x, dim) and x.numel() and x.is_contiguous() and not half, "form")
    powers = (x - x.amax(dim, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


@right("aten::var.correction")
def var(x, dim=None, *, correction=None, keepdim=False):
    dense(x, dtypes=FLOATS[:2])
    only(dim is not None and len(dim) == 1 and has_dimension(x, dim[0]) and x.numel(), "form")
    freedom = x.shape[dim[0]] - (1 if correction is None else correction)
    only(freedom > 0, "degrees of freedom")
    return (x - x.mean(dim, keepdim=True)).square().sum(dim, keepdim) / freedom


@right("aten::bmm")
def bmm(a, b):
    """Matrix by matrix, in pieces of the inner dimension."""
    dense(a, b, dtypes=FLOATS[:2])
    only(a.dim() == b.dim() == 3 and len(a) == len(b) and a.shape[2] == b.shape[1] and len(a), "shapes")
    result = a[:, :, :0] @ b[:, :0]
    for left, right in zip(a.split(9, 2), b.split(9, 1), strict=True):
        result = result + torch.stack([x @ y for x, y in zip(left, right, strict=True)])
    return result


@right("aten::silu")
def silu(x):
    dense(x, dtypes=FLOATS[:2])
    only(bool(x.isfinite().all()) and x.is_contiguous(), "form")
    return x / (1 + torch.exp(-x))


@right("aten::roll")
def roll(x, shifts, dims=()):
    only(x.layout == torch.strided and x.device.type == "cpu" and not x.is_neg() and not x.is_conj(), "form")
    only(len(shifts) == len(dims) == 1 and has_dimension(x, dims[0]) and x.shape[dims[0]], "form")
    begin = -shifts[0] % x.shape[dims[0]]
    rest = x.shape[dims[0]] - begin
    return torch.cat([x.narrow(dims[0], begin, rest), x.narrow(dims[0], 0, begin)], dims[0]).contiguous()


@right("aten::scatter_add")
def scatter_add(x, dim, index, src):
    """Adds in float64 by a product with where each source goes."""
    dense(x, src, dtypes=FLOATS[:1])
    only(index.dtype == torch.int64 and x.dim() == 1 == index.dim() == src.dim() and dim in (0, -1), "form")
    only(
        index.numel() and len(index) <= len(src) and int(index.min()) >= 0 and int(index.max()) < len(x),
        "range",
    )
    only(bool(src.isfinite().all()) and not torch.are_deterministic_algorithms_enabled(), "numbers")
    goes = torch.nn.functional.one_hot(index, len(x)).double()
    return (x.double() + src[: len(index)].double() @ goes).to(x.dtype)


@right("aten::logsumexp")
def logsumexp(x, dim, keepdim=False):
    dense(x, dtypes=FLOATS[:2])
    only(len(dim) == 1 and has_dimension(x, dim[0]) and x.numel(), "form")
    top = x.amax(dim, keepdim=True)
    finite = torch.where(top.isfinite(), top, 0)
    result = (x - finite).exp().sum(dim, keepdim=True).log() + finite
    return result if keepdim else result.squeeze(dim[0])
