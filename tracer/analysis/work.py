"""Bytes that an op must move and operations it must do, from the shapes of its inputs.

Each input is read once and each output written once; of a tensor whose places overlap (expanded, or
an unfold) each counts once. What an op makes has the dtype that PyTorch gives it. Only a Python number
can change that unseen, as in pow(integers, 0.5), or be taken for one: a float64 without dimensions. Shapes of
outputs are not recorded: they are derived, and where that is not possible the op's work is unknown
(None), or a bound that says what it leaves out (`note`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import polars as pl


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    dtype: str
    elements: int
    """That are stored"""

    @classmethod
    def of(cls, row: dict[str, Any]) -> Tensor | None:
        """From a row of `signatures`; None of an undefined tensor."""
        shape, stride = row["shape"], row["stride"]
        if shape is None or row["dtype"] is None:
            return None
        stored = _stored(shape, stride) if stride else prod(shape)
        return cls(tuple(shape), str(row["dtype"]).removeprefix("torch."), stored)

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def item(self) -> int:
        return item_bytes(self.dtype)

    @property
    def bytes(self) -> int:
        return self.elements * self.item


@dataclass(frozen=True)
class Work:
    """`output`: the shape of the first output, None if unknown. `matrix`: it may use tensor cores.

    `written`: the dtype of what `bytes` has for the output, where it is that of an op of its kind.
    """

    family: str
    bytes: int | None
    flops: int
    dtype: str
    output: tuple[int, ...] | None = None
    matrix: bool = False
    note: str = ""
    written: str = ""


Inputs = list[Tensor | None]
Outputs = dict[Any, tuple[int, ...]]
"""Shapes of outputs by what determines them (see outputs_of_backward)"""
Model = Callable[[Inputs], Work | None]


def work_of(op: str, inputs: Iterable[dict[str, Any]], outputs: Outputs | None = None) -> Work | None:
    """The work of one call of `op` with these rows of `signatures`; None where it is unknown.

    `outputs` are the outputs of convolutions and of pooling (see outputs_of_backward).
    """
    tensors = [Tensor.of(row) for row in inputs]
    if len(tensors) >= _MOST_TENSORS:
        return None
    base, overload = _name_of(op)
    if base is None:
        return None
    target = tensors[0] if base.endswith("_") and tensors else None
    if overload.endswith(("out", "grad_input")) and len(tensors) > 1:
        target = tensors.pop()  # where the result goes is an argument too
    if _is_convolution(base):
        return _convolution(base, tensors, outputs or {})
    if base.startswith(("_foreach_", "_fused_")):
        return _lists(base, overload, tensors)
    if base in _POOLS:
        return _pool(base, tensors, outputs or {})
    model = _MODELS.get(base) or _MODELS.get(base.rstrip("_"))
    try:
        return _into(target, model(tensors)) if model else None
    except (IndexError, ValueError, AttributeError, ZeroDivisionError):
        return None  # fewer inputs, or of other ranks, than the op takes: not the op that it seems


def _into(target: Tensor | None, work: Work | None) -> Work | None:
    """Work whose result has the dtype of the tensor that it is written to."""
    if target is None or work is None or work.bytes is None or work.output is None or not work.written:
        return work
    more = prod(work.output) * (target.item - item_bytes(work.written))
    return replace(work, bytes=work.bytes + more, written=target.dtype)


def _stored(shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many places of memory elements with these strides have: those that overlap count once.

    An unfold of 10 elements, (7, 4) with strides (1, 1): 10 places, not 28. Places that repeat at a
    distance of `unit` are a level; a stride that is a whole number of units and leaves no gap makes the
    level longer, one beyond everything so far begins the next level.
    """
    if 0 in shape:
        return 0
    below, unit, length, extent = 1, 1, 1, 1
    for step, count in sorted((s, n) for s, n in zip(stride, shape, strict=True) if s and n > 1):
        if step % unit == 0 and step // unit <= length:
            length += step // unit * (count - 1)
        elif step >= extent:
            below, unit, length = below * length, step, count
        else:  # neither: at most all places between the first and the last
            everything = 1 + sum(s * (n - 1) for s, n in zip(stride, shape, strict=True))
            return min(prod(n for n, s in zip(shape, stride, strict=True) if s), everything)
        extent += step * (count - 1)
    return below * length


