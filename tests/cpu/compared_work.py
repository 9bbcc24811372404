"""Calls the samples of torch's operator database, and compares what each op reads and writes with our rules.

Only functions import this module.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tracer.analysis import op_rules
from tracer.analysis.op_work import work_of
from tracer.analysis.work import Work

DTYPES = (torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.uint8, torch.bool)
SAMPLES = 2
KNOWN = [op for op in op_db if {op.name.rpartition(".")[2], op.aten_name} & op_rules.RULES.keys()]
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
WITH_OUTPUTS = ("pointwise", "cat", "copy", "softmax and scans")
"""Families of which the first output is counted"""


def name_of(function: torch._ops.OpOverload) -> str:
    return str(function).replace(".", "::", 1)


def kind(dtype: torch.dtype) -> int:
    return (dtype != torch.bool) + dtype.is_floating_point * 1 + dtype.is_complex * 2


def tensors_of(function: torch._ops.OpOverload, args: tuple, kwargs: dict) -> list[torch.Tensor]:
    """What the dispatcher is given as tensors. A Python number in the place of one is one without dimensions.

    None where something that is no tensor decides the dtype of what comes out.
    """
    found: list[torch.Tensor] = []
    numbers: list[Any] = []
    for place, argument in enumerate(function._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        if "Tensor" in str(argument.type):
            values = value if isinstance(value, (list, tuple)) else [value]
            found += [torch.as_tensor(one, dtype=NUMBERS.get(type(one))) for one in values if one is not None]
        elif argument.name in ("dtype", "out_dtype", "half_to_float", "rounding_mode") and value:
            return []
        elif type(value) in NUMBERS:
            numbers.append(value)
    most = max((kind(tensor.dtype) for tensor in found), default=0)
    if _like_a_number(args, kwargs, [tensor for tensor in found if tensor.dim()]):
        return []
    return [] if any(kind(NUMBERS[type(number)]) > most for number in numbers) else found


def _like_a_number(args: tuple, kwargs: dict, large: list[torch.Tensor]) -> bool:
    """Whether a tensor reads like a Python number in a trace, and makes another dtype than that would."""
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    small = [leaf for leaf in leaves if not leaf.dim() and leaf.dtype in (torch.float64, torch.complex128)]
    return any(kind(leaf.dtype) > max((kind(one.dtype) for one in large), default=0) for leaf in small)


def row(tensor: torch.Tensor) -> dict[str, Any]:
    """A row of `signatures`."""
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype), "stride": list(tensor.stride())}


class Compared(TorchDispatchMode):
    """Compares each op that is called with what is said of its work."""

    def __init__(self) -> None:
        super().__init__()
        self.compared: set[str] = set()
        self.wrong: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.compare(function, tensors_of(function, args, kwargs or {}), result)
        return result

    def compare(self, function: Any, given: list[torch.Tensor], result: Any) -> None:
        said = work_of(name_of(function), map(row, given)) if given else None
        if said is not None and said.family in WITH_OUTPUTS and said.bytes is not None:
            output = next(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
            if output.dim():  # a Python number and a tensor without dimensions read alike in a trace
                self._compare(name_of(function), said, given, output)

    def _compare(self, name: str, said: Work, given: list[torch.Tensor], output: torch.Tensor) -> None:
        self.compared.add(name.removeprefix("aten::").partition(".")[0].rstrip("_"))
        dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in given]
        if said.written and f"torch.{said.written}" != str(output.dtype):
            self.wrong.add(f"{name} {dtypes}: writes {output.dtype}, not {said.written}")
        if said.family not in ("pointwise", "cat") or "dropout" in name:
            return
        if name.endswith(("out", "grad_input")):
            given = given[:-1]
        read = sum(places(tensor) * tensor.element_size() for tensor in given)
        moved = read + output.numel() * output.element_size()
        if said.bytes != moved:
            self.wrong.add(f"{name} {dtypes}: {moved} bytes, not {said.bytes}")


def places(tensor: torch.Tensor) -> int:
    """How many elements of memory a tensor has, counted one by one."""
    if tensor.is_contiguous():
        return tensor.numel()
    dimensions = [
        [index * stride for index in range(count)]
        for count, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    return len({sum(offsets) for offsets in itertools.product(*dimensions)})


def samples(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    gradient = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    return itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradient), SAMPLES)


def run(op: Any, sample: Any) -> None:
    result = op.op(sample.input, *sample.args, **sample.kwargs)
    outputs = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    total = sum(output.abs().sum() for output in outputs if output.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()


def call_what_no_sample_calls(mode: Compared) -> None:
    aten = torch.ops.aten
    x, y = torch.randn(3, 4), torch.randn(4)
    with mode:
        aten.log_sigmoid_forward(x)
        aten.mse_loss_backward(torch.ones(()), x, y, 1)
        aten.smooth_l1_loss_backward(torch.ones(()), x, y, 1, 1.0)
    # made of other ops: a mode does not see them, a recording does
    for op, given in itertools.product((aten.isfinite, aten.relu6, aten.square), (x, torch.arange(5))):
        mode.compare(op.default, [given], op(given))


def compare_samples() -> Compared:
    mode = Compared()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op, dtype in itertools.product(KNOWN, DTYPES):
            if dtype not in op.supported_dtypes("cpu"):
                continue
            for sample in samples(op, dtype):
                try:
                    with mode:
                        run(op, sample)
                except (RuntimeError, NotImplementedError):
                    continue  # not for this dtype on the CPU; what ran before it was compared
        call_what_no_sample_calls(mode)
    torch.set_num_threads(threads)
    return mode
