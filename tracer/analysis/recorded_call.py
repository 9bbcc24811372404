"""One op call of a trace: what it was called with, as far as that was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.source_lines import SourceLines
from tracer.trace.tables.schema import MOST_TENSORS

if TYPE_CHECKING:
    from tracer.trace import Trace


@dataclass(frozen=True)
class RecordedTensor:
    """`keys`: the tensor's dispatch keys, highest first.

    `memory`: which memory of the call it shares with others, and the bytes before its first element there,
    as JSON has them; None: it shares none, or that was not recorded.
    """

    shape: tuple[int, ...] | None
    stride: tuple[int, ...] | None
    dtype: str | None
    device: str | None
    requires_grad: bool
    layout: str | None
    keys: tuple[str, ...]
    memory: Any = None

    @property
    def undefined(self) -> bool:
        """A Tensor() of C++, which Python shows as None."""
        return self.device is None and not self.keys


@dataclass(frozen=True)
class RecordedCall:
    """`hop`: the hop that was asked for; `call`: the hop at which its op call began, which is replayed.

    tensors   by argument position; None if the arguments were not recorded (--no-shapes)
    scalars   by argument position: what JSON has, {"device": ...}, {"tensors": [...]}, {"unknown": ...};
              None if they were not recorded
    result    the hash of the values of what it returned; None if they were not recorded or not read
    """

    hop: int
    call: int
    op: str
    key: str
    runs_at: str
    line: str
    text: str
    torch: str | None
    tensors: dict[int, list[RecordedTensor]] | None
    scalars: dict[int, Any] | None
    cut: bool = field(default=False)
    """The signature names as many tensors as it may: the call may have had more"""
    result: int | None = None


class NoSuchHopError(LookupError):
    """No hop has this id."""


def _runs_at(hops: pl.DataFrame, call: int) -> str:
    """The key at which a call began.

    Of a factory that is the key below BackendSelect, if nothing in it ran at autograd: torch.randn calls
    below autograd, and torch.ops.aten.randn does not.
    """
    key = str(hops["key"][call])
    if key != "BackendSelect":
        return key
    inside, below = {call}, ""
    for row in range(call + 1, len(hops)):
        if hops["parent"][row] not in inside:
            break
        inside.add(row)
        if str(hops["key"][row]).startswith(("Autograd", "ADInplaceOrView")):
            return key
        if not below and hops["kind"][row] == "redispatch" and hops["parent"][row] == call:
            below = str(hops["key"][row])
    return below or key


def recorded_call(trace: Trace, hop: int) -> RecordedCall:
    """The op call that a hop belongs to. Raises NoSuchHopError."""
    if not 0 <= hop < len(trace.hops):
        raise NoSuchHopError(f"no hop {hop}; the trace has hops 0 to {len(trace.hops) - 1}")
    call = hop
    while trace.hops["kind"][call] == "redispatch" and trace.hops["parent"][call] is not None:
        call = trace.hops["parent"][call]
    row = trace.hops.row(call, named=True)
    sources = SourceLines.of(trace)
    source = row["source"] or ""
    tensors = None if row["inputs"] is None else _tensors(trace.signatures, row["inputs"])
    options = trace.environment.get("options") or {}
    # Collectives have their process group and flags without --values.
    groups = trace.scalars.filter(pl.col("value").str.starts_with('{"process_group"'))["id"]
    with_scalars = bool(len(trace.scalars.filter(~pl.col("id").is_in(groups.implode()))))
    if tensors is None and options.get("shapes") and not with_scalars:
        tensors = {}  # the call has no tensor
    scalars = dict(_scalars(trace.scalars, row["inputs"])) if with_scalars else None
    return RecordedCall(
        hop=hop,
        call=call,
        op=str(row["op"]),
        key=str(row["key"]),
        runs_at=_runs_at(trace.hops, call),
        line=sources.name(source) if source else "",
        text=sources.text(source),
        torch=trace.environment.get("torch"),
        tensors=None if tensors is None else _with_memory(tensors, scalars or {}),
        scalars=scalars,
        cut=tensors is not None and sum(map(len, tensors.values())) >= MOST_TENSORS,
        result=result_of(trace, call),
    )


def result_of(trace: Trace, hop: int) -> int | None:
    """The hash of the values that an op call returned."""
    found = trace.values.filter(pl.col("hop") == hop)["hash"]
    return None if found.is_empty() else found[0]


def _with_memory(
    tensors: dict[int, list[RecordedTensor]], scalars: dict[int, Any]
) -> dict[int, list[RecordedTensor]]:
    """With the memory that each shares: `{"memory": [0, 64]}` of a tensor, a list of such of a list."""
    found = dict(tensors)
    for position, value in scalars.items():
        if not isinstance(value, dict) or "memory" not in value or position not in found:
            continue
        memory = value["memory"] if "tensors" in value else [value["memory"]]
        if isinstance(memory, list) and len(memory) == len(found[position]):
            pairs = zip(found[position], memory, strict=True)
            found[position] = [replace(tensor, memory=one) for tensor, one in pairs]
    return found


def _tensors(signatures: pl.DataFrame, number: int) -> dict[int, list[RecordedTensor]]:
    found: dict[int, list[RecordedTensor]] = {}
    for row in signatures.filter(pl.col("id") == number).iter_rows(named=True):
        tensor = RecordedTensor(
            shape=None if row["shape"] is None else tuple(row["shape"]),
            stride=None if row["stride"] is None else tuple(row["stride"]),
            dtype=row["dtype"] and str(row["dtype"]),
            device=row["device"] and str(row["device"]),
            requires_grad=bool(row["requires_grad"]),
            layout=row["layout"] and str(row["layout"]),
            keys=tuple(filter(None, str(row["keys"] or "").split(", "))),
        )
        found.setdefault(row["position"], []).append(tensor)
    return found


def _scalars(table: pl.DataFrame, number: int | None) -> Iterator[tuple[int, Any]]:
    if number is None:
        return
    for position, text in table.filter(pl.col("id") == number).select("position", "value").iter_rows():
        try:
            yield position, json.loads(text)
        except (ValueError, RecursionError):  # of a damaged trace
            yield position, {"unknown": "value that cannot be read"}