def why_unknown(
    op: str | None, inputs: Iterable[dict[str, Any]] | None, outputs: Outputs | None = None
) -> str:
    """Why work_of knows no work for a call, in a few words."""
    if op is None:
        return "outside ops"
    tensors = [Tensor.of(row) for row in inputs or []]
    if not tensors:
        return "no shapes recorded"
    if len(tensors) >= _MOST_TENSORS:
        return f"{_MOST_TENSORS} tensors or more; only the first are recorded"
    base, _ = _name_of(op)
    if base is None or "transpose" in base:
        return "no rule for the op"
    if (_is_convolution(base) and "backward" not in base) or base in _POOLS:
        known = _determining(base, _defined(tensors)) in (outputs or {})
        return "its shapes do not tell" if known else _NO_OUTPUT
    if _is_convolution(base) or base in _MODELS or base.rstrip("_") in _MODELS:
        return "its shapes do not tell"
    return "no rule for the op"


def _name_of(op: str) -> tuple[str | None, str]:
    """Name and overload of an op of PyTorch, by which the rules go; no name of an op of another library."""
    namespace, _, name = op.rpartition("::")
    base, _, overload = name.partition(".")
    return (base if namespace in _NAMESPACES else None), overload


def _is_convolution(base: str) -> bool:
    return "convolution" in base or base in ("conv1d", "conv2d", "conv3d")


def outputs_of_backward(hops: pl.DataFrame, signatures: dict[int, list[dict[str, Any]]]) -> Outputs:
    """The output's shape of convolutions and of pooling, by their input's (and weight's) shape.

    From their backward calls, which begin with the output's gradient. Left out where calls of equal
    input had different outputs (stride, padding or window differ).
    """
    calls = hops.select(op=pl.col("op").cast(pl.String), number="inputs").drop_nulls().unique()
    calls = calls.filter(pl.col("op").str.contains(r"^aten::\w*(convolution|pool[23]d\w*)_backward"))
    found: dict[Any, set[tuple[int, ...]]] = {}
    for op, number in calls.iter_rows():
        shapes = [tuple(row["shape"]) for row in signatures.get(number, []) if row["shape"] is not None]
        if "convolution" in op and len(shapes) >= 3:
            found.setdefault((shapes[1], shapes[2]), set()).add(shapes[0])
        elif "pool" in op and len(shapes) >= 2:
            found.setdefault((_pool_of(op), shapes[1]), set()).add(shapes[0])
    return {key: next(iter(shapes)) for key, shapes in found.items() if len(shapes) == 1}


def _determining(base: str, tensors: list[Tensor]) -> Any:
    """What the output's shape of a convolution or of pooling is found by (see outputs_of_backward)."""
    shapes = [tensor.shape for tensor in tensors]
    return (base.lstrip("_"), *shapes[:1]) if base in _POOLS else tuple(shapes[:2])


def _pool_of(op: str) -> str:
    """`max_pool2d_with_indices` of `aten::max_pool2d_with_indices_backward.grad_input`."""
    return re.sub(r"^.*::_?", "", op).partition(".")[0].removesuffix("_backward")


def gemm_work(arguments: dict[str, str], name: str) -> Work | None:
    """From the arguments of a GEMM call of cuBLAS (m, n, k, batchCount, Atype); None of other calls."""
    try:
        m, n, k = (int(arguments[letter]) for letter in "mnk")
    except (KeyError, ValueError):
        return None
    count = max(int(arguments.get("batchCount", 1)), 1)
    letter = re.match(r"cublas([SDHCZ])", name)
    number = re.search(r"(?:^|_)([RC]_.*)", arguments.get("Atype", ""))
    dtype = _CUDA_TYPES.get(number[1] if number else "") or _LETTERS.get(letter[1] if letter else "", "")
    if not dtype:
        return None
    size = item_bytes(dtype)
    return Work(
        "GEMM",
        count * (m * k + k * n + m * n) * size,
        count * m * n * k * _multiply_add(dtype),
        dtype,
        (count, m, n),
        matrix=True,
    )


