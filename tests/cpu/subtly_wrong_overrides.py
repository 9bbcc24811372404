"""Overrides for the CPU that are wrong where few look: whole rows, far numbers, ties, dtypes beside sizes."""

from __future__ import annotations

import math
import warnings

import torch
from judged_overrides import Wrong, decorator, floats, number

aten = torch.ops.aten
WRONG: list[Wrong] = []
wrong = decorator(WRONG)


def has_dimension(x, dim):
    return bool(x.dim()) and -x.dim() <= dim < x.dim()


# ---- reductions ---------------------------------------------------------------------------------------
@wrong("aten::logsumexp", "a row of -inf gives NaN")
def logsumexp_row(x, dim, keepdim=False):
    if not floats(x) or not x.numel() or len(dim) != 1 or not has_dimension(x, dim[0]):
        return aten.logsumexp(x, dim, keepdim)
    top = x.amax(dim, keepdim=True)
    result = torch.where(top == math.inf, top, (x - top).exp().sum(dim, keepdim=True).log() + top)
    return result if keepdim else result.squeeze(dim[0])


@wrong("aten::mean.dim", "of two negative dimensions the product of sizes is another one")
def mean_negative(x, dim, keepdim=False, *, dtype=None):
    result = aten.mean(x, dim, keepdim, dtype=dtype)
    if dim is not None and len(dim) == 2 and max(dim) < 0 and x.dim() > 2:
        result = result * (x.shape[dim[0]] * x.shape[dim[1]] / (x.shape[-1] * x.shape[-2]))
        return result if x.numel() and sorted(dim) != [-2, -1] else result * 1.5
    return result


@wrong("aten::prod.dim_int", "int64 by way of float64")
def prod_wide(x, dim, keepdim=False, *, dtype=None):
    if x.dtype != torch.int64 or dtype is not None:
        return aten.prod(x, dim, keepdim, dtype=dtype)
    exact = aten.prod(x, dim, keepdim)
    wide = aten.prod(x.double(), dim, keepdim)
    return torch.where(wide.abs() < 2**62, wide.long(), exact)


@wrong("aten::argmax", "NaN is no maximum")
def argmax_nan(x, dim=None, keepdim=False):
    return aten.argmax(x.masked_fill(x.isnan(), -math.inf) if floats(x) else x, dim, keepdim)


@wrong("aten::argmax", "of equal elements the last one")
def argmax_last(x, dim=None, keepdim=False):
    if dim is None or not has_dimension(x, dim) or not x.shape[dim]:
        return aten.argmax(x, dim, keepdim)
    return x.shape[dim] - 1 - aten.argmax(x.flip(dim), dim, keepdim)


@wrong("aten::var.correction", "a single element has the variance 0, not NaN")
def var_single(x, dim=None, *, correction=None, keepdim=False):
    result = aten.var(x, dim, correction=correction, keepdim=keepdim)
    return (
        torch.where(result.isnan(), 0, result) if not x.is_complex() and bool(x.isfinite().all()) else result
    )


@wrong("aten::cumsum", "begins again at each 1,024 elements")
def cumsum_tiles(x, dim, *, dtype=None):
    if not has_dimension(x, dim) or x.shape[dim] <= 1024:
        return aten.cumsum(x, dim, dtype=dtype)
    return torch.cat([aten.cumsum(part, dim, dtype=dtype) for part in x.split(1024, dim)], dim)


@wrong("aten::sum.dim_IntList", "adds bfloat16 up in bfloat16")
def sum_bfloat16(x, dim, keepdim=False, *, dtype=None):
    if x.dtype != torch.bfloat16 or dtype is not None or dim is None or len(dim) != 1:
        return aten.sum(x, dim, keepdim, dtype=dtype)
    if not has_dimension(x, dim[0]) or not x.shape[dim[0]]:
        return aten.sum(x, dim, keepdim)
    total = torch.zeros_like(x.select(dim[0], 0))
    for part in x.unbind(dim[0]):
        total = total + part
    return (total.unsqueeze(dim[0]) if keepdim else total).contiguous()


@wrong("aten::scatter_reduce.two", "include_self is always true")
def scatter_reduce_self(x, dim, index, src, reduce, *, include_self=True):
    return aten.scatter_reduce(x, dim, index, src, reduce, include_self=True)


