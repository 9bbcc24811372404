"""The hottest dispatch paths: each with its lines, inputs, diagram and hops."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis.device_kernels import table_name
from tracer.analysis.links import GPU_KINDS, HOP_KINDS
from tracer.analysis.runtime_survey import Steps
from tracer.report.cells import code, fenced, table, wrapped
from tracer.report.chain import chain_nodes
from tracer.report.mermaid import flowchart
from tracer.report.page import Page, details, in_unit, paragraphs, percent, unit_of
from tracer.report.reading import Reading
from tracer.report.text import (
    count,
    duration,
    package_relative,
    shorten_kernel,
    signature_texts,
    steady_steps,
)
from tracer.report.tree import arguments_text, plain, time_text, tree_lines

title = "Hottest paths"
level = 2

_HOP_LINES = 60
_SOURCES = 6
_INPUTS = 4
_CHAIN = 6
_STANDS_OUT = 10
_NAME = 64
_LEGEND = """\
In the diagrams a thick arrow is a redispatch to the next key, a thin arrow a call of another op. "3 x" is
the number of identical subtrees. A box has the op and its dispatch key, the kernel function, where that was
registered, and the median of the total time. Large diagrams show only the slowest boxes; a box without
arrows says how many were left out."""
_LEGEND_OF_CUDA = """\
Thin arrows also lead to library and API calls, dotted ones to what the GPU did. API calls that only read
state are left out (`tracer tree --api` shows them)."""


@dataclass(frozen=True)
class SourceCalls:
    source: str | None
    called_from: str | None
    backward_node: str | None
    calls: int


@dataclass(frozen=True)
class InputCalls:
    signature: int | None
    calls: int


@dataclass(frozen=True)
class Path:
    """One dispatch path; `nodes` are rows of trees.fold over all its calls. Times in ns."""

    op: str
    key: str
    hops: int
    calls: int
    total_ns: int
    median_ns: int
    longest_ns: int
    share: float
    sources: list[SourceCalls]
    inputs: list[InputCalls]
    nodes: pl.DataFrame
    gpu_ns: int = 0


@dataclass(frozen=True)
class Paths:
    """`paths` are the hottest of `fitting`, which fit `patterns`; `among`: how many there are without these.

    `details` has the texts about calls and GPU activities, by the ids that nodes name.
    """

    paths: list[Path]
    patterns: tuple[str, ...]
    steady: bool
    fitting: int
    among: int
    steps: Steps
    has_cuda: bool
    signatures: pl.DataFrame
    details: dict[int, str]


def wanted(reading: Reading) -> bool:
    return reading.only is None


def data(reading: Reading) -> Paths:
    whole_ns = int(reading.paths_of_part["total_ns"].sum())
    return Paths(
        paths=_paths(reading, whole_ns),
        patterns=tuple(reading.patterns),
        steady=reading.steady,
        fitting=len(reading.chosen_paths),
        among=len(reading.paths_of_part),
        steps=reading.steps,
        has_cuda=reading.has_cuda,
        signatures=reading.trace.signatures,
        details=reading.links.details,
    )


def markdown(data: Paths, page: Page) -> str:
    if not data.paths:
        return _which(data)
    legend = _LEGEND + (f"\n{_LEGEND_OF_CUDA}" if data.has_cuda else "")
    return paragraphs(
        _which(data),
        _overview(data),
        legend,
        *(_path(number, group, data, page) for number, group in enumerate(near_equal(data.paths), 1)),
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
            share=path["total_ns"] / whole_ns if whole_ns else 0.0,
            sources=[SourceCalls(**row) for row in _of_path(tables.sources, path["path"]).to_dicts()],
            inputs=[InputCalls(**row) for row in _of_path(tables.inputs, path["path"]).to_dicts()],
            nodes=_of_path(tables.nodes, path["path"]),
            gpu_ns=path.get("gpu_ns", 0),
        )
        for path in tables.paths.iter_rows(named=True)
    ]


def _of_path(table: pl.DataFrame, path: int) -> pl.DataFrame:
    return table.filter(pl.col("path") == path).drop("path")


def _which(data: Paths) -> str:
    """Which paths follow."""
    if not (data.among or data.patterns or data.steady):
        return "No op call was recorded."
    steady = ""
    if data.steady:
        steady = f" in {steady_steps(data.steps)}" if data.steps.steady else " in steady steps"
    if data.fitting and not data.paths:
        return f"{count(data.fitting, 'dispatch path')}{steady}; none is shown."
    words = " or ".join(map(code, data.patterns))
    if not data.paths:
        return wrapped(f"No dispatch path{f' with {words} in it' if words else ''} was recorded{steady}.")
    text = (
        "Outermost op calls that ran the same hops make one dispatch path. Below: the "
        f"{len(data.paths)} hottest of {data.fitting:,}"
    )
    text += f" that have {words} in them, of {data.among:,} in all" if words else ""
    share = percent(sum(path.share for path in data.paths))
    return wrapped(f"{text}{steady}, with {share} of the time in ops{' there' if steady else ''}.")


def _overview(data: Paths) -> str:
    """A row for each path, with the chain of hops and calls that the time goes to."""
    unit = unit_of(path.total_ns for path in data.paths)
    median_unit = unit_of(path.median_ns for path in data.paths)
    gpu_unit = unit_of(path.gpu_ns for path in data.paths)
    rows = [
        [
            str(number),
            in_unit(path.total_ns, unit),
            percent(path.share),
            *([in_unit(path.gpu_ns, gpu_unit)] if data.has_cuda else []),
            f"{path.calls:,}",
            in_unit(path.median_ns, median_unit),
            f"{path.hops:,}",
            _chain(path, data.details),
        ]
        for number, group in enumerate(near_equal(data.paths), 1)
        for path in group
    ]
    titles = ["path:", "total:", "share:", *(["on GPU:"] if data.has_cuda else [])]
    titles += ["calls:", "median:", "hops per call:", "where the time goes"]
    return table(titles, rows)


def _path(number: int, group: list[Path], data: Paths, page: Page) -> str:
    path, *others = group
    inputs = _inputs(path, data)
    share = percent(sum(path.share for path in group))
    return paragraphs(
        f"### {number}. {_title(path)}: {share} of the time in ops",
        f"{_cost(path)}; {count(path.hops, 'hop')} per call.",
        _origin(path, page),
        f"Inputs: {inputs}." if inputs else "",
        fenced(flowchart(path.nodes).split("\n"), "mermaid"),
        details("Each hop with its median time", _hops(path, data, page)) if len(path.nodes) > 1 else "",
        _others(others, data),
    )


def _others(others: list[Path], data: Paths) -> str:
    """A line for each path that has the same hops: what differs."""
    if not others:
        return ""
    lines = []
    for path in others:
        kernels = [node["op"] for node in chain_nodes(path.nodes) if node["kind"] in GPU_KINDS]
        ends = " -> ".join(code(shorten_kernel(table_name(name), _NAME)) for name in kernels[-1:])
        inputs = _inputs(path, data)
        words = [ends or "other calls", _cost(path), f"inputs {inputs}" if inputs else ""]
        lines.append(f"- {', '.join(filter(None, words))}")
    return "The same hops, with other kernels or other CUDA calls:\n\n" + "\n".join(lines)


def _origin(path: Path, page: Page) -> str:
    """The source lines that made the path's calls: a list, the most frequent first."""
    lines = [
        f"- {page.line(calls.source)}{_backward(calls, page)}: {count(calls.calls, 'call')}"
        for calls in path.sources[:_SOURCES]
    ]
    if more := path.sources[_SOURCES:]:
        lines.append(f"- {count(len(more), 'more line')}: {count(sum(c.calls for c in more), 'call')}")
    return "\n".join(lines)