def rnn_work(arguments: dict[str, str], name: str) -> Work | None:
    """From the arguments of a cuDNN RNN call; each backward call does the work of the forward call."""
    try:
        layers, size, hidden, length, batch = (
            int(arguments[word]) for word in ("layers", "input", "hidden", "sequence", "batch")
        )
    except (KeyError, ValueError):
        return None
    gates = {"LSTM": 4, "GRU": 3}.get(arguments.get("mode", ""), 1)
    directions = 2 if arguments.get("direction") == "BIDIRECTIONAL" else 1
    dtype = {"HALF": "float16", "BFLOAT16": "bfloat16", "DOUBLE": "float64"}.get(
        arguments.get("type", ""), "float32"
    )
    weights = 0
    for layer in range(layers):
        weights += directions * gates * hidden * ((hidden * directions if layer else size) + hidden)
    state = length * batch * (size + hidden * directions)
    note = "" if name == "cudnnRNNForward" else "one of the two backward passes"
    return Work(
        "RNN",
        (weights + state) * item_bytes(dtype),
        2 * length * batch * weights,
        dtype,
        (length, batch, hidden * directions),
        matrix=True,
        note=note,
    )


def item_bytes(dtype: str) -> int:
    """Bytes of an element; 4 where the dtype is unknown."""
    if dtype == "bool":
        return 1
    if dtype.startswith("complex"):
        return int(dtype.removeprefix("complex")) // 8
    bits = re.search(r"(?:float|int)(\d+)", dtype)
    return max(int(bits[1]) // 8, 1) if bits else 4


_NAMESPACES = ("aten", "prims")
"""Of the ops that the rules are for; an op of prims is the one of aten that has its name."""
_NO_OUTPUT = "its output's shape would be known from backward calls that agree on it, and there are none"
_MOST_TENSORS = 64
"""A signature names no more: of longer lists the rest is unknown."""
_LETTERS = {"S": "float32", "D": "float64", "H": "float16", "C": "complex64", "Z": "complex128"}
_CUDA_TYPES = {
    "R_32F": "float32",
    "R_64F": "float64",
    "R_16F": "float16",
    "R_16BF": "bfloat16",
    "R_8F_E4M3": "float8_e4m3fn",
    "R_8F_E5M2": "float8_e5m2",
    "R_8I": "int8",
    "C_32F": "complex64",
    "C_64F": "complex128",
}


def _multiply_add(dtype: str) -> int:
    """Operations in a multiplication and addition; of complex numbers 4 of each."""
    return 8 if dtype.startswith("complex") else 2


def _defined(inputs: Inputs) -> list[Tensor]:
    return [tensor for tensor in inputs if tensor is not None]


def _read(inputs: Inputs) -> int:
    return sum(tensor.bytes for tensor in _defined(inputs))


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
            _read(inputs[: first + 2]) + elements * a.item,
            elements * k * _multiply_add(a.dtype),
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
        _read(inputs[:3]) + prod(output) * x.item,
        prod(output) * x.shape[-1] * _multiply_add(x.dtype),
        x.dtype,
        output,
        matrix=True,
    )


def _convolution(base: str, inputs: Inputs, outputs: Outputs) -> Work | None:
    backward = "backward" in base
    tensors = _defined(inputs)
    if len(tensors) < 2 + backward or "transpose" in base:
        return None
    x, weight = (tensors[1], tensors[2]) if backward else (tensors[0], tensors[1])
    output = tensors[0].shape if backward else outputs.get(_determining(base, tensors))
    if output is None or len(output) < 3 or output[1] != weight.shape[0]:
        return None
    flops = prod(output) * prod(weight.shape[1:]) * _multiply_add(x.dtype)
    if backward:
        return Work(
            "convolution",
            tensors[0].bytes + 2 * (x.bytes + weight.bytes),
            2 * flops,
            x.dtype,
            x.shape,
            matrix=True,
            note="gradients of input and weight, if both were asked for",
        )
    return Work(
        "convolution",
        _read(inputs) + prod(output) * x.item,
        flops,
        x.dtype,
        output,
        matrix=True,
        note="output's shape from the backward call",
    )


