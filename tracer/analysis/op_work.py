"""Work of one call of an op of PyTorch, from the shapes of its inputs.

Each input is read once and each output written once; of a tensor whose places overlap (expanded, or
an unfold) each counts once. What an op makes has the dtype that PyTorch gives it. Only a Python number
can change that unseen, as in pow(integers, 0.5), or be taken for one: a float64 without dimensions. Shapes of
outputs are not recorded: they are derived, and where that is not possible the op's work is unknown
(None), or a bound that says what it leaves out (`note`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

import polars as pl

from tracer.analysis.dtypes import item_bytes, multiply_add
from tracer.analysis.op_rules import RULES
from tracer.analysis.work import Inputs, Outputs, Tensor, Work, bytes_read, defined
from tracer.trace.bytes.damage import DamagedError, whole
from tracer.trace.tables.schema import MOST_TENSORS


def work_of(op: str, inputs: Iterable[dict[str, Any]], outputs: Outputs | None = None) -> Work | None:
    """The work of one call of `op` with these rows of `signatures`; None where it is unknown.

    `outputs` are the outputs of convolutions and of pooling (see outputs_of_backward).
    """
    try:
        return whole(_work, op, inputs, outputs)
    except DamagedError:
        return None  # fewer inputs, or of other ranks, than the op takes: not the op that it seems


def _work(op: str, inputs: Iterable[dict[str, Any]], outputs: Outputs | None) -> Work | None:
    tensors = [Tensor.of(row) for row in inputs]
    if len(tensors) >= MOST_TENSORS:
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
    model = RULES.get(base) or RULES.get(base.rstrip("_"))
    return _into(target, model(tensors)) if model else None


def _into(target: Tensor | None, work: Work | None) -> Work | None:
    """Work whose result has the dtype of the tensor that it is written to."""
    if target is None or work is None or work.bytes is None or work.output is None or not work.written:
        return work
    more = prod(work.output) * (target.item - item_bytes(work.written))
    return replace(work, bytes=work.bytes + more, written=target.dtype)


def why_unknown(
    op: str | None, inputs: Iterable[dict[str, Any]] | None, outputs: Outputs | None = None
) -> str:
    """Why work_of knows no work for a call, in a few words."""
    if op is None:
        return "outside ops"
    tensors = [Tensor.of(row) for row in inputs or []]
    if not tensors:
        return "no shapes recorded"
    if len(tensors) >= MOST_TENSORS:
        return f"{MOST_TENSORS} tensors or more; only the first are recorded"
    base, _ = _name_of(op)
    if base is None or "transpose" in base:
        return "no rule for the op"
    if (_is_convolution(base) and "backward" not in base) or base in _POOLS:
        known = _determining(base, defined(tensors)) in (outputs or {})
        return "its shapes do not tell" if known else _NO_OUTPUT
    if _is_convolution(base) or base in RULES or base.rstrip("_") in RULES:
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


_NAMESPACES = ("aten", "prims")
"""Of the ops that the rules are for; an op of prims is the one of aten that has its name."""
_NO_OUTPUT = "its output's shape would be known from backward calls that agree on it, and there are none"


def _convolution(base: str, inputs: Inputs, outputs: Outputs) -> Work | None:
    backward = "backward" in base
    tensors = defined(inputs)
    if len(tensors) < 2 + backward or "transpose" in base:
        return None
    x, weight = (tensors[1], tensors[2]) if backward else (tensors[0], tensors[1])
    output = tensors[0].shape if backward else outputs.get(_determining(base, tensors))
    if output is None or len(output) < 3 or output[1] != weight.shape[0]:
        return None
    flops = prod(output) * prod(weight.shape[1:]) * multiply_add(x.dtype)
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
        bytes_read(inputs) + prod(output) * x.item,
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


# _foreach_ ops: how many of the lists are written, of how many
_LISTS = {"List": 2, "Scalar": 1, "ScalarList": 1, "Tensor": 1, "": 1}
_LISTS_BY_NAME = {"addcdiv": 3, "addcmul": 3, "lerp": 2, "copy": 2}


def _lists(base: str, overload: str, inputs: Inputs) -> Work | None:
    large = [tensor for tensor in defined(inputs) if tensor.shape]
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