def _backward(calls: SourceCalls, page: Page) -> str:
    if not calls.backward_node:
        return ""
    elsewhere = calls.called_from and calls.called_from != calls.source
    run = f", run from {page.line(calls.called_from)}" if elsewhere else ""
    return f", backward in {code(calls.backward_node)}{run}"


def _inputs(path: Path, data: Paths) -> str:
    texts = signature_texts(data.signatures, [calls.signature for calls in path.inputs])
    calls: Counter[str] = Counter()  # signatures may differ in what their text leaves out
    for inputs in path.inputs:
        if inputs.signature in texts:
            calls[texts[inputs.signature]] += inputs.calls
    words = [f"{code(text)} ({count(number, 'call')})" for text, number in calls.most_common(_INPUTS)]
    if len(calls) > _INPUTS:
        words.append(count(len(calls) - _INPUTS, "more input"))
    return "; ".join(words)


def _hops(path: Path, data: Paths, page: Page) -> str:
    nodes = path.nodes.head(_HOP_LINES)
    lines = [plain(line) for line in tree_lines(nodes, data.signatures, details=data.details)]
    if more := len(path.nodes) - len(nodes):
        lines.append(f"{count(more, 'more line')}: tracer tree {page.name} --limit 0")
    return fenced(lines)


def _title(path: Path) -> str:
    """The op, and where the chain leads: the library function, and the API call or GPU activity."""
    chain = chain_nodes(path.nodes)
    words = [f"{path.op} [{path.key}]"]
    words += [node["op"] for node in chain if node["kind"] == "library"][:1]
    words += [table_name(node["op"]) for node in chain[-1:] if node["kind"] in (*GPU_KINDS, "api")]
    return " -> ".join(code(shorten_kernel(word, _NAME)) for word in words)


def _cost(path: Path) -> str:
    """Calls and times; the longest call too if it is far longer, as a first one that loads code is."""
    words = [count(path.calls, "call"), f"{duration(path.total_ns)} in total"]
    words.append(f"median {duration(path.median_ns)}")
    if path.longest_ns > _STANDS_OUT * path.median_ns:
        words.append(f"longest {duration(path.longest_ns)}")
    return ", ".join(words)


def _chain(path: Path, texts: dict[int, str]) -> str:
    """The chain as text: hops with their keys, then calls with their arguments and the device kernel."""
    chain = chain_nodes(path.nodes)
    hops = [node for node in chain if node["kind"] in HOP_KINDS]
    words = [code(f"{node['op']} [{node['key']}]") for node in hops]
    if len(words) > _CHAIN:
        words[2:-2] = [f"... {len(words) - 4:,} more ..."]
    kernel = package_relative(hops[-1]["kernel"] or "")
    links = [code(_link(node, texts)) for node in chain[len(hops) :]]
    time = "" if chain[-1]["kind"] in HOP_KINDS else f" {time_text(chain[-1])}"
    return " -> ".join([*words[:-1], words[-1] + (f" {code(kernel)}" if kernel else ""), *links]) + time


def _link(node: dict[str, Any], texts: dict[int, str]) -> str:
    """`cublasSgemm_v2(N, N, m=64, n=64, k=64)` of a call, the name of what the GPU did."""
    arguments = "" if node["kind"] in GPU_KINDS else arguments_text(node, texts)
    return shorten_kernel(table_name(node["op"]), _NAME) + arguments