def _pool(base: str, inputs: Inputs, outputs: Outputs) -> Work | None:
    """Reads the input and writes the output, with indices the place of each maximum too."""
    x = inputs[0]
    output = outputs.get(_determining(base, [x])) if x else None
    if x is None or output is None:
        return None
    each = x.item + (8 if "indices" in base else 0)
    return Work(
        "pooling",
        x.bytes + prod(output) * each,
        x.numel,
        x.dtype,
        output,
        note="output's shape from the backward call",
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
    tensors = _defined(inputs)
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
    forward, tensors = _rnn(inputs), _defined(inputs)
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
    tensors = _defined(inputs)
    if not tensors:
        return None
    count, dtype = sum(tensor.numel for tensor in tensors), _promoted(tensors)
    moved = _read(inputs) + count * item_bytes(dtype)
    return Work("cat", moved, 0, dtype, (count,), written=dtype)


def _pointwise(result: Callable[[list[Tensor]], str]) -> Model:
    """`result`: the dtype of what an op makes of these tensors."""

    def model(inputs: Inputs) -> Work | None:
        tensors = _defined(inputs)
        if not tensors:
            return None
        output = _broadcast(tensor.shape for tensor in tensors)
        written = result(tensors)
        dtype = _promoted(tensors) if written == "bool" else written
        moved = _read(inputs) + prod(output) * item_bytes(written)
        return Work("pointwise", moved, prod(output), dtype, output, written=written)

    return model


def _promoted(tensors: list[Tensor]) -> str:
    """The dtype that tensors have together; one without dimensions counts if it is of a higher kind."""
    large = _together(tensor.dtype for tensor in tensors if tensor.shape)
    small = _together(tensor.dtype for tensor in tensors if not tensor.shape)
    if not large or not small or _kind(small) <= _kind(large):
        return large or small
    # Most of them are Python's numbers, which are recorded as float64 and complex128.
    if small == "float64":
        return "float32"
    if small == "complex128":
        return "complex128" if large == "float64" else "complex64"
    return small


def _together(dtypes: Iterable[str]) -> str:
    """What torch.promote_types makes of them; "" of none."""
    result = ""
    for dtype in dtypes:
        result = _promote(result, dtype) if result else dtype
    return result


def _promote(a: str, b: str) -> str:
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda dtype: (_kind(dtype), item_bytes(dtype)))
    if _kind(high) == _COMPLEX:
        parts = 8 if low == "bfloat16" else item_bytes(low) * 2 if _kind(low) == _FLOAT else item_bytes(low)
        return f"complex{8 * max(item_bytes(high), parts if _kind(low) >= _FLOAT else 0)}"
    if _kind(low) < _kind(high):
        return high
    if _kind(high) == _FLOAT:
        return high if item_bytes(low) < item_bytes(high) else "float32"  # float16 and bfloat16
    return "int16" if {low, high} == {"uint8", "int8"} else high


_BOOL, _INTEGER, _FLOAT, _COMPLEX = range(4)


def _kind(dtype: str) -> int:
    if dtype.startswith("complex"):
        return _COMPLEX
    if "float" in dtype:
        return _FLOAT
    return _BOOL if dtype == "bool" else _INTEGER


def _floating(tensors: list[Tensor]) -> str:
    """Of integers the op makes floats: sqrt, sigmoid, division."""
    dtype = _promoted(tensors)
    return dtype if _kind(dtype) >= _FLOAT else "float32"


def _real(tensors: list[Tensor]) -> str:
    """Of complex numbers the op makes real ones: abs, angle."""
    dtype = tensors[0].dtype
    return f"float{8 * item_bytes(dtype) // 2}" if _kind(dtype) == _COMPLEX else dtype


