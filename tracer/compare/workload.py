"""A case made ready to run: its tensors on a device, the call, its results and what they should be."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tracer.analysis.library_work import rnn_work
from tracer.analysis.op_work import work_of
from tracer.analysis.work import Work
from tracer.compare import reference
from tracer.compare.cases import CPU, SHORT, STRIDED, TF32, TRANSPOSED, Case

Results = dict[str, Any]
"""Tensors by name"""


@dataclass(frozen=True)
class Workload:
    """`run` makes the call once and returns what it returned; all that is prepared was prepared before.

    `named` gives results their names, `exact` computes them in float64, with the scale of each (see
    errors.check) or None. `work` is what the call must move and compute. `inputs` are the tensors that it
    reads. `note` says what stock does besides.
    """

    case: Case
    run: Callable[[], Any]
    named: Callable[[Any], Results]
    exact: Callable[[], dict[str, tuple[Any, Any]]]
    work: Work | None
    inputs: tuple[Any, ...]
    note: str = ""


def prepare(case: Case, device: str, seed: int = 0) -> Workload:
    """The same seed gives the same tensors on the same device."""
    import torch

    torch.manual_seed(seed)
    return {"mm": _product, "addmm": _product, "cat": _cat, "gru": _gru}[case.op](case, device)


COLD_BYTES = 2 * 60_000_000
"""Inputs that take turns are this large at least: twice the largest L2 cache"""
_MOST_COPIES = 64


def cold_runs(workload: Workload, device: str) -> list[Callable[[], Any]]:
    """The call with copies of its inputs, enough that none is in the L2 cache when it is read again.

    Empty on the CPU, and if that would take more than _MOST_COPIES, so for calls of less than 2 MB.
    """
    if device == CPU:
        return []
    each = sum(tensor.numel() * tensor.element_size() for tensor in workload.inputs)
    copies = 1 if each >= COLD_BYTES else 1 + -(-COLD_BYTES // max(each, 1))
    if copies > _MOST_COPIES:
        return []
    others = (prepare(workload.case, device, seed).run for seed in range(1, copies))
    return [workload.run, *others]


@contextmanager
def precision(case: Case) -> Iterator[None]:
    """Matrix products and RNNs of fp32 in TF32 or not, as the case says; as it was afterwards."""
    import torch

    # cudnn.allow_tf32 can be set no more once a program has called disable_global_flags().
    set_of_rnns = torch._C._set_cudnn_allow_tf32
    products = torch.backends.cuda.matmul
    before = products.allow_tf32, torch._C._get_cudnn_allow_tf32()
    if case.mode:
        products.allow_tf32 = case.mode == TF32
        set_of_rnns(case.mode == TF32)
    try:
        yield
    finally:
        products.allow_tf32 = before[0]
        set_of_rnns(before[1])


@contextmanager
def without_warnings() -> Iterator[None]:
    """Without the warning that stock gives in each call where it copies weights together (_copied)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        yield


def _random(shape: tuple[int, ...], case: Case, device: str) -> Any:
    import torch

    return torch.randn(shape, device=device).to(getattr(torch, case.dtype))


def _product(case: Case, device: str) -> Workload:
    import torch

    (m, k), (_, n) = case.shapes
    a = _random((m, k), case, device)
    b = _random((n, k), case, device).t() if case.layout == TRANSPOSED else _random((k, n), case, device)
    operands: tuple[Any, ...] = (a, b)
    function = torch.mm
    if case.op == "addmm":
        operands = (_random((n,), case, device), a, b)
        function = torch.addmm
    return Workload(
        case,
        run=lambda: function(*operands),
        named=lambda result: {"result": result},
        exact=lambda: {"result": reference.product(*operands)},
        work=work_of(f"aten::{case.op}", map(_row, operands)),
        inputs=operands,
    )


def _cat(case: Case, device: str) -> Workload:
    import torch

    tensors = [_random(shape, case, device) for shape in case.shapes]
    if case.layout == STRIDED:
        tensors = [torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]] for tensor in tensors]
    return Workload(
        case,
        run=lambda: torch.cat(tensors, case.dim),
        named=lambda result: {"result": result},
        exact=lambda: {"result": (None, None)},  # must be stock's bytes
        work=work_of("aten::cat", map(_row, tensors)),
        inputs=tuple(tensors),
    )


def _gru(case: Case, device: str) -> Workload:
    import torch

    (length, batch, size), (hidden,) = case.shapes
    module = torch.nn.GRU(size, hidden, case.layers, bidirectional=case.bidirectional)
    module = module.to(device, getattr(torch, case.dtype))  # flattens the weights anew
    x = _random((length, batch, size), case, device)
    states = case.layers * (1 + case.bidirectional)
    h = _random((states, batch, hidden), case, device).mul_(0.5)
    weights = dict(module.named_parameters())
    inputs = (x, h, *weights.values())
    note = _copied(weights.values(), case)
    forward = ("output", "h_n")
    work = rnn_work(
        {
            "mode": "GRU",
            "type": _CUDNN_TYPES[case.dtype],
            "layers": str(case.layers),
            "input": str(size),
            "hidden": str(hidden),
            "sequence": str(length),
            "batch": str(batch),
            "direction": "BIDIRECTIONAL" if case.bidirectional else "UNIDIRECTIONAL",
        },
        "cudnnRNNForward",
    )
    if not case.backward:

        def inference() -> Any:
            with torch.no_grad():
                return module(x, h)

        return Workload(
            case,
            run=inference,
            named=lambda result: dict(zip(forward, result, strict=True)),
            exact=lambda: reference.gru(weights, x, h, case.layers, case.bidirectional),
            work=work,
            inputs=inputs,
            note=note,
        )
    x.requires_grad_()
    h.requires_grad_()
    asked = {"x": x, "h_0": h, **weights}
    given = tuple(
        _random(shape, case, device)
        for shape in ((length, batch, hidden * (1 + case.bidirectional)), tuple(h.shape))
    )
    names = (*forward, *(f"grad {name}" for name in asked))

    def training() -> Any:
        results = module(x, h)
        return *results, *torch.autograd.grad(results, tuple(asked.values()), given)

    return Workload(
        case,
        run=training,
        named=lambda result: dict(zip(names, result, strict=True)),
        exact=lambda: reference.gru(weights, x, h, case.layers, case.bidirectional, given),
        work=None if work is None else reference.with_backward(work),
        inputs=inputs,
        note=note,
    )


def _copied(weights: Iterable[Any], case: Case) -> str:
    """The note of a case whose weights cuDNN cannot read where they are: `module.to` left them apart."""
    places = {weight.untyped_storage().data_ptr() for weight in weights if weight.is_cuda}
    if len(places) < 2:
        return ""
    short = SHORT.get(case.dtype, case.dtype)
    return f"stock copies its {short} weights together in each call: flatten_parameters() left them apart"


_CUDNN_TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "bfloat16": "BFLOAT16", "float16": "HALF"}


def _row(tensor: Any) -> dict[str, Any]:
    """A tensor as a row of `signatures`."""
    return {"shape": list(tensor.shape), "stride": list(tensor.stride()), "dtype": str(tensor.dtype)}