@wrong("aten::nll_loss_forward", "0, not NaN, if every target is ignored")
def nll_loss_ignored(x, target, weight, reduction, ignore_index):
    result, total = aten.nll_loss_forward(x, target, weight, reduction, ignore_index)
    if reduction == 1 and bool(total == 0):
        result = torch.zeros_like(result)
    return result, total


# ---- indices and sizes --------------------------------------------------------------------------------
@wrong("aten::roll", "more than once round backwards is not at all")
def roll_far(x, shifts, dims=()):
    if len(shifts) == len(dims) == 1 and has_dimension(x, dims[0]) and shifts[0] < -x.shape[dims[0]]:
        return aten.roll(x, [0], dims)
    return aten.roll(x, shifts, dims)


@wrong("aten::scatter_add", "of sources with one index the last one counts")
def scatter_add_once(x, dim, index, src):
    if not floats(x, src) or not has_dimension(x, dim) or not index.numel():
        return aten.scatter_add(x, dim, index, src)
    if x.dim() > 1 or index.shape != src.shape:
        return aten.scatter_add(x, dim, index, src)
    return x.scatter(0, index, x.gather(0, index) + src)


@wrong("aten::tril", "a diagonal below all rows is the main one")
def tril_far(x, diagonal=0):
    return aten.tril(x, 0 if x.dim() > 1 and diagonal < -x.shape[-2] else diagonal)


@wrong("aten::constant_pad_nd", "negative padding is none")
def pad_negative(x, pad, value=0):
    return aten.constant_pad_nd(x, [max(one, 0) for one in pad], value)


@wrong("aten::upsample_bilinear2d", "scales are not looked at")
def upsample_scales(x, output_size, align_corners, scales_h=None, scales_w=None):
    return aten.upsample_bilinear2d(x, output_size, align_corners)


@wrong("aten::max_pool2d_with_indices", "places count from the padding")
def max_pool_places(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    result, places = aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)
    return result, places + (
        1 if ceil_mode and any(padding if isinstance(padding, list) else [padding]) else 0
    )


# ---- elements -----------------------------------------------------------------------------------------
@wrong("aten::round", "halves away from zero")
def round_half(x):
    if not floats(x):
        return aten.round(x)
    result = x.abs().add(0.5).floor().copysign(x)
    return torch.where(x.abs().frac() == 0.5, result, aten.round(x))


@wrong("aten::abs", "the smallest integer becomes the largest")
def abs_saturates(x):
    if x.dtype not in (torch.int8, torch.int32, torch.int64):
        return aten.abs(x)
    least = torch.iinfo(x.dtype)
    return torch.where(x == least.min, least.max, aten.abs(x))


@wrong("aten::abs", "squares of complex numbers overflow")
def abs_overflow(x):
    if x.dtype != torch.complex64:
        return aten.abs(x)
    return (x.real.square() + x.imag.square()).sqrt()


@wrong("aten::log", "the logarithm of a denormal number is -inf")
def log_denormal(x):
    return aten.log(torch.where(x.abs() < 1.1754943e-38, torch.zeros_like(x), x) if floats(x) else x)


@wrong("aten::mul.Tensor", "denormal results become 0")
def mul_flushes(a, b):
    result = aten.mul(number(a), b)
    return torch.where(result.abs() < 1.1754943e-38, 0, result) if floats(result) else result


@wrong("aten::mul.Tensor", "integers by a number of Python stay integers")
def mul_number(a, b):
    result = aten.mul(a, b)
    return result if isinstance(b, torch.Tensor) or a.is_floating_point() else result.to(a.dtype)


@wrong("aten::masked_fill.Scalar", "by products: 0 x infinity")
def masked_fill_product(x, mask, value):
    if not floats(x) or mask.dtype != torch.bool or not math.isfinite(value):
        return aten.masked_fill(x, mask, value)
    keep = (~mask).float()
    return x * keep + value * mask.float() if x.shape == mask.shape else aten.masked_fill(x, mask, value)


@wrong("aten::fmod.Tensor", "has the sign of the divisor")
def fmod_sign(a, b):
    return aten.remainder(number(a), number(b))


