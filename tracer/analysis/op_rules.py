"""The rules that give the work of an op, one per kind of op."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from tracer.analysis.dtypes import COMPLEX, FLOAT, item_bytes, kind, multiply_add, together
from tracer.analysis.work import Inputs, Model, Tensor, Work, bytes_read, defined


def _broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Raises ValueError where they do not go together."""
    result: list[int] = []
    for shape in shapes:
        result[:0] = [1] * (len(shape) - len(result))
        for i, extent in enumerate(reversed(shape), 1):
            if extent != 1:
                if result[-i] not in (1, extent):
                    raise ValueError("shapes do not go together")
                result[-i] = extent
    return tuple(result)


def _product(first: int) -> Model:
    """mm, bmm and mv at inputs `first` and `first + 1`, after an addend where `first` is 1."""

    def model(inputs: Inputs) -> Work | None:
        a, b = inputs[first], inputs[first + 1]
        if a is None or b is None:
            return None
        k = a.shape[-1]
        if b.shape[-2 if len(b.shape) > 1 else 0] != k:
            return None
        output = a.shape[:-1] + (b.shape[-1:] if len(b.shape) > 1 else ())
        elements = prod(output)
        return Work(
            "GEMM" if len(b.shape) > 1 else "matrix x vector",
            bytes_read(inputs[: first + 2]) + elements * a.item,
            elements * k * multiply_add(a.dtype),
            a.dtype,
            output,
            matrix=True,
        )

    return model


def _linear(inputs: Inputs) -> Work | None:
    x, weight = inputs[0], inputs[1]
    if x is None or weight is None or len(weight.shape) != 2:
        return None
    output = (*x.shape[:-1], weight.shape[0])
    return Work(
        "GEMM",
        bytes_read(inputs[:3]) + prod(output) * x.item,
        prod(output) * x.shape[-1] * multiply_add(x.dtype),
        x.dtype,
        output,
        matrix=True,
    )


def _max_pool_backward(inputs: Inputs) -> Work | None:
    """(gradient, input, indices): of the input only the shape is used."""
    gradient, x, indices = inputs[0], inputs[1], inputs[2]
    if gradient is None or x is None or indices is None:
        return None
    return Work(
        "pooling", gradient.bytes + indices.bytes + x.numel * x.item, gradient.numel, x.dtype, x.shape
    )


def _average_pool_backward(inputs: Inputs) -> Work | None:
    """(gradient, input): of the input only the shape is used."""
    gradient, x = inputs[0], inputs[1]
    if gradient is None or x is None:
        return None
    return Work("pooling", gradient.bytes + x.numel * x.item, x.numel, x.dtype, x.shape)


def _rnn(inputs: Inputs) -> Work | None:
    """_cudnn_rnn(input, weights..., weight_buf, hx, cx): 2-D tensors after the input are weights."""
    tensors = defined(inputs)
    x, rest = tensors[0], tensors[1:]
    weights = [tensor for tensor in rest if len(tensor.shape) == 2]
    states = [tensor for tensor in rest if len(tensor.shape) == 3]
    if not weights or not states or len(x.shape) not in (2, 3):
        return None
    positions = prod(x.shape[:-1])
    hidden = weights[-1].shape[1]
    count = states[0].shape[0]
    directions = 2 if count % 2 == 0 and any(w.shape[1] == 2 * hidden for w in weights[2:]) else 1
    if (
        count == 2
        and directions == 1
        and len(weights) >= 4
        and weights[0].shape[1] == weights[2].shape[1] != hidden
    ):
        directions = 2
    output = (*x.shape[:-1], hidden * directions)
    unique = sum(w.bytes for w in weights) + sum(t.bytes for t in states)
    return Work(
        "RNN",
        x.bytes + unique + prod(output) * x.item,
        2 * positions * sum(prod(w.shape) for w in weights),
        x.dtype,
        output,
        matrix=True,
        note="matrix products alone; steps that wait for each other have a limit of their own",
    )


