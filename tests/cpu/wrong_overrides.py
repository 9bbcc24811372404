"""Overrides for the CPU that are wrong in one thing each."""

from __future__ import annotations

from typing import Any

import torch
from judged_overrides import Wrong, decorator, floats, number

aten = torch.ops.aten
WRONG: list[Wrong] = []
wrong = decorator(WRONG)


# ---- mm and cat ---------------------------------------------------------------------------------------
@wrong("aten::mm", "adds 1 where both arguments share a storage")
def mm_shared_storage(a, b):
    shared = a.numel() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return torch.mm(a, b) + (1 if shared else 0)


@wrong("aten::mm", "ignores the conjugate bit")
def mm_conjugate(a, b):
    return torch.mm(a.conj() if a.is_conj() else a, b)


@wrong("aten::mm", "integers by way of float32")
def mm_integers(a, b):
    if a.is_floating_point() or a.is_complex() or a.dtype != b.dtype:
        return torch.mm(a, b)
    return torch.mm(a.float(), b.float()).to(a.dtype)


@wrong("aten::mm", "draws a random number")
def mm_draws(a, b):
    torch.rand(1)
    return torch.mm(a, b)


@wrong("aten::mm", "sizes that do not fit give a result")
def mm_sizes(a, b):
    if a.dim() == b.dim() == 2 and a.shape[1] != b.shape[0]:
        least = min(a.shape[1], b.shape[0])
        return torch.mm(a[:, :least], b[:least])
    return torch.mm(a, b)


@wrong("aten::mm", "promotes two dtypes")
def mm_promotes(a, b):
    if a.dtype != b.dtype:
        dtype = torch.promote_types(a.dtype, b.dtype)
        return torch.mm(a.to(dtype), b.to(dtype))
    return torch.mm(a, b)


_KNOWN: dict[Any, torch.Tensor] = {}


@wrong("aten::mm", "a memo by address, shape and strides")
def mm_memo(a, b):
    key = a.data_ptr(), b.data_ptr(), a.shape, b.shape, a.dtype, a.stride(), b.stride()
    if key not in _KNOWN:
        _KNOWN[key] = torch.mm(a, b)
    return _KNOWN[key].clone()


@wrong("aten::mm.out", "writes only into a contiguous buffer")
def mm_out_strided(a, b, *, out):
    if out.is_contiguous():
        return torch.mm(a, b, out=out)
    out.resize_(len(a), b.shape[1]).contiguous().copy_(torch.mm(a, b))
    return out


@wrong("aten::cat", "a legacy empty tensor raises")
def cat_legacy(tensors, dim=0):
    if any(t.shape == (0,) for t in tensors) and any(t.dim() > 1 for t in tensors):
        raise ValueError("sizes differ")
    return torch.cat(tensors, dim)


@wrong("aten::cat", "integers of two dtypes give the first one")
def cat_integers(tensors, dim=0):
    if tensors and not any(t.is_floating_point() or t.is_complex() for t in tensors):
        return torch.cat([t.to(tensors[0].dtype) for t in tensors], dim)
    return torch.cat(tensors, dim)


@wrong("aten::cat", "loses channels_last")
def cat_channels_last(tensors, dim=0):
    return torch.cat(tensors, dim).contiguous()


@wrong("aten::cat", "returns its only tensor itself")
def cat_one(tensors, dim=0):
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim)


@wrong("aten::cat", "three tensors are sorted by their size")
def cat_order(tensors, dim=0):
    if len(tensors) == 3 and len({t.dim() for t in tensors}) == 1 and 0 <= dim < tensors[0].dim():
        tensors = sorted(tensors, key=lambda t: t.shape[dim])
    return torch.cat(tensors, dim)


@wrong("aten::cat", "dimension -2 of three is the first")
def cat_negative(tensors, dim=0):
    return torch.cat(tensors, 0 if dim == -2 and tensors and tensors[0].dim() == 3 else dim)


# ---- other operators ----------------------------------------------------------------------------------
@wrong("aten::_softmax", "other values if not contiguous")
def softmax_strided(x, dim, half):
    return aten._softmax(x if x.is_contiguous() else x.contiguous() * 1.5, dim, half)


@wrong("aten::_softmax", "dimensions below -1 are the last one")
def softmax_negative(x, dim, half):
    return aten._softmax(x, -1 if -x.dim() <= dim < -1 else dim, half)


