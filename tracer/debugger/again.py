"""Runs a recorded script again, stops at an op call of its trace, and compares what runs there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.walk import Walk
from tracer.trace import Trace, TraceError, load


@dataclass(frozen=True)
class Site:
    """One hop of a trace, and how to reach it again.

    `number`: this was the number-th run of this kernel function for the operator at the key, in its
    process. `path`: the hops that enclose it, itself first.
    """

    hop: dict[str, Any]
    number: int
    inputs: list[dict[str, Any]]
    path: list[dict[str, Any]]
    command: list[str]
    folder: str
    torch: str

    @property
    def spec(self) -> str:
        return f"{self.hop['op']} [{self.hop['key']}]"


def site(path: Path, identifier: int) -> Site:
    """The hop `identifier` of the trace at `path`. Raises DebuggerError with what to do."""
    try:
        trace = load(path)
    except TraceError as error:
        raise DebuggerError(str(error)) from None
    hops = trace.hops.with_columns(
        pl.col("op", "key", "kernel", "source", "called_from", "kind").cast(pl.String)
    )
    found = hops.filter(pl.col("id") == identifier)
    if found.is_empty():
        raise DebuggerError(
            f"{path} has no hop {identifier}; choose 0 to {len(hops) - 1}: tracer tree {path}"
        )
    hop = found.row(0, named=True)
    if hop["process"] != 0:
        raise DebuggerError(f"hop {identifier} ran in a child process; choose one of the first process")
    same = hops.filter(
        pl.col("process") == 0,
        pl.col("op") == hop["op"],
        pl.col("key") == hop["key"],
        pl.col("kernel") == hop["kernel"],
        pl.col("start_ns") <= hop["start_ns"],
    )
    environment = trace.environment
    command = environment.get("command") or environment.get("argv") or []
    if not command:
        raise DebuggerError(f"{path} does not say which command it recorded")
    return Site(
        hop=hop,
        number=len(same),
        inputs=_inputs(trace, hop["inputs"]),
        path=_path(hops, hop),
        command=[str(part) for part in command],
        folder=str(environment.get("cwd") or os.getcwd()),
        torch=str(environment.get("torch")),
    )


def stop_again(walk: Walk, wanted: Site) -> dict[str, Any] | None:
    """Runs to the hop; returns the stop, or None if it was not reached. Notes the differences."""
    torch = walk.surroundings.target.torch_version
    if torch != wanted.torch:
        walk.note(f"recorded on torch {wanted.torch}, run again on {torch}")
    walk.stop_at(wanted.spec, at=wanted.number, halt=True)
    stop = walk.go()
    if stop is None:
        walk.note(f"run diverged: {wanted.spec} did not run {wanted.number} times")
        return None
    differences = compare(wanted, stop)
    walk.note(
        f"run diverged: {'; '.join(differences)}"
        if differences
        else f"the same op call as hop {wanted.hop['id']}: kernel function, inputs and source line agree"
    )
    return stop


def compare(wanted: Site, stop: dict[str, Any]) -> list[str]:
    """The differences between the recorded hop and the stop, as sentences; [] if there are none."""
    differences = []
    kernel = wanted.hop["kernel"]
    if kernel is not None and kernel != stop["function"]:
        differences.append(f"kernel function {kernel} recorded, {stop['function']} now")
    tensors = [_comparable(tensor) for tensor in stop_tensors(stop)]
    recorded = [_comparable(tensor) for tensor in wanted.inputs]
    if wanted.hop["inputs"] is not None and tensors != recorded:
        differences.append(f"inputs {recorded} recorded, {tensors} now")
    line = wanted.hop["called_from"] or wanted.hop["source"]
    lines = [f"{file}:{number}" for file, _, number in stop["python"]]
    if line is not None and line not in lines:
        differences.append(f"called from {line} recorded, from {lines[0] if lines else 'no Python'} now")
    return differences


def stop_tensors(stop: dict[str, Any]) -> list[dict[str, Any]]:
    """The tensors among the arguments of a stop, those of lists one by one, without absent ones."""
    found = []
    for argument in stop["arguments"]:
        value = argument["value"]
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict) and "defined" in each:
                found.append(each)
    return found


def _comparable(tensor: dict[str, Any]) -> tuple[Any, ...]:
    """What trace and gdb both know of a tensor."""
    device = tensor.get("device")
    return (
        None if tensor.get("shape") is None else tuple(tensor["shape"]),
        None if tensor.get("stride") is None else tuple(tensor["stride"]),
        str(tensor["dtype"]).removeprefix("torch.") if tensor.get("dtype") else None,
        str(device) if device else None,
    )


def _inputs(trace: Trace, identifier: int | None) -> list[dict[str, Any]]:
    if identifier is None:
        return []
    rows = trace.signatures.filter(pl.col("id") == identifier).sort("position")
    return rows.with_columns(pl.col("dtype", "device", "layout").cast(pl.String)).to_dicts()


def _path(hops: pl.DataFrame, hop: dict[str, Any]) -> list[dict[str, Any]]:
    path = [hop]
    while path[-1]["parent"] is not None:
        path.append(hops.row(by_predicate=pl.col("id") == path[-1]["parent"], named=True))
    return path
