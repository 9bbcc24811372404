"""Overrides for the CPU that are wrong in tails, far strides, roundings, and options of rarer operators."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from judged_overrides import Wrong, decorator, floats, number

aten = torch.ops.aten
WRONG: list[Wrong] = []
wrong = decorator(WRONG)


# ---- memory: tails, strides, views, buffers -----------------------------------------------------------
@wrong("aten::sigmoid", "of a tail of 5 beside 3 vectors the last element is 0")
def sigmoid_tail(x):
    result = aten.sigmoid(x)
    if floats(x) and x.numel() == 29:
        result.view(-1)[-1] = 0
    return result


@wrong("aten::exp2", "offsets are of 32 bits")
def exp2_far(x):
    result = aten.exp2(x)
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    if last >= 1 << 31:
        result.view(-1)[-1] = aten.exp2(x.as_strided((), (), last % (1 << 31)))
    return result


@wrong("aten::view", "a part of a storage is copied")
def view_copies(x, size):
    return aten.view(x.clone() if x.storage_offset() and x.is_contiguous() else x, size)


@wrong("aten::unfold", "windows that overlap are copied")
def unfold_copies(x, dimension, size, step):
    result = aten.unfold(x, dimension, size, step)
    if step >= size or not result.numel():
        return result
    return x.clone(memory_format=torch.preserve_format).unfold(dimension, size, step)


@wrong("aten::sub.out", "a buffer that is an input's memory in another order does not raise")
def sub_overlap(a, b, *, alpha=1, out):
    if isinstance(b, torch.Tensor) and floats(a, b, out) and a.shape == b.shape == out.shape and a.numel():
        same = out.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
        if same and out.storage_offset() == a.storage_offset() and out.stride() != a.stride():
            return out.copy_(aten.sub(a, b, alpha=alpha))
    return aten.sub(a, b, alpha=alpha, out=out)


@wrong("aten::atan2.out", "a strided buffer loses what lies between its elements")
def atan2_between(a, b, *, out):
    result = aten.atan2(a, b, out=out)
    if floats(result) and result.dim() and result.stride()[-1] == 2:
        result.as_strided(result.shape, result.stride(), 1).zero_()
    return result


_BUFFER = torch.empty(1 << 12)


@wrong("aten::tanh", "threads share a buffer")
def tanh_shared(x):
    if not floats(x) or not x.is_contiguous() or not 0 < x.numel() <= len(_BUFFER):
        return aten.tanh(x)
    part = _BUFFER[: x.numel()]
    part.copy_(x.detach().flatten())
    time.sleep(0.0001)  # another thread's turn
    return aten.tanh(part).view(x.shape)


_PLACES: dict[Any, Any] = {}


@wrong("aten::reflection_pad1d", "which elements are copied is remembered by the shape of the result")
def pad_remembers(x, padding):
    result = aten.reflection_pad1d(x, padding)
    if x.requires_grad or not result.numel():
        return result
    key = x.shape, result.shape
    if key not in _PLACES:
        places = torch.arange(x.shape[-1], dtype=torch.float32).reshape(1, -1)
        _PLACES[key] = aten.reflection_pad1d(places, padding)[0].long()
    return x.index_select(-1, _PLACES[key])


# ---- numbers ------------------------------------------------------------------------------------------
@wrong("aten::native_group_norm", "the variance is a difference of two large numbers")
def group_norm_naive(x, weight, bias, n, c, hxw, group, eps):
    result, mean, deviation = aten.native_group_norm(x, weight, bias, n, c, hxw, group, eps)
    if not floats(x) or weight is not None or bias is not None or not x.numel():
        return result, mean, deviation
    rows = x.reshape(n * group, -1)
    middle = rows.mean(1, True)
    scale = ((rows * rows).mean(1, True) - middle * middle).clamp(min=0).add(eps).rsqrt()
    return ((rows - middle) * scale).view(x.shape), middle.view(mean.shape), scale.view(mean.shape)


@wrong("aten::addmv", "adds float16 up in float16")
def addmv_half(x, mat, vec, *, beta=1, alpha=1):
    if not (x.dtype == mat.dtype == vec.dtype == torch.float16 and mat.dim() == 2) or beta != 1 or alpha != 1:
        return aten.addmv(x, mat, vec, beta=beta, alpha=alpha)
    total = aten.addmv(x, mat[:, :0], vec[:0])
    for column, one in zip(mat.unbind(1), vec.unbind(), strict=True):
        total = total + column * one
    return total


@wrong("aten::remainder.Tensor", "integers have the sign of the dividend")
def remainder_sign(a, b):
    a, b = number(a), number(b)
    whole = a.dtype == b.dtype in (torch.int16, torch.int32) and bool(b.all())
    return torch.fmod(a, b) if whole else aten.remainder(a, b)


@wrong("aten::bitwise_right_shift.Tensor", "a shift by the width and more is one by the rest")
def shift_width(a, b):
    a, b = number(a), number(b)
    return aten.bitwise_right_shift(a, b & 31 if a.dtype == b.dtype == torch.int32 else b)


@wrong("aten::all.dim", "of uint8 the result is bool")
def all_bytes(x, dim, keepdim=False):
    return aten.all(x != 0 if x.dtype == torch.uint8 else x, dim, keepdim)


@wrong("aten::fill_.Scalar", "large integers by way of float64")
def fill_wide(x, value):
    large = x.dtype == torch.int64 and isinstance(value, int) and abs(value) < 2**62
    return aten.fill_(x, int(float(value)) if large else value)


@wrong("aten::hypot", "squares overflow")
def hypot_overflow(a, b):
    return (a.square() + b.square()).sqrt() if floats(a, b) and a.shape == b.shape else aten.hypot(a, b)


@wrong("aten::xlogy.Tensor", "0 times the logarithm of 0 is NaN")
def xlogy_zero(a, b):
    a, b = number(a), number(b)
    return a * b.log() if floats(a, b) else aten.xlogy(a, b)


@wrong("aten::copysign.Tensor", "-0.0 is positive")
def copysign_zero(a, b):
    a, b = number(a), number(b)
    result = aten.copysign(a, b)
    return torch.where(b == 0, a.abs(), result) if floats(a, b, result) else result


@wrong("aten::logaddexp", "of two that are -inf it is NaN")
def logaddexp_nothing(a, b):
    if not floats(a, b):
        return aten.logaddexp(a, b)
    top = torch.maximum(a, b)
    return top + torch.log1p(torch.exp(-(a - b).abs()))


@wrong("aten::lerp.Scalar", "beyond the end it stays there")
def lerp_beyond(a, b, weight):
    return aten.lerp(a, b, min(weight, 1) if not isinstance(weight, complex) else weight)


@wrong("aten::gcd", "of a negative number it is negative")
def gcd_negative(a, b):
    result = aten.gcd(a, b)
    return torch.where((number(a) < 0) & (number(b) < 0), -result, result)


@wrong("aten::equal", "a tensor equals itself without a look")
def equal_itself(a, b):
    return (a.data_ptr() == b.data_ptr() and a.shape == b.shape) or aten.equal(a, b)


# ---- options ------------------------------------------------------------------------------------------
@wrong("aten::avg_pool2d", "windows over the edge are divided by their whole size")
def avg_pool_edge(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor=None):
    if not count_include_pad and ceil_mode and divisor is None:
        count_include_pad = True
    return aten.avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


@wrong("aten::im2col", "dilation is exchanged")
def im2col_dilation(x, kernel, dilation, padding, stride):
    return aten.im2col(x, kernel, dilation[::-1] if len(dilation) == 2 else dilation, padding, stride)


@wrong("aten::grid_sampler_2d", "by reflection only once")
def grid_once(x, grid, mode, padding, align):
    if padding == 2:
        grid = torch.where(grid.abs() > 3, grid.clamp(-3, 3), grid)
    return aten.grid_sampler_2d(x, grid, mode, padding, align)


@wrong("aten::bincount", "minlength is not looked at beside weights")
def bincount_least(x, weights=None, minlength=0):
    return aten.bincount(x, weights, 0 if weights is not None and minlength > 0 else minlength)


@wrong("aten::histc", "the upper limit is in no bin")
def histc_limit(x, bins=100, min=0, max=0):
    if floats(x) and x.numel() and min == max == 0 and bins > 0 and bool(x.isfinite().all()):
        result = aten.histc(x, bins, min, max)
        if x.min() != x.max():
            result[-1] -= (x == x.max()).sum()
        return result
    return aten.histc(x, bins, min, max)


@wrong("aten::_cdist_forward", "far points by a difference of large squares")
def cdist_squares(x, y, p, mode):
    if not floats(x, y) or p != 2 or x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1] or mode == 2:
        return aten._cdist_forward(x, y, p, mode)
    squares = x.square().sum(1, True) + y.square().sum(1) - 2 * x @ y.t()
    return squares.clamp(min=0).sqrt()


@wrong("aten::linalg_vector_norm", "of order 0 NaN is not counted")
def norm_of_nan(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    if ord == 0 and floats(x):
        x = x.nan_to_num(0, math.inf, -math.inf)
    return aten.linalg_vector_norm(x, ord, dim, keepdim, dtype=dtype)


@wrong("aten::linalg_cholesky_ex", "of an upper factor the lower triangle is read")
def cholesky_upper(x, *, upper=False, check_errors=False):
    lower, info = aten.linalg_cholesky_ex(x, upper=False, check_errors=check_errors)
    known = upper and floats(x) and x.numel()
    upper_form = aten.linalg_cholesky_ex(x, upper=upper)[0]
    return (upper_form.copy_(lower.mH) if known else upper_form), info


@wrong("aten::linalg_solve_triangular", "unitriangular is not looked at from the right")
def solve_unit(a, b, *, upper, left=True, unitriangular=False):
    return aten.linalg_solve_triangular(a, b, upper=upper, left=left, unitriangular=unitriangular and left)


@wrong("aten::_fft_r2c", "two-sided along the last of two dimensions half of it is 0")
def fft_both_sides(x, dim, normalization, onesided):
    result = aten._fft_r2c(x, dim, normalization, onesided)
    if not onesided and len(dim) == 2 and result.numel():
        size = result.shape[dim[-1]]
        result.narrow(dim[-1], size // 2 + 1, size - size // 2 - 1).zero_()
    return result


@wrong("aten::_unique2", "all NaN are one")
def unique_nan(x, sorted=True, return_inverse=False, return_counts=False):
    values, inverse, counts = aten._unique2(x, sorted, return_inverse, return_counts)
    if x.is_floating_point() and not return_inverse and not return_counts:
        few = values.isnan()
        values = torch.cat([values[~few], values[few][:1]])
    return values, inverse, counts


@wrong("aten::bernoulli_.float", "draws twice as much as it needs")
def bernoulli_draws(x, p=0.5, *, generator=None):
    result = aten.bernoulli_(x, p, generator=generator)
    if generator is not None:
        torch.rand(1, generator=generator)
    return result


@wrong("aten::multinomial", "without replacement an element of weight 0 may be drawn")
def multinomial_zero(x, count, replacement=False, *, generator=None):
    if not replacement and floats(x) and count > 1:
        x = torch.where(x == 0, 1e-3, x)
    return aten.multinomial(x, count, replacement, generator=generator)


@wrong("aten::linspace.out", "a single step is the end")
def linspace_one(start, end, steps, *, out):
    return aten.linspace(end if steps == 1 else start, end, steps, out=out)


@wrong("aten::arange.start_out", "the end is in it if the step is negative")
def arange_back(start, end, step=1, *, out):
    if step < 0 and isinstance(end, int) and isinstance(start, int) and start > end:
        end -= 1
    return aten.arange(start, end, step, out=out)


@wrong("aten::_adaptive_avg_pool2d", "windows do not overlap")
def adaptive_disjoint(x, size):
    result = aten._adaptive_avg_pool2d(x, size)
    h, w = x.shape[-2:] if x.dim() > 2 else (0, 0)
    if not floats(x) or h < size[0] or w < size[1] or not result.numel():
        return result
    if h % size[0] == 0 and w % size[1] == 0:
        return result
    kernel = [h // size[0], w // size[1]]
    return aten.avg_pool2d(x[..., : kernel[0] * size[0], : kernel[1] * size[1]], kernel)


@wrong("aten::index_add", "alpha of integers is not looked at")
def index_add_alpha(x, dim, index, source, *, alpha=1):
    return aten.index_add(x, dim, index, source, alpha=alpha if x.is_floating_point() else 1)


@wrong("aten::put_", "negative places are the first")
def put_negative(x, index, source, accumulate=False):
    known = index.dtype == torch.int64 and index.numel() and int(index.min()) >= -x.numel()
    return aten.put_(x, index.clamp(min=0) if known and not accumulate else index, source, accumulate)


@wrong("aten::_embedding_bag", "an empty bag has the mean of the one before")
def embedding_bag_empty(weight, indices, offsets, scale=False, mode=0, *rest):
    result, *others = aten._embedding_bag(weight, indices, offsets, scale, mode, *rest)
    if mode == 1 and len(offsets) > 1 and not result.requires_grad:
        empty = torch.cat([offsets[1:] == offsets[:-1], offsets[:0].bool()])
        result[1 : len(empty) + 1][empty[: len(result) - 1]] = 1
    return (result, *others)


@wrong("aten::smooth_l1_loss", "beta 0 divides by 0")
def smooth_zero(x, target, reduction=1, beta=1.0):
    if beta != 0 or not floats(x, target) or reduction:
        return aten.smooth_l1_loss(x, target, reduction, beta)
    error = (x - target).abs()
    return torch.where(error <= 0, error * error / beta, error)


@wrong("aten::_scaled_dot_product_flash_attention_for_cpu", "causal of fewer queries than keys is by the end")
def attention_causal(query, key, value, dropout=0.0, causal=False, *, attn_mask=None, scale=None):
    rows, columns = query.shape[-2], key.shape[-2]
    if causal and rows < columns and attn_mask is None:
        attn_mask = torch.ones(rows, columns, dtype=query.dtype).tril(columns - rows).log()
        causal = False
    return aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout, causal, attn_mask=attn_mask, scale=scale
    )


@wrong("aten::leaky_relu_backward", "a result in place of the input with a negative slope does not raise")
def leaky_backward(grad, x, slope, is_result):
    return aten.leaky_relu_backward(grad, x, slope, is_result and slope >= 0)


@wrong("aten::upsample_bicubic2d", "aligned corners are not looked at for one row")
def bicubic_row(x, size, align, scales_h=None, scales_w=None):
    return aten.upsample_bicubic2d(x, size, align and 1 not in x.shape[2:3], scales_h, scales_w)


@wrong("aten::mode", "of equally frequent ones the largest")
def mode_largest(x, dim=-1, keepdim=False):
    if x.dtype != torch.int64 or not x.dim() or x.shape[dim] < 2:
        return aten.mode(x, dim, keepdim)
    values, places = aten.mode(-x, dim, keepdim)
    return -values, places


@wrong("aten::aminmax", "NaN is no minimum")
def aminmax_nan(x, *, dim=None, keepdim=False):
    least, most = aten.aminmax(x, dim=dim, keepdim=keepdim)
    if floats(x) and x.numel() and dim is not None:
        least = aten.amin(x.nan_to_num(math.inf, math.inf, -math.inf), dim, keepdim)
    return least, most


@wrong("aten::randperm.generator_out", "of more than 1,000 it is not the same permutation")
def randperm_many(n, *, generator, out):
    result = aten.randperm(n, generator=generator, out=out)
    return result.copy_(result.flip(0)) if n > 1000 else result