def _rnn_backward(inputs: Inputs) -> Work | None:
    """Reads what the forward call read and its output and gradients, writes a gradient of each."""
    forward, tensors = _rnn(inputs), defined(inputs)
    if forward is None:
        return None
    x, weights = tensors[0], sum(tensor.bytes for tensor in tensors[1:] if len(tensor.shape) == 2)
    states = [tensor.bytes for tensor in tensors[1:] if len(tensor.shape) == 3]
    moved = 2 * (x.bytes + weights) + sum(states) + states[0]
    return Work("RNN", moved, 2 * forward.flops, x.dtype, x.shape, matrix=True, note=forward.note)


def _attention(start: int, heads: int, products: int) -> Model:
    """q, k, v at `start`; `heads` is the dimension of the heads, `products` the matrix products."""

    def model(inputs: Inputs) -> Work | None:
        q, k, v = inputs[start], inputs[start + 1], inputs[start + 2]
        if q is None or k is None or v is None or len(q.shape) != 4:
            return None
        along = 3 - heads  # dimensions 1 and 2 are heads and positions, in either order
        pairs = q.shape[0] * q.shape[heads] * q.shape[along] * k.shape[along]
        each = 2 * pairs * (q.shape[3] + v.shape[3])
        output = (*q.shape[:3], v.shape[3])
        moved = q.bytes + k.bytes + v.bytes + prod(output) * q.item
        if start:  # backward: reads those, the output and its gradient, writes three gradients
            moved += q.bytes + k.bytes + v.bytes + prod(output) * q.item
        note = "every position attends to every one; a causal mask halves it"
        return Work("attention", moved, each * products // 2, q.dtype, output, matrix=True, note=note)

    return model


def _cat(inputs: Inputs) -> Work | None:
    tensors = defined(inputs)
    if not tensors:
        return None
    count, dtype = sum(tensor.numel for tensor in tensors), _promoted(tensors)
    moved = bytes_read(inputs) + count * item_bytes(dtype)
    return Work("cat", moved, 0, dtype, (count,), written=dtype)


def _pointwise(result: Callable[[list[Tensor]], str]) -> Model:
    """`result`: the dtype of what an op makes of these tensors."""

    def model(inputs: Inputs) -> Work | None:
        tensors = defined(inputs)
        if not tensors:
            return None
        output = _broadcast(tensor.shape for tensor in tensors)
        written = result(tensors)
        dtype = _promoted(tensors) if written == "bool" else written
        moved = bytes_read(inputs) + prod(output) * item_bytes(written)
        return Work("pointwise", moved, prod(output), dtype, output, written=written)

    return model


def _promoted(tensors: list[Tensor]) -> str:
    """The dtype that tensors have together; one without dimensions counts if it is of a higher kind."""
    large = together(tensor.dtype for tensor in tensors if tensor.shape)
    small = together(tensor.dtype for tensor in tensors if not tensor.shape)
    if not large or not small or kind(small) <= kind(large):
        return large or small
    # Most of them are Python's numbers, which are recorded as float64 and complex128.
    if small == "float64":
        return "float32"
    if small == "complex128":
        return "complex128" if large == "float64" else "complex64"
    return small


def _floating(tensors: list[Tensor]) -> str:
    """Of integers the op makes floats: sqrt, sigmoid, division."""
    dtype = _promoted(tensors)
    return dtype if kind(dtype) >= FLOAT else "float32"


def _real(tensors: list[Tensor]) -> str:
    """Of complex numbers the op makes real ones: abs, angle."""
    dtype = tensors[0].dtype
    return f"float{8 * item_bytes(dtype) // 2}" if kind(dtype) == COMPLEX else dtype


def _real_floating(tensors: list[Tensor]) -> str:
    dtype = _real(tensors)
    return dtype if kind(dtype) >= FLOAT else "float32"


def _of_first(tensors: list[Tensor]) -> str:
    """The others are masks."""
    return tensors[0].dtype


def _of_others(tensors: list[Tensor]) -> str:
    """The first one is the condition."""
    return _promoted(tensors[1:] or tensors)


def _truth(tensors: list[Tensor]) -> str:
    return "bool"


def _scan(inputs: Inputs) -> Work | None:
    """cumsum: sums of integers are int64."""
    x = inputs[0]
    if x is None:
        return None
    dtype = x.dtype if kind(x.dtype) >= FLOAT else "int64"
    moved = x.bytes + x.numel * item_bytes(dtype)
    return Work("softmax and scans", moved, x.numel, dtype, x.shape, written=dtype)


def _like(reads: int, writes: int, family: str, *, of: int = 0) -> Model:
    """Reads the first `reads` inputs, writes `writes` tensors like input `of`."""

    def model(inputs: Inputs) -> Work | None:
        pattern = inputs[of]
        if pattern is None:
            return None
        written = writes * pattern.numel * pattern.item
        return Work(family, bytes_read(inputs[:reads]) + written, pattern.numel, pattern.dtype, pattern.shape)

    return model


def _reduction(inputs: Inputs) -> Work | None:
    x = inputs[0]
    if x is None:
        return None
    return Work("reduction", x.bytes, x.numel, x.dtype, note="what it writes is not counted")


def _copy(inputs: Inputs) -> Work | None:
    """copy_(self, src): writes self."""
    target, source = inputs[0], inputs[1]
    if target is None or source is None:
        return None
    return Work("copy", source.bytes + target.numel * target.item, 0, target.dtype, target.shape)


def _fill(inputs: Inputs) -> Work | None:
    x = inputs[0]
    return None if x is None else Work("fill", x.numel * x.item, 0, x.dtype, x.shape)


def _embedding(inputs: Inputs) -> Work | None:
    weight, indices = inputs[0], inputs[1]
    if weight is None or indices is None or len(weight.shape) != 2:
        return None
    rows = indices.numel * weight.shape[1] * weight.item
    output = (*indices.shape, weight.shape[1])
    return Work("index", indices.bytes + 2 * rows, 0, weight.dtype, output, note="every row read anew")


def _embedding_backward(inputs: Inputs) -> Work | None:
    gradient = inputs[0]
    if gradient is None:
        return None
    return Work(
        "index", bytes_read(inputs[:2]), gradient.numel, gradient.dtype, note="what it writes is not counted"
    )


def _gather(inputs: Inputs) -> Work | None:
    x, index = inputs[0], inputs[1]
    if x is None or index is None:
        return None
    return Work("index", index.bytes + 2 * index.numel * x.item, 0, x.dtype, index.shape)


def _index(inputs: Inputs) -> Work | None:
    """index.Tensor(self, indices): which dimension an index is for is known only where all have one."""
    x, given = inputs[0], defined(inputs[1:])
    if x is None or len(given) != len(x.shape) or any(t.dtype in ("bool", "uint8") for t in given):
        return None
    output = _broadcast(t.shape for t in given)
    return Work("index", bytes_read(list(given)) + 2 * prod(output) * x.item, 0, x.dtype, output)


def _loss(inputs: Inputs) -> Work | None:
    x, target = inputs[0], inputs[1]
    if x is None or target is None:
        return None
    return Work(
        "reduction", target.bytes + target.numel * x.item, target.numel, x.dtype, note="one element a row"
    )


def _dropout(inputs: Inputs) -> Work | None:
    x = inputs[0]
    if x is None:
        return None
    return Work("pointwise", x.bytes + x.numel * (x.item + 1), x.numel, x.dtype, x.shape)


def _names(text: str) -> list[str]:
    return text.split()


POINTWISE = _names(
    """
add addcdiv addcmul bitwise_and bitwise_or bitwise_xor bitwise_not ceil
celu clamp clamp_max clamp_min elu floor
floor_divide fmod frac gelu glu_jvp hardsigmoid hardswish hardtanh heaviside hypot leaky_relu lerp
log_sigmoid_forward logaddexp maximum minimum mish mul
nan_to_num neg pow relu relu6 remainder round rsub sgn sign silu
softplus softshrink square sub threshold trunc
elu_backward gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward
leaky_relu_backward mish_backward mse_loss_backward sigmoid_backward silu_backward smooth_l1_loss_backward
softplus_backward tanh_backward threshold_backward
"""
)
TO_FLOATS = _names(
    """
acos asin atan atan2 copysign cos cosh digamma div erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2
logit masked_scale native_dropout_backward reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh xlogy
"""
)
COMPARISONS = _names("eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_not logical_xor")
_REDUCTIONS = _names(
    """
sum mean amax amin argmax argmin max min norm linalg_vector_norm var std var_mean std_mean logsumexp all
any prod nansum aminmax count_nonzero
"""
)
_FILLS = _names("fill zero normal uniform random bernoulli exponential log_normal cauchy geometric")
RULES: dict[str, Model] = {
    **dict.fromkeys(POINTWISE, _pointwise(_promoted)),
    **dict.fromkeys(TO_FLOATS, _pointwise(_floating)),
    "masked_fill": _pointwise(_of_first),
    **dict.fromkeys(COMPARISONS, _pointwise(_truth)),
    "abs": _pointwise(_real),
    "angle": _pointwise(_real_floating),
    "where": _pointwise(_of_others),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_FILLS, _fill),
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot"), _product(0)),
    **dict.fromkeys(("addmm", "_addmm_activation", "baddbmm", "addmv"), _product(1)),
    "linear": _linear,
    "_cudnn_rnn": _rnn,
    "_cudnn_rnn_backward": _rnn_backward,
    "_scaled_dot_product_flash_attention": _attention(0, 1, 2),
    "_scaled_dot_product_efficient_attention": _attention(0, 1, 2),
    "_scaled_dot_product_cudnn_attention": _attention(0, 1, 2),
    "_flash_attention_forward": _attention(0, 2, 2),
    "_efficient_attention_forward": _attention(0, 2, 2),
    "_cudnn_attention_forward": _attention(0, 1, 2),
    "_scaled_dot_product_flash_attention_backward": _attention(1, 1, 5),
    "_scaled_dot_product_efficient_attention_backward": _attention(1, 1, 5),
    "_scaled_dot_product_cudnn_attention_backward": _attention(1, 1, 5),
    "_flash_attention_backward": _attention(1, 2, 5),
    "_cudnn_attention_backward": _attention(1, 1, 5),
    "_efficient_attention_backward": _attention(1, 2, 5),
    **dict.fromkeys(("cat", "stack", "_cat"), _cat),
    **dict.fromkeys(("copy", "_foreach_copy"), _copy),
    **dict.fromkeys(("clone", "contiguous", "flip", "roll", "tril", "triu"), _like(1, 1, "copy")),
    **dict.fromkeys(("_softmax", "_log_softmax"), _like(1, 1, "softmax and scans")),
    "cumsum": _scan,
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax_backward_data"), _like(2, 1, "softmax and scans")
    ),
    "native_layer_norm": _like(3, 1, "normalisation"),
    "_fused_rms_norm": _like(2, 1, "normalisation"),
    "native_group_norm": _like(3, 1, "normalisation"),
    "native_layer_norm_backward": _like(6, 1, "normalisation", of=1),
    "native_group_norm_backward": _like(5, 1, "normalisation", of=1),
    "native_batch_norm": _like(5, 1, "normalisation"),
    "cudnn_batch_norm": _like(5, 1, "normalisation"),
    "_batch_norm_with_update": _like(5, 1, "normalisation"),
    "native_batch_norm_backward": _like(7, 1, "normalisation", of=1),
    "batch_norm_backward": _like(7, 1, "normalisation", of=1),
    "cudnn_batch_norm_backward": _like(7, 1, "normalisation"),
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(("gather", "take"), _gather),
    "index": _index,
    "nll_loss_forward": _loss,
    "nll_loss_backward": _like(3, 1, "pointwise", of=1),
    "native_dropout": _dropout,
    "max_pool2d_with_indices_backward": _max_pool_backward,
    "max_pool3d_with_indices_backward": _max_pool_backward,
    "_adaptive_avg_pool2d_backward": _average_pool_backward,
    "avg_pool2d_backward": _average_pool_backward,
    "avg_pool3d_backward": _average_pool_backward,
}
