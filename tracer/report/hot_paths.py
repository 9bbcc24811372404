"""The hottest dispatch paths of a trace, and how sections name them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis.inputs_text import signature_texts
from tracer.analysis.paths import calls_and_time
from tracer.analysis.runtime_survey import Steps
from tracer.report.cells import code
from tracer.report.reading import Reading
from tracer.report.text import count, duration
from tracer.trace.tables.schema import HOP_KINDS

NAME_WIDTH = 64
"""Characters of a kernel's name in a heading or a table"""
_INPUTS = 4


@dataclass(frozen=True)
class SourceCalls:
    source: str | None
    called_from: str | None
    backward_node: str | None
    calls: int


@dataclass(frozen=True)
class InputCalls:
    """Calls with the same inputs. Times in ns.

    source, backward_node   of most of them
    lines                   how many lines called
    """

    signature: int | None
    calls: int
    total_ns: int
    median_ns: int
    cost_ns: int
    source: str | None
    backward_node: str | None
    lines: int
    gpu_ns: int = 0


@dataclass(frozen=True)
class Path:
    """One dispatch path; `nodes` are rows of trees.fold over all its calls. Times in ns.

    cost_ns     what its calls took in the steady steps: the sum over its inputs of median x calls
    once_ns     what first calls took that took much longer than the others: those are in no other number
    once_calls  how many these are, at most one in a process
    unfinished  how many of its calls had not finished
    """

    op: str
    key: str
    hops: int
    calls: int
    total_ns: int
    median_ns: int
    longest_ns: int
    cost_ns: int
    once_calls: int
    once_ns: int
    share: float
    sources: list[SourceCalls]
    inputs: list[InputCalls]
    nodes: pl.DataFrame
    gpu_ns: int = 0
    unfinished: int = 0


@dataclass(frozen=True)
class Paths:
    """`paths` are the hottest of `fitting`, which fit `patterns`; `among`: how many there are without these.

    compiler    outermost op calls that torch.compile made and that are left out, and their time in ns
    `details` has the texts about calls and GPU activities, by the ids that nodes name.
    """

    paths: list[Path]
    patterns: tuple[str, ...]
    steady: bool
    compiler: tuple[int, int]
    fitting: int
    among: int
    steps: Steps
    has_cuda: bool
    signatures: pl.DataFrame
    details: dict[int, str]

    @property
    def costliest_inputs(self) -> list[InputCalls]:
        """Of each path the calls with the inputs that cost most; where none is steady, that took most."""
        return [max(path.inputs, key=lambda calls: (calls.cost_ns, calls.total_ns)) for path in self.paths]


def hottest_of(reading: Reading) -> Paths:
    """The paths that a report shows."""
    whole_ns = calls_and_time(reading.paths_of_part)[1]
    return Paths(
        paths=_paths(reading, whole_ns),
        patterns=tuple(reading.patterns),
        steady=reading.steady,
        compiler=reading.left_to_compiler,
        fitting=len(reading.chosen_paths),
        among=len(reading.paths_of_part),
        steps=reading.steps,
        has_cuda=reading.has_cuda,
        signatures=reading.trace.signatures,
        details=reading.links.details,
    )


def compiler_text(left_out: tuple[int, int]) -> str:
    """How many op calls of torch.compile a section leaves out, with their time in ns; nothing if none."""
    calls, ns = left_out
    if not calls:
        return ""
    return (
        f"Left out: {count(calls, 'outermost op call')} ({duration(ns)}) that torch.compile made while it "
        "compiled. `--compiler` shows them too."
    )


def near_equal(paths: list[Path]) -> list[list[Path]]:
    """Paths with the same hops and the same library functions, together; the hottest of each first.

    They differ in what no hop shows: the kernels that a library chose for a dtype or a size.
    """
    groups: dict[tuple[Any, ...], list[Path]] = {}
    for path in paths:
        steps = path.nodes.filter(path.nodes["kind"].cast(pl.String).is_in([*HOP_KINDS, "library"]))
        key = tuple(map(str, steps.select("level", "op", "key", "kind").rows()))
        groups.setdefault(key, []).append(path)
    return list(groups.values())


def inputs_text(path: Path, data: Paths) -> str:
    """`64x64 f32, 64x64 f32` (3 calls); ...: the most frequent inputs first."""
    texts = signature_texts(data.signatures, [calls.signature for calls in path.inputs])
    calls: Counter[str] = Counter()  # signatures may differ in what their text leaves out
    for inputs in path.inputs:
        if inputs.signature in texts:
            calls[texts[inputs.signature]] += inputs.calls
    words = [f"{code(text)} ({count(number, 'call')})" for text, number in calls.most_common(_INPUTS)]
    if len(calls) > _INPUTS:
        words.append(count(len(calls) - _INPUTS, "more input"))
    return "; ".join(words)


def _paths(reading: Reading, whole_ns: int) -> list[Path]:
    tables = reading.hottest
    return [
        Path(
            op=path["op"],
            key=path["key"],
            hops=path["hops"],
            calls=path["calls"],
            total_ns=path["total_ns"],
            median_ns=path["median_ns"],
            longest_ns=path["longest_ns"],
            cost_ns=path["cost_ns"],
            once_calls=path["once_calls"],
            once_ns=path["once_ns"],
            share=path["total_ns"] / whole_ns if whole_ns else 0.0,
            sources=[SourceCalls(**row) for row in _of_path(tables.sources, path["path"]).to_dicts()],
            inputs=[InputCalls(**row) for row in _of_path(tables.inputs, path["path"]).to_dicts()],
            nodes=_of_path(tables.nodes, path["path"]),
            gpu_ns=path.get("gpu_ns", 0),
            unfinished=path["unfinished"],
        )
        for path in tables.paths.iter_rows(named=True)
    ]


def _of_path(table: pl.DataFrame, path: int) -> pl.DataFrame:
    return table.filter(pl.col("path") == path).drop("path")
