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


# ---- other operators ----------------------------------------------------------------------------------
def whole(*tensors: Any, dtypes: tuple[torch.dtype, ...] = FLOATS[:2]) -> None:
    """Contiguous, finite and not empty."""
    dense(*tensors, dtypes=dtypes)
    only(all(t.is_contiguous() and t.numel() and bool(t.isfinite().all()) for t in tensors), "form")


@right("aten::tanh")
def tanh(x):
    whole(x)
    powers = torch.exp(-2 * x.double().abs())
    return ((1 - powers) / (1 + powers)).copysign(x).to(x.dtype)


@right("aten::native_group_norm")
def group_norm(x, weight, bias, n, c, hxw, group, eps):
    given = [t for t in (x, weight, bias) if t is not None]
    whole(*given)
    only(x.dim() > 1 and x.shape[:2] == (n, c) and x.numel() == n * c * hxw and group > 0, "sizes")
    only(c % group == 0 and all(t.shape == (c,) for t in given[1:]), "groups")
    rows = x.double().view(n, group, -1)
    mean = rows.mean(2, keepdim=True)
    deviation = ((rows - mean).square().mean(2, keepdim=True) + eps).rsqrt()
    result = ((rows - mean) * deviation).view(n, c, -1)
    result = result if weight is None else result * weight.double().view(1, c, 1)
    result = result if bias is None else result + bias.double().view(1, c, 1)
    return tuple(t.to(x.dtype) for t in (result.view(x.shape), mean.view(n, group), deviation.view(n, group)))


@right("aten::hypot")
def hypot(a, b):
    whole(a, b, dtypes=FLOATS[:1])
    only(a.shape == b.shape, "shapes")
    return (a.double().square() + b.double().square()).sqrt().to(a.dtype)


@right("aten::avg_pool2d")
def avg_pool(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor=None):
    whole(x)
    only(x.dim() == 4 and not ceil_mode and divisor is None and len(kernel) == 2, "options")
    only(
        padding in (0, [0, 0]) and all(0 < k <= s for k, s in zip(kernel, x.shape[2:], strict=True)), "sizes"
    )
    only(len(stride) in (0, 2) and all(one > 0 for one in stride), "stride")
    windows = x.double()
    for dim, (size, step) in enumerate(zip(kernel, stride or kernel, strict=True)):
        windows = windows.unfold(2 + dim, size, step)
    return windows.mean((-1, -2)).to(x.dtype)


@right("aten::index_add")
def index_add(x, dim, index, source, *, alpha=1):
    """By a product with where each row goes."""
    whole(x, source, dtypes=FLOATS[:1])
    only(
        index.dtype == torch.int64 and index.dim() == 1 and x.dim() == 2 == source.dim() and dim == 0, "form"
    )
    only(not isinstance(alpha, (bool, complex)) and abs(alpha) < 1e9, "alpha")
    only(len(index) == len(source) and x.shape[1] == source.shape[1], "sizes")
    only(int(index.min()) >= 0 and int(index.max()) < len(x), "range")
    only(not torch.are_deterministic_algorithms_enabled(), "deterministic")
    goes = torch.nn.functional.one_hot(index, len(x)).double()
    return (x.double() + alpha * (goes.t() @ source.double())).to(x.dtype)


@right("aten::searchsorted.Tensor")
def searchsorted(sequence, x, *, out_int32=False, right=False, side=None, sorter=None):
    whole(sequence, x)
    only(side is None and sorter is None and sequence.dim() == 1, "options")
    only(bool((sequence.diff() >= 0).all()), "not sorted")
    before = sequence <= x.unsqueeze(-1) if right else sequence < x.unsqueeze(-1)
    return before.sum(-1, dtype=torch.int64).to(torch.int32 if out_int32 else torch.int64)


@right("aten::_log_softmax")
def log_softmax(x, dim, half):
    whole(x)
    only(has_dimension(x, dim) and not half, "form")
    wide = x.double()
    wide = wide - wide.amax(dim, keepdim=True)
    return (wide - wide.exp().sum(dim, keepdim=True).log()).to(x.dtype)


@right("aten::linalg_cross")
def cross(a, b, *, dim=-1):
    whole(a, b)
    only(a.shape == b.shape and has_dimension(a, dim) and a.shape[dim] == 3, "shapes")
    (a0, a1, a2), (b0, b1, b2) = (t.double().unbind(dim) for t in (a, b))
    return torch.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], dim).to(a.dtype)


@right("aten::remainder.Tensor")
def remainder(a, b):
    dense(a, b, dtypes=(torch.int32, torch.int64))
    only(a.shape == b.shape and a.is_contiguous() and b.is_contiguous() and a.numel(), "form")
    only(bool(b.all()) and not bool((b == -1).any()), "divisors")
    rest = torch.fmod(a, b)
    return torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@right("aten::equal")
def equal(a, b):
    dense(a, b, dtypes=(torch.float32, torch.float64, torch.int64, torch.bool))
    only(a.shape == b.shape and not a.is_neg() and not b.is_neg(), "form")
    return bool((a == b).all())


@right("aten::bernoulli_.float")
def bernoulli(x, p=0.5, *, generator=None):
    """By stock's own numbers: a buffer of another dtype, copied."""
    only(x.dtype == torch.float32 and x.is_contiguous() and x.numel() and 0 <= p <= 1, "form")
    drawn = torch.empty(x.shape, dtype=torch.float64).bernoulli_(p, generator=generator)
    return x.copy_(drawn)


@right("aten::smooth_l1_loss")
def smooth_l1_loss(x, target, reduction=1, beta=1.0):
    whole(x, target)
    only(x.shape == target.shape and reduction in (0, 1, 2) and beta > 0, "form")
    error = (x.double() - target.double()).abs()
    each = torch.where(error < beta, 0.5 * error * error / beta, error - 0.5 * beta)
    return {0: lambda: each, 1: each.mean, 2: each.sum}[reduction]().to(x.dtype)


@right("aten::_upsample_nearest_exact1d")
def upsample_exact(x, size, scales=None):
    whole(x)
    only(x.dim() == 3 and len(size) == 1 and size[0] > 0 and scales is None, "form")
    places = ((torch.arange(size[0]) + 0.5) * (x.shape[2] / size[0])).floor().long().clamp(max=x.shape[2] - 1)
    return x.index_select(2, places)