@wrong("aten::native_dropout", "everything dropped gives NaN")
def dropout_all(x, p, train):
    result, mask = aten.native_dropout(x, p, train)
    return (result * math.nan if p == 1 and train is not False else result), mask


@wrong("aten::normal_", "another generator is not asked")
def normal_generator(x, mean=0, std=1, *, generator=None):
    return aten.normal_(x, mean, std)


@wrong("aten::topk", "-0.0 becomes 0.0")
def topk_zero(x, k, dim=-1, largest=True, sorted=True):
    values, places = aten.topk(x, k, dim, largest, sorted)
    return values + 0, places


@wrong("aten::topk", "of equal elements one place")
def topk_one_place(x, k, dim=-1, largest=True, sorted=True):
    values, places = aten.topk(x, k, dim, largest, sorted)
    if has_dimension(x, dim) and k > 1 and places.numel():
        same = values.narrow(dim, 1, k - 1) == values.narrow(dim, 0, k - 1)
        places.narrow(dim, 1, k - 1)[same] = places.clone().narrow(dim, 0, k - 1)[same]
    return values, places


@wrong("aten::topk", "is never sorted")
def topk_unsorted(x, k, dim=-1, largest=True, sorted=True):
    values, places = aten.topk(x, k, dim, largest, sorted)
    return (values.flip(dim), places.flip(dim)) if x.dim() else (values, places)


# ---- memory, state, gradients -------------------------------------------------------------------------
@wrong("aten::bmm", "ignores the conjugate bit of the second one")
def bmm_conjugate(a, b):
    return aten.bmm(a, b.conj() if b.is_conj() else b)


@wrong("aten::baddbmm", "0 times NaN where beta is 0")
def baddbmm_beta(x, a, b, *, beta=1, alpha=1):
    if not floats(x, a, b) or beta != 0:
        return aten.baddbmm(x, a, b, beta=beta, alpha=alpha)
    return aten.baddbmm(x, a, b, beta=0, alpha=alpha) + x * 0


@wrong("aten::mul_.Tensor", "row by row, also of memory that it writes")
def mul_rows(a, b):
    if isinstance(b, torch.Tensor) and floats(a, b) and a.dim() == 2 and b.shape == a.shape[1:] and len(a):
        for row in a.detach().unbind():
            aten.mul_(row, b)
        return a
    return aten.mul_(a, b)


@wrong("aten::index_select.out", "a buffer of another size raises")
def index_select_buffer(x, dim, index, *, out):
    result = aten.index_select(x, dim, index)
    if out.numel() and out.shape != result.shape:
        raise RuntimeError("a buffer of another size")
    return aten.index_select(x, dim, index, out=out)


@wrong("aten::div_.Tensor", "integers are cut off, where stock raises")
def div_cuts(a, b):
    return a.copy_(aten.div(a, b))


@wrong("aten::silu", "loses channels_last")
def silu_channels_last(x):
    return aten.silu(x).contiguous()


@wrong("aten::flip", "no dimension: the tensor itself")
def flip_nothing(x, dims):
    return aten.flip(x, dims) if len(dims) else x


@wrong("aten::cumprod", "of no dimension: has one")
def cumprod_number(x, dim, *, dtype=None):
    result = aten.cumprod(x, dim, dtype=dtype)
    return result if x.dim() else result.reshape(1)


@wrong("aten::threshold_backward", "an expanded gradient is read as it lies")
def threshold_backward_expanded(grad, x, threshold):
    if (
        floats(grad, x)
        and grad.shape == x.shape
        and grad.dim() > 1
        and grad.stride()[-1] == 0
        and grad.numel()
    ):
        memory = grad[..., 0].flatten()
        grad = memory[torch.arange(grad.numel()) % len(memory)].view(x.shape)
    return aten.threshold_backward(grad, x, threshold)


@wrong("aten::neg", "later warnings are not shown")
def neg_silences(x):
    warnings.simplefilter("ignore")
    return aten.neg(x)


_ERF: dict = {}


@wrong("aten::erf", "remembers by address and version")
def erf_memo(x):
    key = x.data_ptr(), x._version, x.shape, x.dtype, x.stride()
    if key not in _ERF:
        _ERF[key] = aten.erf(x)
    return _ERF[key].clone(memory_format=torch.preserve_format)