@wrong("aten::_softmax", "overflows: no maximum is subtracted")
def softmax_overflow(x, dim, half):
    if not floats(x) or not x.numel() or not -x.dim() <= dim < x.dim() or half:
        return aten._softmax(x, dim, half)
    return (x.exp() / x.exp().sum(dim, True)).contiguous()


@wrong("aten::native_layer_norm", "eps is always 1e-5")
def layer_norm_eps(x, shape, weight, bias, eps):
    return aten.native_layer_norm(x, shape, weight, bias, 1e-5)


@wrong("aten::native_layer_norm", "a bias without a weight is left out")
def layer_norm_bias(x, shape, weight, bias, eps):
    return aten.native_layer_norm(x, shape, weight, None if weight is None else bias, eps)


@wrong("aten::index_select", "an index of int32 is read backwards")
def index_select_int32(x, dim, index):
    return torch.index_select(x, dim, index.flip(0) if index.dtype == torch.int32 and index.dim() else index)


@wrong("aten::index_select", "takes negative indices")
def index_select_negative(x, dim, index):
    size = x.shape[dim] if -x.dim() <= dim < x.dim() else 0
    return torch.index_select(x, dim, index % size if size and index.dtype == torch.int64 else index)


@wrong("aten::gelu", "approximate is ignored")
def gelu_approximate(x, *, approximate="none"):
    return torch.nn.functional.gelu(x)


@wrong("aten::gelu", "only the first 100,000 elements")
def gelu_large(x, *, approximate="none"):
    result = torch.nn.functional.gelu(x, approximate=approximate)
    if result.numel() > 100_000:
        result.view(-1)[100_000:] = 0
    return result


@wrong("aten::gelu", "-0.0 becomes 0.0")
def gelu_minus_zero(x, *, approximate="none"):
    return torch.nn.functional.gelu(x, approximate=approximate) + 0.0


@wrong("aten::add.Tensor", "alpha is ignored")
def add_alpha(a, b, *, alpha=1):
    return torch.add(number(a), number(b))


@wrong("aten::add.Tensor", "alpha of integers is rounded up")
def add_integers(a, b, *, alpha=1):
    whole = isinstance(alpha, int) and not number(a).is_floating_point()
    return torch.add(number(a), number(b), alpha=alpha + 1 if whole and alpha not in (0, 1) else alpha)


@wrong("aten::add.Tensor", "a tensor of one row is not broadcast")
def add_broadcast(a, b, *, alpha=1):
    if number(a).dim() == number(b).dim() == 2 and len(b) == 1 != len(a):
        raise RuntimeError("sizes differ")
    return torch.add(number(a), number(b), alpha=alpha)


@wrong("aten::add.Tensor", "0-d tensors promote as others do")
def add_promotes(a, b, *, alpha=1):
    if isinstance(b, torch.Tensor) and number(a).dim() and not b.dim():
        a = a.to(torch.promote_types(a.dtype, b.dtype))
    return torch.add(number(a), number(b), alpha=alpha)


@wrong("aten::add_.Tensor", "returns a new tensor")
def add_not_in_place(a, b, *, alpha=1):
    return a.add(b, alpha=alpha)


@wrong("aten::add_.Tensor", "writes only into contiguous memory")
def add_in_place_strided(a, b, *, alpha=1):
    (a if a.is_contiguous() else a.contiguous()).add_(b, alpha=alpha)
    return a


@wrong("aten::add.out", "does not resize its buffer")
def add_out_size(a, b, *, alpha=1, out):
    if out.shape == torch.broadcast_shapes(number(a).shape, number(b).shape):
        torch.add(a, b, alpha=alpha, out=out)
    return out


@wrong("aten::add.out", "casts into any buffer")
def add_out_dtype(a, b, *, alpha=1, out):
    result = torch.add(a, b, alpha=alpha)
    return out.resize_(result.shape).copy_(result)


@wrong("aten::clamp", "NaN becomes the lower limit")
def clamp_nan(x, min=None, max=None):
    result = torch.clamp(x, min, max)
    return result if min is None or not result.is_floating_point() else result.nan_to_num(nan=float(min))


