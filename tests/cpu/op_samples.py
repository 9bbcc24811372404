"""Runs samples of torch's operator database alone and recorded, and digests all they return, byte by byte."""

from __future__ import annotations

import ctypes
import hashlib
import random
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lazily import pytree, torch

import tracer

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

M_PERTURB = -6  # of mallopt(3)
DTYPES = ("float32", "complex64", "bfloat16", "int64", "bool")
SPARSE_SAMPLES = 2  # those of mul that follow take millions of op calls to make
INDICES = {  # of a tensor of such a layout
    "torch.sparse_csr": ("crow_indices", "col_indices"),
    "torch.sparse_bsr": ("crow_indices", "col_indices"),
    "torch.sparse_csc": ("ccol_indices", "row_indices"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices"),
}
ADDRESS = re.compile(r"0x[0-9a-f]+")

Results = dict[str, str]  # a run of one sample -> digest of all it returned, or the exception


def thrice(run: Callable[[], Results], folder: Path) -> tuple[Results, Results, int]:
    """What `run` gives alone, what it gives under a recording, and the hops of that recording.

    A third run, alone, tells what differs from itself: of those runs both results read "aside".
    What depends on uninitialised memory differs there for certain, because new memory is filled
    otherwise, and otherwise not, because it is filled alike in the other two.
    """
    runs = []
    recording = tracer.record(folder / "samples.trace")
    with _one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for byte, context in ((0x11, nullcontext()), (0x22, nullcontext()), (0x11, recording)):
            with _new_memory_reads(byte), context:
                runs.append(run())  # on one line, for texts that hold the stack
    first, other, recorded = runs
    assert first.keys() == other.keys() == recorded.keys()
    assert recording.summary is not None
    assert recording.summary.dropped == ()
    aside = dict.fromkeys((name for name in first if first[name] != other[name]), "aside")
    return first | aside, recorded | aside, recording.summary.hops


def changed(alone: Results, recorded: Results) -> str:
    """Says what a recording changed; empty if nothing."""
    names = [name for name in alone if alone[name] != recorded[name]]
    shown = "".join(f"\n{name}: {alone[name]} -> {recorded[name]}" for name in names[:10])
    return f"{len(names)} of {len(alone)} differ under a recording:{shown}" if names else ""


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _new_memory_reads(byte: int) -> Iterator[None]:
    """Memory that was allocated and not yet written reads as `byte`, of glibc's allocator."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(M_PERTURB, byte)
    try:
        yield
    finally:
        mallopt(M_PERTURB, 0)


def seed() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def digest(value: object) -> str:
    """Of every tensor in `value` (any pytree) its properties and raw bytes; of other leaves type and text."""
    state = hashlib.sha256()
    for leaf in pytree.tree_leaves(value):
        for piece in _pieces(leaf):
            state.update(piece if isinstance(piece, bytes) else repr(piece).encode())
    return state.hexdigest()


def outcome(run: Callable[[], object]) -> str:
    """The digest of what `run` returns, or the type and text of the exception that it raises."""
    try:
        return digest(run())
    except Exception as error:
        return said_by(error)


def said_by(error: Exception) -> str:
    """Type and text of an exception, without addresses, which differ from run to run."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {ADDRESS.sub('0x', str(error))}"


def run_samples(operators: Iterable[OpInfo], samples: int, dtypes: int) -> Results:
    """Forward, backward where there is one, and the in-place variant, of `samples` samples an operator.

    Each of them at the first `dtypes` of DTYPES that the operator supports, and with sparse and
    conjugated inputs where it says that it takes them.
    """
    results: Results = {}
    for operator in operators:
        name = f"{operator.name}.{operator.variant_test_name}".rstrip(".")
        for dtype in _dtypes(operator, dtypes):
            results.update(_run_dtype(operator, f"{name} {dtype}", dtype, samples))
    return results


def operator_of(run: str) -> str:
    return run.partition(" ")[0]


def _dtypes(operator: OpInfo, count: int) -> list[torch.dtype]:
    supported = operator.supported_dtypes("cpu")
    preferred = [dtype for dtype in (getattr(torch, name) for name in DTYPES) if dtype in supported]
    return (preferred or sorted(supported, key=str))[:count]


def _run_dtype(operator: OpInfo, name: str, dtype: torch.dtype, samples: int) -> Results:
    results: Results = {}
    grad = operator.supports_autograd and dtype in operator.supported_backward_dtypes("cpu")
    for kind, make in _sample_sources(operator, dtype, grad):
        seed()
        index = 0
        try:
            for sample in _spread(make(), min(samples, SPARSE_SAMPLES) if "sparse" in kind else samples):
                case = f"{name} {kind} {index}"
                seed()
                results[case] = outcome(lambda sample=sample: _forward_and_backward(operator.op, sample))
                if operator.inplace_variant is not None and "sparse" not in kind:
                    seed()
                    results[f"{case} in place"] = outcome(
                        lambda sample=sample: _in_place(operator.inplace_variant, sample)
                    )
                index += 1
        except Exception as error:
            if not isinstance(error, NotImplementedError):  # the operator database has no such samples
                results[f"{name} {kind} samples"] = said_by(error)
    return results


def _sample_sources(
    operator: OpInfo, dtype: torch.dtype, grad: bool
) -> Iterator[tuple[str, Callable[[], Iterable[SampleInput]]]]:
    # operator.sample_inputs looks at the whole Python stack for each sample, which is slow under xdist
    yield "strided", lambda: operator.sample_inputs_func(operator, "cpu", dtype, grad)
    if dtype.is_complex and operator.test_conjugated_samples:
        yield "conjugated", lambda: operator.conjugate_sample_inputs("cpu", dtype, requires_grad=grad)
    if operator.supports_sparse:
        yield "sparse", lambda: operator.sample_inputs_sparse_coo("cpu", dtype, requires_grad=grad)
    if operator.supports_sparse_csr:
        yield "sparse csr", lambda: operator.sample_inputs_sparse_csr("cpu", dtype, requires_grad=grad)


def _spread(samples: Iterable[SampleInput], count: int) -> Iterator[SampleInput]:
    """Every third: neighbours are much alike."""
    return islice(samples, 0, 3 * count, 3)


def _forward_and_backward(function: Callable[..., Any], sample: SampleInput) -> object:
    arguments = (sample.input, sample.args, sample.kwargs)
    result = function(sample.input, *sample.args, **sample.kwargs)
    inputs = [leaf for leaf in _tensors(arguments) if leaf.requires_grad]
    outputs = [leaf for leaf in _tensors(sample.output_process_fn_grad(result)) if leaf.requires_grad]
    grads = ()
    if inputs and outputs:
        weights = [output.detach().clone() for output in outputs]
        grads = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
    return result, grads, arguments


def _in_place(function: Callable[..., Any], sample: SampleInput) -> object:
    changed = pytree.tree_map_only(torch.Tensor, torch.clone, sample.input)
    return function(changed, *sample.args, **sample.kwargs), changed


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _pieces(leaf: object) -> Iterator[object]:
    if not isinstance(leaf, torch.Tensor):
        yield type(leaf).__qualname__, ADDRESS.sub("0x", repr(leaf))
        return
    yield type(leaf).__qualname__, leaf.dtype, leaf.device, leaf.layout, leaf.requires_grad, leaf.is_nested
    inner = leaf.detach()
    if torch.utils._python_dispatch.is_traceable_wrapper_subclass(inner):
        names, context = inner.__tensor_flatten__()
        yield sorted(map(str, context or ()))
        for name in names:
            yield from _pieces(getattr(inner, name))
    elif inner.is_nested:
        for part in (inner._nested_tensor_size(), inner._nested_tensor_strides(), *inner.unbind()):
            yield from _pieces(part)
    elif inner.layout == torch.sparse_coo:
        yield tuple(inner.shape), inner.is_coalesced()
        yield from _pieces(inner._indices())
        yield from _pieces(inner._values())
    elif str(inner.layout) in INDICES:
        yield tuple(inner.shape)
        for name in INDICES[str(inner.layout)]:
            yield from _pieces(getattr(inner, name)())
        yield from _pieces(inner.values())
    elif inner.is_mkldnn:
        yield from _pieces(inner.to_dense())
    elif inner.is_quantized:
        yield inner.qscheme(), tuple(inner.shape), inner.stride()
        yield from _pieces(inner.dequantize())
        yield from _pieces(inner.int_repr())
    else:
        yield tuple(inner.shape), inner.stride(), inner.storage_offset()
        yield inner.is_conj(), inner.is_neg(), inner._is_zerotensor()
        if not inner.is_meta and not inner._is_zerotensor():
            yield _bytes(inner)


def _bytes(tensor: torch.Tensor) -> bytes:
    """The elements as they stand in memory: those behind a conjugated or negated view are not resolved."""
    if tensor.is_conj():
        tensor = tensor.conj()
    if tensor.is_neg():
        tensor = tensor._neg_view()
    elements = tensor.flatten().clone(memory_format=torch.contiguous_format)
    return elements.view(torch.uint8).numpy().tobytes()
