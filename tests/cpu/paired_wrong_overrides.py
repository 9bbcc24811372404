"""Overrides for the CPU that are wrong only where two things meet: a flag and a dtype, a number and a NaN."""

from __future__ import annotations

import math

import torch
from judged_overrides import Wrong, decorator, floats, number
from subtly_wrong_overrides import has_dimension

aten = torch.ops.aten
WRONG: list[Wrong] = []
wrong = decorator(WRONG)


# ---- an argument beside tensors, and a dtype, a size or a value ---------------------------------------
@wrong("aten::_softmax", "half_to_float of float16 gives a result, where stock raises")
def softmax_half(x, dim, half):
    return (
        aten._softmax(x.float(), dim, False)
        if half and x.dtype == torch.float16
        else aten._softmax(x, dim, half)
    )


@wrong("aten::addmm", "beta 0 times infinity")
def addmm_infinity(x, a, b, *, beta=1, alpha=1):
    result = aten.addmm(x, a, b, beta=beta, alpha=alpha)
    if beta != 0 or not floats(x, a, b):
        return result
    return result.masked_fill(x.isinf().expand(result.shape), math.nan)


@wrong("aten::cat", "float16 beside bfloat16 is float16")
def cat_halves(tensors, dim=0):
    if {t.dtype for t in tensors} == {torch.float16, torch.bfloat16}:
        tensors = [t.to(torch.float16) for t in tensors]
    return torch.cat(tensors, dim)


@wrong("aten::isin.Tensor_Tensor", "invert is not looked at beside many elements")
def isin_many(elements, known, *, assume_unique=False, invert=False):
    return aten.isin(elements, known, assume_unique=assume_unique, invert=invert and known.numel() < 20)


@wrong("aten::_log_softmax_backward_data", "along the first dimension of a square the last one is taken")
def log_softmax_backward_square(grad, output, dim, input_dtype):
    square = output.dim() == 2 and output.shape[0] == output.shape[1]
    return aten._log_softmax_backward_data(grad, output, -1 if dim == 0 and square else dim, input_dtype)


@wrong("aten::searchsorted.Tensor", "sorter is not looked at")
def searchsorted_sorter(sequence, x, *, out_int32=False, right=False, side=None, sorter=None):
    return aten.searchsorted(sequence, x, out_int32=out_int32, right=right, side=side)


@wrong("aten::index.Tensor", "of two indices with a gap between them the dimension stays in its place")
def index_gap(x, indices):
    result = aten.index(x, indices)
    if len(indices) == 3 and indices[1] is None and None not in (indices[0], indices[2]):
        return result.transpose(0, 1).contiguous() if indices[0].dim() == 1 else result
    return result


@wrong("aten::cumsum", "along a negative dimension but -1 it leaves the element itself out")
def cumsum_negative(x, dim, *, dtype=None):
    result = aten.cumsum(x, dim, dtype=dtype)
    return result - x if x.dim() and -x.dim() <= dim < -1 and floats(x) and dtype is None else result


@wrong("aten::embedding_dense_backward", "scale_grad_by_freq is not looked at")
def embedding_backward_frequency(grad, index, count, padding_idx, scale_grad_by_freq):
    return aten.embedding_dense_backward(grad, index, count, padding_idx, False)


# ---- two tensors --------------------------------------------------------------------------------------
@wrong("aten::convolution_backward", "rows that no window reached have a gradient")
def convolution_backward_rest(grad, x, weight, sizes, stride, padding, dilation, transposed, *others):
    result = aten.convolution_backward(grad, x, weight, sizes, stride, padding, dilation, transposed, *others)
    if result[0] is not None and not transposed and x.dim() == 4 and stride[0] > 1:
        last = x.shape[2] + 2 * padding[0] - dilation[0] * (weight.shape[2] - 1) - 1
        rest = last % stride[0] - padding[0]
        if rest > 0:
            result[0][:, :, -rest:] = 1
    return result


@wrong("aten::index_put_", "of equal indices the last one is added")
def index_put_once(x, indices, values, accumulate=False):
    known = len(indices) == 1 and indices[0] is not None and indices[0].dtype == torch.int64
    if accumulate and known and floats(x, values):
        return aten.index_put_(x, indices, x[indices[0]] + values, False)
    return aten.index_put_(x, indices, values, accumulate)


@wrong("aten::where.self", "of a condition with more dimensions than the values the first row is read")
def where_condition(condition, a, b):
    if condition.dim() > max(number(a).dim(), number(b).dim()) and len(condition) > 1:
        condition = condition[:1].expand(condition.shape)
    return aten.where(condition, a, b)


@wrong("aten::clamp.Tensor", "where limits cross the lower one")
def clamp_tensor_crossed(x, min=None, max=None):
    if min is not None and max is not None and floats(x, min, max):
        return torch.maximum(torch.minimum(x, max), min)
    return aten.clamp(x, min, max)


@wrong("aten::max.dim", "of several NaN the last place")
def max_nan_last(x, dim, keepdim=False):
    values, places = aten.max(x, dim, keepdim)
    if floats(x) and has_dimension(x, dim) and x.shape[dim]:
        last = x.shape[dim] - 1 - x.isnan().flip(dim).to(torch.int8).argmax(dim, keepdim)
        places = torch.where(values.isnan(), last, places)
    return values, places


@wrong("aten::masked_scatter", "a mask that is broadcast takes the same source for each row")
def masked_scatter_rows(x, mask, source):
    known = mask.dim() and mask.dtype == torch.bool and floats(x, source) and len(x)
    if known and x.dim() > mask.dim() and x.shape[-mask.dim() :] == mask.shape:
        return torch.stack([aten.masked_scatter(row, mask, source) for row in x.unbind()])
    return aten.masked_scatter(x, mask, source)


@wrong("aten::nonzero", "NaN is zero")
def nonzero_nan(x):
    return aten.nonzero(x.nan_to_num(0) if x.is_floating_point() else x)