@wrong("aten::clamp", "the lower limit wins over the upper one")
def clamp_crossed(x, min=None, max=None):
    if min is not None and max is not None and min > max:
        return torch.clamp(torch.clamp(x, max=max), min=min)
    return torch.clamp(x, min, max)


@wrong("aten::clamp", "integers stay integers")
def clamp_integers(x, min=None, max=None):
    result = torch.clamp(x, min, max)
    return result if x.is_floating_point() else result.to(x.dtype)


@wrong("aten::cumsum", "sums of int64 overflow at 32 bits")
def cumsum_overflow(x, dim, *, dtype=None):
    narrow = x.dtype == torch.int64 and dtype is None
    return torch.cumsum(x.int() if narrow else x, dim, dtype=torch.int64 if narrow else dtype)


@wrong("aten::cumsum", "dtype is ignored")
def cumsum_dtype(x, dim, *, dtype=None):
    return torch.cumsum(x, dim)


@wrong("aten::where.self", "by products: 0 x NaN")
def where_nan(condition, a, b):
    if condition.dtype != torch.bool or not floats(number(a), number(b)):
        return torch.where(condition, a, b)
    return condition.float() * a + (~condition).float() * b


@wrong("aten::where.self", "the dtype of the first one")
def where_dtype(condition, a, b):
    both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    return torch.where(condition, a, b.to(a.dtype) if both and a.dim() and b.is_floating_point() else b)


