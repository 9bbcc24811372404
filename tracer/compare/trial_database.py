"""Calls for trials from torch's operator database, with which torch tests its operators."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tracer.compare.trial_samples import Operands, Sample

_MOST_OF_DATABASE = 24
_TYPES_OF_DATABASE = ("float32", "float64", "bfloat16", "int64", "complex64", "bool")


def samples_of_torch(operator: str, device: str) -> list[Sample]:
    """Samples and error inputs of torch's operator database. Raises what its import raises."""
    import torch

    base = operator.partition("::")[2]
    known = [entry for entry in database() if base in (entry.aten_name, entry.name)]
    found: list[Sample] = []
    for entry in known:
        kinds = entry.supported_dtypes(device)
        for name in _TYPES_OF_DATABASE:
            if (dtype := getattr(torch, name)) in kinds:
                found += _of_entry(entry, device, dtype, name)
        found += _errors_of_entry(entry, device)
    return found


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


def _of_entry(entry: Any, device: str, dtype: Any, name: str) -> Iterator[Sample]:
    import torch

    torch.manual_seed(0)
    number = len(list(entry.sample_inputs(device, dtype, requires_grad=False)))
    step = max(1, math.ceil(number / _MOST_OF_DATABASE))
    for place in range(0, number, step):

        def make(place: int = place) -> Operands:
            samples = entry.sample_inputs(device, dtype, requires_grad=False)
            sample = next(islice(samples, place, None))
            return [sample.input, *sample.args], dict(sample.kwargs)

        yield Sample("samples of torch", f"{entry.name}, {name}, sample {place}", make, entry.op)


def _errors_of_entry(entry: Any, device: str) -> Iterator[Sample]:
    if entry.error_inputs_func is None:
        return
    for place, given in enumerate(list(entry.error_inputs(device))):
        sample = given.sample_input

        def make(sample: Any = sample) -> Operands:
            return [sample.input, *sample.args], dict(sample.kwargs)

        yield Sample("error inputs of torch", f"{entry.name}, error input {place}", make, entry.op)
