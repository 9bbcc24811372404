"""What values an operator takes, from torch's own samples of it (op_db). In a process of its own: to import
op_db takes seconds, and changes settings of torch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from tracer.base.boundary import torch_operator
from tracer.base.interpreter import helper
from tracer.compare.trial_database import database, seen_calls

_PATIENCE = 300
"""Seconds"""
_SAMPLES = 24
_PAIRS = 4
"""Neighbours that must be in order before values count as sorted"""


def fits_of(operator: str) -> dict[str, str]:
    """By argument what its values must be (see recipe.fitted); empty if op_db has no such operator here."""
    command = helper("from tracer.replay.samples import print_fits; print_fits(sys.argv[1])", operator)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        return dict(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else {}
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return {}


def print_fits(operator: str) -> None:
    """The last line of stdout is JSON."""
    seen: dict[str, list[Any]] = {}
    for name, value in _arguments(operator):
        seen.setdefault(name, []).append(value)
    print(json.dumps({name: fit for name, values in seen.items() if (fit := fit_of(values))}))


def _arguments(operator: str) -> Iterator[tuple[str, Any]]:
    """The tensors that the operator gets in samples, with the names of its arguments."""
    import torch

    for entry in database():
        if _plain(operator) not in map(_plain, (entry.name, entry.aten_name or "")):
            continue
        known = [dtype for dtype in (torch.float32, torch.float64, torch.int64) if dtype in entry.dtypes]
        for sample in islice(entry.sample_inputs("cpu", known[0]), _SAMPLES) if known else ():
            yield from _of_sample(operator, entry.op, sample)


def _of_sample(operator: str, function: Any, sample: Any) -> Iterator[tuple[str, Any]]:
    import torch

    given = [sample.input, *sample.args]
    seen = False
    for op, (positional, named) in seen_calls(function, given, sample.kwargs):
        if _plain(op._schema.name) == _plain(operator):
            names = [argument.name for argument in op._schema.arguments]
            pairs = [*zip(names, positional, strict=False), *named.items()]
            seen = True
            yield from ((name, one) for name, one in pairs if isinstance(one, torch.Tensor))
    if seen:
        return
    # It calls others, so no mode sees it.
    names = [argument.name for argument in torch_operator(operator)._schema.arguments]
    pairs = [*zip(names, given, strict=False), *sample.kwargs.items()]
    yield from ((name, one) for name, one in pairs if isinstance(one, torch.Tensor))


def _plain(name: str) -> str:
    """`cholesky` of `aten::linalg_cholesky_ex` and `linalg.cholesky`: variants take the same values."""
    name = name.rpartition("::")[2].replace("nn.functional.", "").replace("linalg.", "linalg_")
    name = name.partition(".")[0].strip("_").removeprefix("native_").removeprefix("linalg_")
    return name.removesuffix("_ex").removesuffix("_backward")


def fit_of(values: Iterable[Any]) -> str:
    """What all of these tensors are, and random ones are not."""
    known = [one for one in values if one.numel() and not one.is_sparse and one.isfinite().all()]
    if not known or any(one.dtype.is_complex or str(one.dtype) == "torch.bool" for one in known):
        return ""
    if matrix := _matrix(known):
        return matrix
    words = []
    low, high = min(float(one.min()) for one in known), max(float(one.max()) for one in known)
    if all(one.is_floating_point() for one in known):
        words += _range(low, high)
    elif low >= 1:
        words.append("least 1")
    rows = [one for one in known if one.ndim and one.shape[-1] > 1]
    pairs = sum(one.diff().numel() for one in rows)
    if pairs >= _PAIRS and all((one.diff() >= 0).all() for one in rows) and low < high:
        words.append("sorted")
        if all((one[..., 0] == 0).all() for one in rows):
            words.append("first 0")
    return ", ".join(words)


def _range(low: float, high: float) -> list[str]:
    if low >= 0:
        return [f"between {1 if low >= 1 else 0} {1 if high <= 1 else high:g}"]
    return ["between -1 1"] if low >= -1 and high <= 1 else []


def _matrix(known: list[Any]) -> str:
    import torch

    square = [one for one in known if one.ndim > 1 and one.shape[-1] == one.shape[-2] and one.shape[-1] > 1]
    if not square or any(one.ndim < 2 or not one.is_floating_point() for one in known):
        return ""
    if all(
        torch.allclose(one, one.mT, atol=1e-4) and not torch.linalg.cholesky_ex(one)[1].any()
        for one in square
    ):
        return "definite"
    if all(torch.equal(one, one.tril()) for one in square):
        return "lower"
    return "upper" if all(torch.equal(one, one.triu()) for one in square) else ""