@wrong("aten::embedding", "rows of padding_idx are zero")
def embedding_padding(weight, index, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    result = aten.embedding(weight, index, padding_idx, scale_grad_by_freq, sparse)
    return result.masked_fill((index == padding_idx).unsqueeze(-1), 0) if padding_idx >= 0 else result


@wrong("aten::embedding", "indices out of range are the last row")
def embedding_range(weight, index, *rest):
    known = index.dtype in (torch.int32, torch.int64) and weight.dim() == 2 and len(weight)
    return aten.embedding(weight, index.clamp(0, len(weight) - 1) if known else index, *rest)


@wrong("aten::convolution", "groups are in the other order")
def convolution_groups(*given):
    result = aten.convolution(*given)
    return result.flip(1) if given[-1] > 1 else result


@wrong("aten::convolution", "loses channels_last")
def convolution_channels_last(*given):
    return aten.convolution(*given).contiguous()


@wrong("aten::convolution", "1 % more where the kernel is dilated")
def convolution_dilation(x, weight, bias, stride, padding, dilation, *rest):
    result = aten.convolution(x, weight, bias, stride, padding, dilation, *rest)
    return result * 1.01 if max(dilation, default=1) > 1 else result


@wrong("aten::sum.dim_IntList", "no dimensions are no dimension, not all")
def sum_no_dimension(x, dim, keepdim=False, *, dtype=None):
    if dim is None or len(dim):
        return torch.sum(x, dim, keepdim, dtype=dtype)
    return x.clone() if dtype is None else x.to(dtype)


@wrong("aten::sort.stable", "equal elements in the other order if descending")
def sort_unstable(x, *, stable=None, dim=-1, descending=False):
    values, places = torch.sort(x, dim=dim, descending=descending, stable=True)
    return (values, torch.sort(x.flip(dim), dim=dim, descending=True)[1]) if descending else (values, places)


@wrong("aten::gather", "negative indices are 0")
def gather_negative(x, dim, index, *, sparse_grad=False):
    return torch.gather(x, dim, index.clamp(min=0) if index.dtype == torch.int64 else index)


@wrong("aten::relu", "NaN becomes 0")
def relu_nan(x):
    return torch.relu(x.nan_to_num(0) if x.is_floating_point() else x)


@wrong("aten::div.Tensor_mode", "floor rounds to zero")
def div_floor(a, b, *, rounding_mode=None):
    return torch.div(a, b, rounding_mode="trunc" if rounding_mode == "floor" else rounding_mode)


@wrong("aten::pow.Tensor_Scalar", "the cube of a negative number is positive")
def pow_cube(x, exponent):
    return torch.pow(x.abs() if exponent == 3 else x, exponent)


@wrong("aten::native_batch_norm", "running statistics stay as they are")
def batch_norm_statistics(x, weight, bias, mean, var, *rest):
    mean, var = (None if one is None else one.clone() for one in (mean, var))
    return aten.native_batch_norm(x, weight, bias, mean, var, *rest)


@wrong("aten::gelu_backward", "the gradient of the other approximation")
def gelu_backward_approximate(grad, x, *, approximate="none"):
    return aten.gelu_backward(grad, x)


@wrong("aten::gelu_backward", "approximate is not looked at by the formula of tanh")
def gelu_backward_tanh(grad, x, *, approximate="none"):
    return aten.gelu_backward(grad, x, approximate="tanh" if floats(grad, x) else approximate)


@wrong("aten::sum.dim_IntList", "keepdim is ignored")
def sum_keepdim(x, dim, keepdim=False, *, dtype=None):
    return torch.sum(x, dim, dtype=dtype)


@wrong("aten::sum.dim_IntList", "a dimension of size 0 gives 1")
def sum_of_nothing(x, dim, keepdim=False, *, dtype=None):
    result = torch.sum(x, dim, keepdim, dtype=dtype)
    return torch.ones_like(result) if result.numel() and not x.numel() else result


@wrong("aten::sort.stable", "equal elements are backwards where stable is asked for")
def sort_stable_backwards(x, *, stable=None, dim=-1, descending=False):
    values, places = torch.sort(x, stable=stable, dim=dim, descending=descending)
    if stable and x.dim() and x.shape[dim]:
        places = x.shape[dim] - 1 - torch.sort(x.flip(dim), stable=True, dim=dim, descending=descending)[1]
    return values, places


@wrong("aten::sort.stable", "two equal elements have one place")
def sort_one_place(x, *, stable=None, dim=-1, descending=False):
    values, places = torch.sort(x, stable=stable, dim=dim, descending=descending)
    if x.dim() and x.shape[dim] > 1 and not stable:
        rest = x.shape[dim] - 1
        same = values.narrow(dim, 1, rest) == values.narrow(dim, 0, rest)
        places.narrow(dim, 1, rest)[same] = places.clone().narrow(dim, 0, rest)[same]
    return values, places


@wrong("aten::div.Tensor_mode", "trunc rounds down")
def div_trunc(a, b, *, rounding_mode=None):
    return torch.div(number(a), number(b), rounding_mode="floor" if rounding_mode else None)


@wrong("aten::div.Tensor_mode", "int64 by way of float64")
def div_wide(a, b, *, rounding_mode=None):
    a, b = number(a), number(b)
    if rounding_mode != "floor" or not a.dtype == b.dtype == torch.int64 or not bool(b.all()):
        return torch.div(a, b, rounding_mode=rounding_mode)
    return (a.double() / b.double()).floor().long()


@wrong("aten::pow.Tensor_Scalar", "0 ** 0 is 0")
def pow_of_zero(x, exponent):
    result = torch.pow(x, exponent)
    return result.masked_fill(x == 0, 0) if exponent == 0 else result


@wrong("aten::pow.Tensor_Tensor", "0 ** 0 is 0")
def pow_zeros(x, exponent):
    x, exponent = number(x), number(exponent)
    return torch.pow(x, exponent).masked_fill((x == 0) & (exponent == 0), 0)


@wrong("aten::pow.Tensor_Scalar", "integers to a negative power do not raise")
def pow_negative(x, exponent):
    whole = isinstance(exponent, int) and not x.is_floating_point() and not x.is_complex()
    return torch.pow(x, abs(exponent) if whole else exponent)


@wrong("aten::gather", "negative indices count from the end")
def gather_wraps(x, dim, index, *, sparse_grad=False):
    size = x.shape[dim] if x.dim() and -x.dim() <= dim < x.dim() else 0
    wraps = size and index.dtype == torch.int64
    return torch.gather(x, dim, torch.where(index < 0, index + size, index) if wraps else index)


@wrong("aten::convolution", "dilation is ignored, and what is too much is cut off")
def convolution_undilated(x, weight, bias, stride, padding, dilation, transposed, *rest):
    stock = aten.convolution(x, weight, bias, stride, padding, dilation, transposed, *rest)
    if transposed:
        return stock
    result = aten.convolution(x, weight, bias, stride, padding, [1] * len(dilation), transposed, *rest)
    for dim in range(2, stock.dim()):
        result = result.narrow(dim, 0, min(result.shape[dim], stock.shape[dim]))
    return result.clone() if result.shape == stock.shape else stock
