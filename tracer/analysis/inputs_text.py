"""How the inputs of calls read: `64x64 f32, 64 f32`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import polars as pl

from tracer.trace.tables.schema import MOST_TENSORS

_LONG_RUN = 4
_DTYPES = {"complex": "c", "float": "f", "uint": "u", "int": "i"}


def signature_texts(signatures: pl.DataFrame, ids: Iterable[int | None]) -> dict[int, str]:
    """The tensors of each signature in `ids`, as `64x64 f32, 64 f32`, by id; `...` marks a cut."""
    wanted = {number for number in ids if number is not None}
    rows = signatures.filter(pl.col("id").cast(pl.Int64).is_in(list(wanted))).sort("id", "position")
    texts = {}
    for number, group in groupby(rows.iter_rows(named=True), key=lambda row: row["id"]):
        tensors = list(group)
        devices = {tensor["device"] for tensor in tensors if _knows_device(tensor)}
        runs = groupby(_tensor(tensor, len(devices) > 1) for tensor in tensors)
        texts[number] = ", ".join(_run(text, len(list(run))) for text, run in runs)
        texts[number] += ", ..." if len(tensors) >= MOST_TENSORS else ""
    return texts


def _run(text: str, length: int) -> str:
    """A list of many like tensors (35 states of a GRU) must not fill the line."""
    return ", ".join([text] * length) if length < _LONG_RUN else f"{length} of {text}"


def _tensor(tensor: dict[str, Any], with_device: bool) -> str:
    shape, dtype, layout = tensor["shape"], tensor["dtype"], tensor["layout"]
    if shape is None and dtype is None:
        return "undefined"
    size = "?" if shape is None else "x".join(map(str, shape)) or "scalar"
    parts = [size, _dtype(str(dtype)) if dtype else "?"]
    if layout and not str(layout).endswith("strided"):
        parts.append(str(layout).removeprefix("torch."))
    if with_device and _knows_device(tensor):
        parts.append(str(tensor["device"]))
    return " ".join(parts)


def _knows_device(tensor: dict[str, Any]) -> bool:
    # Where the shape is not read the device is not either: what is there is a default.
    return tensor["shape"] is not None and bool(tensor["device"])


def _dtype(name: str) -> str:
    name = name.removeprefix("torch.")
    if name == "bfloat16":
        return "bf16"
    for long, short in _DTYPES.items():
        if name.startswith(long) and name[len(long) :].isdigit():
            return short + name[len(long) :]
    return name
