"""The hottest dispatch paths one by one: lines, inputs, diagram and hops."""

from __future__ import annotations

from tracer.analysis.device_kernels import table_name
from tracer.report.cells import code, fenced
from tracer.report.chain import chain_nodes
from tracer.report.hot_paths import (
    NAME_WIDTH,
    Path,
    Paths,
    SourceCalls,
    hottest_of,
    inputs_text,
    near_equal,
)
from tracer.report.mermaid import flowchart
from tracer.report.page import Page, details, paragraphs, percent
from tracer.report.reading import Reading
from tracer.report.text import count, duration, shorten_kernel
from tracer.report.tree import plain, title_line, tree_lines
from tracer.trace.tables.schema import GPU_KINDS

title = "Path by path"
level = 2

_HOP_LINES = 60
_SOURCES = 6
_STANDS_OUT = 10
_LEGEND = """\
In the diagrams a thick arrow is a redispatch to the next key, a thin arrow a call of another op. "3 x" is
the number of identical subtrees. A box has the op, its dispatch key and the median of its total time, then
the kernel function. Colours: blue autograd, green other dispatch keys, yellow libraries, orange CUDA calls,
violet the GPU. Large diagrams show only the slowest boxes; a box without arrows says how many were left
out."""
_LEGEND_OF_CUDA = """\
Thin arrows also lead to library and API calls, dotted ones to what the GPU did. API calls that only read
state are left out (`tracer tree --api` shows them)."""


def wanted(reading: Reading) -> bool:
    return len(reading.chosen_paths) > 0 and reading.paths > 0


def data(reading: Reading) -> Paths:
    return hottest_of(reading)


def markdown(data: Paths, page: Page) -> str:
    groups = near_equal(data.paths)
    shown = groups[: page.details]
    legend = _LEGEND + (f"\n{_LEGEND_OF_CUDA}" if data.has_cuda else "")
    more = len(groups) - len(shown)
    return paragraphs(
        legend if shown else "",
        *(_path(number, group, data, page) for number, group in enumerate(shown, 1)),
        f"{count(more, 'more path')} of the table above: `--details {len(groups)}` shows all."
        if more
        else "",
    )


def _path(number: int, group: list[Path], data: Paths, page: Page) -> str:
    path, *others = group
    inputs = inputs_text(path, data)
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
        ends = " -> ".join(code(shorten_kernel(table_name(name), NAME_WIDTH)) for name in kernels[-1:])
        inputs = inputs_text(path, data)
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


def _hops(path: Path, data: Paths, page: Page) -> str:
    nodes = path.nodes.head(_HOP_LINES)
    lines = [plain(title_line(nodes))]
    lines += [plain(line) for line in tree_lines(nodes, data.signatures, details=data.details)]
    if more := len(path.nodes) - len(nodes):
        lines.append(f"{count(more, 'more line')}: tracer tree {page.name} --limit 0")
    return fenced(lines)


def _title(path: Path) -> str:
    """The op, and where the chain leads: the library function, and the API call or GPU activity."""
    chain = chain_nodes(path.nodes)
    words = [f"{path.op} [{path.key}]"]
    words += [node["op"] for node in chain if node["kind"] == "library"][:1]
    words += [table_name(node["op"]) for node in chain[-1:] if node["kind"] in (*GPU_KINDS, "api")]
    return " -> ".join(code(shorten_kernel(word, NAME_WIDTH)) for word in words)


def _cost(path: Path) -> str:
    """Calls and times; the longest call too if it is far longer; first calls that loaded code apart."""
    words = [count(path.calls, "call"), f"{duration(path.total_ns)} in total"]
    words.append(f"median {duration(path.median_ns)}")
    if path.longest_ns > _STANDS_OUT * path.median_ns:
        words.append(f"longest {duration(path.longest_ns)}")
    if path.once_calls:
        words.append(f"once {duration(path.once_ns)}")
    return ", ".join(words)