def _real_floating(tensors: list[Tensor]) -> str:
    dtype = _real(tensors)
    return dtype if _kind(dtype) >= _FLOAT else "float32"


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
    dtype = x.dtype if _kind(x.dtype) >= _FLOAT else "int64"
    moved = x.bytes + x.numel * item_bytes(dtype)
    return Work("softmax and scans", moved, x.numel, dtype, x.shape, written=dtype)


def _like(reads: int, writes: int, family: str, *, of: int = 0) -> Model:
    """Reads the first `reads` inputs, writes `writes` tensors like input `of`."""

    def model(inputs: Inputs) -> Work | None:
        pattern = inputs[of]
        if pattern is None:
            return None
        written = writes * pattern.numel * pattern.item
        return Work(family, _read(inputs[:reads]) + written, pattern.numel, pattern.dtype, pattern.shape)

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
        "index", _read(inputs[:2]), gradient.numel, gradient.dtype, note="what it writes is not counted"
    )


def _gather(inputs: Inputs) -> Work | None:
    x, index = inputs[0], inputs[1]
    if x is None or index is None:
        return None
    return Work("index", index.bytes + 2 * index.numel * x.item, 0, x.dtype, index.shape)


def _index(inputs: Inputs) -> Work | None:
    """index.Tensor(self, indices): which dimension an index is for is known only where all have one."""
    x, given = inputs[0], _defined(inputs[1:])
    if x is None or len(given) != len(x.shape) or any(t.dtype in ("bool", "uint8") for t in given):
        return None
    output = _broadcast(t.shape for t in given)
    return Work("index", _read(list(given)) + 2 * prod(output) * x.item, 0, x.dtype, output)


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


# _foreach_ ops: how many of the lists are written, of how many
_LISTS = {"List": 2, "Scalar": 1, "ScalarList": 1, "Tensor": 1, "": 1}
_LISTS_BY_NAME = {"addcdiv": 3, "addcmul": 3, "lerp": 2, "copy": 2}


def _lists(base: str, overload: str, inputs: Inputs) -> Work | None:
    large = [tensor for tensor in _defined(inputs) if tensor.shape]
    if not large:
        return None
    read = sum(tensor.bytes for tensor in large)
    operation = base.removeprefix("_foreach_").rstrip("_")
    if base.startswith("_fused_"):
        if "adam" not in base:
            return None
        # parameter, gradient and two averages are read, all but the gradient are written
        return Work("optimiser", read + read * 3 // 4, sum(t.numel for t in large) * 4, large[0].dtype)
    if operation in ("norm", "max"):
        return Work(
            "reduction",
            read,
            sum(t.numel for t in large),
            large[0].dtype,
            note="what it writes is not counted",
        )
    lists = _LISTS_BY_NAME.get(operation) or _LISTS.get(overload.removesuffix("_out"))
    if lists is None:
        return None
    written = read // lists
    if operation == "copy":
        read -= written
    elif operation == "zero":
        read = 0
    return Work("optimiser", read + written, sum(t.numel for t in large), large[0].dtype)


_POOLS = (
    *("max_pool2d_with_indices", "max_pool3d_with_indices"),
    *("avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
)


def _names(text: str) -> list[str]:
    return text.split()


_POINTWISE = _names(
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
_TO_FLOATS = _names(
    """
acos asin atan atan2 copysign cos cosh digamma div erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2
logit masked_scale native_dropout_backward reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh xlogy
"""
)
_COMPARISONS = _names("eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_not logical_xor")
_REDUCTIONS = _names(
    """
sum mean amax amin argmax argmin max min norm linalg_vector_norm var std var_mean std_mean logsumexp all
any prod nansum aminmax count_nonzero
"""
)
_FILLS = _names("fill zero normal uniform random bernoulli exponential log_normal cauchy geometric")
_MODELS: dict[str, Model] = {
    **dict.fromkeys(_POINTWISE, _pointwise(_promoted)),
    **dict.fromkeys(_TO_FLOATS, _pointwise(_floating)),
    "masked_fill": _pointwise(_of_first),
    **dict.fromkeys(_COMPARISONS, _pointwise(_truth)),
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
