"""Calls for trials from torch's operator database (op_db), with which torch tests its operators."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from tracer.base.boundary import torch_operator
from tracer.compare.trial_arguments import in_form_of, plain_form
from tracer.compare.trial_samples import Operands, Sample, tensors_in, with_tensors

_MOST_OF_DATABASE = 24
_LEAST_OF_WORD = 5
_TYPES_OF_DATABASE = ("float32", "float64", "bfloat16", "int64", "complex64", "bool")
SAMPLES, REFUSED = "samples of torch", "error inputs of torch"


def samples_of_torch(operator: str, device: str) -> list[Sample]:
    """Its calls in samples of the database, and what it must refuse. Raises what the import raises."""
    op = torch_operator(operator)
    plain = plain_form(op)
    base = plain._schema.name.rpartition("::")[2]
    entries = [entry for entry in database() if base in (entry.aten_name, entry.name)]
    found = _of_entries(entries, plain, device)
    if not found:
        entries = _callers().get(plain._schema.name, [])
        found = _of_entries(entries, plain, device)
    if not found:
        words = {word for word in base.split("_") if len(word) >= _LEAST_OF_WORD}
        entries = [entry for entry in database() if words & set(re.split("[._]", entry.name))]
        found = _of_entries(entries, plain, device)
    forms = [form for sample in found for form in in_form_of(op, sample)]
    return [*forms, *(sample for entry in entries for sample in _errors_of_entry(entry, device))]


def _of_entries(entries: list[Any], op: Any, device: str) -> list[Sample]:
    """Of calls without gradients; some operators are called only with them, not only backward ones."""
    import torch

    def found(grad: bool) -> list[Sample]:
        return [
            sample
            for entry in entries
            for name in _TYPES_OF_DATABASE
            if (dtype := getattr(torch, name)) in entry.supported_dtypes(device)
            for sample in _of_entry(entry, op, device, dtype, name, grad and dtype.is_floating_point)
        ]

    return ([] if "_backward" in op._schema.name else found(False)) or found(True)


def database() -> list[Any]:
    """The entries (OpInfo). Raises what their import raises."""
    import importlib
    import sys
    import types
    import unittest

    if "expecttest" not in sys.modules:
        try:
            importlib.import_module("expecttest")
        except ImportError:  # torch asks for it, and the database needs nothing of it
            stand_in = types.ModuleType("expecttest")
            vars(stand_in)["TestCase"] = unittest.TestCase
            sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


@lru_cache(maxsize=1)
def _callers() -> dict[str, list[Any]]:
    """By operator the entries that call it, also in backward passes: six seconds."""
    import torch

    found: dict[str, list[Any]] = defaultdict(list)
    for entry in database():
        if torch.float32 in entry.dtypes:
            sample = next(iter(entry.sample_inputs("cpu", torch.float32, requires_grad=True)), None)
            calls = seen_calls(entry.op, [sample.input, *sample.args], sample.kwargs) if sample else []
            for name in dict.fromkeys(op._schema.name for op, _ in calls):
                found[name].append(entry)
    return found


def seen_calls(
    function: Callable[..., Any], positional: list[Any], named: dict[str, Any]
) -> list[tuple[Any, Operands]]:
    """The operators that it calls, forward and backward, with copies of their arguments."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[tuple[Any, Operands]] = []

    class Seeing(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found.append((func, _copied((list(args), kwargs or {}))))
            return func(*args, **(kwargs or {}))

    try:
        with Seeing():
            results = [one for one in tensors_in(function(*positional, **named)) if one.requires_grad]
            if results:
                torch.autograd.backward(results, [torch.randn_like(one) for one in results])
    except Exception:  # whatever an operator raises: calls less
        pass
    return found


def _copied(operands: Operands) -> Operands:
    return with_tensors(operands, lambda tensors: [one.detach().clone() for one in tensors])


def _of_entry(entry: Any, op: Any, device: str, dtype: Any, name: str, grad: bool) -> Iterator[Sample]:
    import torch

    torch.manual_seed(0)
    samples = list(entry.sample_inputs(device, dtype, requires_grad=grad))
    for place in _spread([_form(sample) for sample in samples]):
        sample = samples[place]
        calls = seen_calls(entry.op, [sample.input, *sample.args], sample.kwargs)
        of = [operands for called, operands in calls if called is op]
        for operands in of[:1]:
            title = f"{entry.name}, {name}, sample {place}"
            yield Sample(SAMPLES, title, lambda operands=operands: _drawn(operands), op)  # type: ignore[misc]


def _form(sample: Any) -> str:
    """Which arguments it has, with flags and words: samples often take turns with them."""
    given = [*enumerate(sample.args), *sorted(sample.kwargs.items())]
    return str([(name, value if isinstance(value, (bool, str)) else type(value)) for name, value in given])


def _spread(forms: list[str]) -> list[int]:
    """Places at equal distances, then the first, middle and last of each other form: some may be empty."""
    step = max(1, math.ceil(len(forms) / _MOST_OF_DATABASE))
    chosen = [*range(0, len(forms), step)]
    known = {forms[place] for place in chosen}
    others: dict[str, list[int]] = defaultdict(list)
    for place, form in enumerate(forms):
        if form not in known:
            others[form].append(place)
    ends = {places[n] for places in others.values() for n in (0, len(places) // 2, -1)}
    return [*chosen, *sorted(ends)[:_MOST_OF_DATABASE]]


def _drawn(operands: Operands) -> Operands:
    """A copy whose values are other ones by torch's seed, and still such that the operator takes them."""
    import torch

    factor = 1 - float(torch.rand(())) / 2
    return with_tensors(
        operands,
        lambda tensors: [one * factor if one.is_floating_point() else one.clone() for one in tensors],
    )


def _errors_of_entry(entry: Any, device: str) -> Iterator[Sample]:
    if entry.error_inputs_func is None:
        return
    for place, given in enumerate(list(entry.error_inputs(device))):
        sample = given.sample_input

        def make(sample: Any = sample) -> Operands:
            return [sample.input, *sample.args], dict(sample.kwargs)

        yield Sample(REFUSED, f"{entry.name}, error input {place}", make, entry.op)
