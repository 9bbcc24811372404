"""Lines of a dispatch tree: what each part of a line says, fitted to a width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from tracer.analysis.compiled import COMPILED_KINDS
from tracer.analysis.inputs_text import signature_texts
from tracer.analysis.links import UNKNOWN_KERNEL
from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.base.visible import LONGEST, visible
from tracer.report.text import (
    count,
    duration,
    package_relative,
    shorten,
    shorten_kernel,
)
from tracer.trace.tables.schema import HOP_KINDS

Line = list[tuple[str, str]]
"""Pieces of a line: (role, text). Roles: thread, group, cost and source text of a group; id; of a hop
time, indent, count, arrow, op, key, kernel, module, inputs, override, mark; of a library or API call and
of a GPU activity time, indent, count, link or device, inputs, mark."""

_SHRINKING = (
    ("text", 0),
    *(("kernel", 16), ("device", 24), ("inputs", 12), ("kernel", 0), ("inputs", 0)),
    *(("group", 12), ("module", 0), ("device", 8)),
)
_TIME = 8
"""Characters of a column of times"""
_TABLES = {
    "hops": "",
    "compiled_calls": "call ",
    "compiled_kernels": "kernel ",
    "library_calls": "lib ",
    "api_calls": "api ",
    "gpu_activities": "gpu ",
}
_HOST = (*HOP_KINDS, "library", "api", *COMPILED_KINDS)


def tree_lines(
    nodes: pl.DataFrame,
    signatures: pl.DataFrame,
    *,
    width: int | None = None,
    base: int = 0,
    details: dict[int, str] | None = None,
) -> Iterator[Line]:
    """One line for each row of `nodes` (from trees.fold), `base` levels further to the right.

    Each begins with its times in columns, for which title_line has the titles. `details` are the texts of
    rows that are no hops (links.combine). With a width the kernel name is shortened first, then the
    inputs, then the end is cut off.
    """
    wanted = nodes["signatures"].explode().unique().to_list()
    texts = signature_texts(signatures, wanted) | (details or {})
    on_gpu = _has_gpu(nodes)
    for node in nodes.iter_rows(named=True):
        line = (_hop if node["kind"] in HOP_KINDS else _link)(node, texts, base)
        yield fit([("time", _times(node, on_gpu)), *line], width)


def title_line(nodes: pl.DataFrame, width: int | None = None) -> Line:
    """The titles of the columns of tree_lines."""
    titles = ["total", "self", *["GPU"] * _has_gpu(nodes)]
    return fit([("cost", _columns(titles) + "op [key] kernel (inputs)")], width)


def _columns(cells: list[str]) -> str:
    return "".join(f"{cell:>{_TIME}}  " for cell in cells)


def _has_gpu(nodes: pl.DataFrame) -> bool:
    kinds = set(nodes["kind"].cast(pl.String).unique())
    return not kinds <= set(_HOST) or ("gpu_ns" in nodes.columns and bool((nodes["gpu_ns"] > 0).any()))


def id_texts(nodes: pl.DataFrame) -> list[str]:
    """`  17  `, `lib 3  ` for each row of `nodes` (row_ids.with_ids), all of one width; none without ids."""
    if "id" not in nodes.columns:
        return []
    texts = [
        f"{_TABLES[table]}{number}" if table else ""
        for table, number in nodes.select("table", "id").iter_rows()
    ]
    width = max(map(len, texts), default=0)
    return [f"{text:>{width}}  " for text in texts]


def group_line(group: dict[str, Any], sources: SourceLines) -> Line:
    """`train.py:41`, with the autograd node and the line that runs it for backward op calls, and its text."""
    source, called_from, node = group["source"], group["called_from"], group["backward_node"]
    words = [sources.name(source)] if source else []
    if node:
        words.append(f"backward: {node}")
    if called_from and called_from != source:
        words.append(f"(run from {sources.name(called_from)})")
    calls = [count(group["calls"], "op call")] if group["calls"] or not group.get("bare") else []
    calls += [count(group["bare"], "call") + " outside ops"] if group.get("bare") else []
    cost = f"{', '.join(calls)}, {duration(group['total_ns'])}{_gpu(group)}"
    text = sources.text(source)
    if group.get("range"):
        words.append(f"in range {group['range']}")
    return [
        ("group", " ".join(words) or NO_LINE),
        ("cost", f"  {cost}"),
        ("text", f"  {text}" if text else ""),
    ]


def stack_line(frame: str, sources: SourceLines) -> Line:
    """`train.py:41 train`: a frame further out than the one that the group is named after."""
    return [("indent", "  "), ("group", f"called from {sources.frame(frame)}")]


def module_text(module: str | None, others: int = 0) -> str:
    """` [in encoder.gru and 3 more]`."""
    return f" [in {module}{f' and {others:,} more' if others else ''}]" if module else ""


def arguments_text(node: dict[str, Any], texts: dict[int, str]) -> str:
    """`(grid 2, block 64 and 1 more)` of a library or API call; empty where nothing is known of them.

    `node` is a row of trees.fold, `texts` are Links.details, by id.
    """
    text, others = texts.get(node["signature"], ""), _other_texts(node, texts)
    several = f" and {others:,} more" if others else ""
    return f"({text}{several})" if text else ""


def time_text(node: dict[str, Any]) -> str:
    """`12.3 us`, the median of a row of trees.fold; a library call without own time says what it spans."""
    return duration(node["median_ns"]) + (" (its API calls)" if node["median_self_ns"] is None else "")


def plain(line: Line) -> str:
    return "".join(text for _, text in line)


def fit(line: Line, width: int | None) -> Line:
    """The line in at most `width` characters (None: whole, except that endless names are cut)."""
    line = [(role, visible(text, LONGEST)) for role, text in line]
    for role, least in _SHRINKING:
        over = len(plain(line)) - width if width else 0
        if over <= 0:
            break
        line = [
            (name, _cut(name, text, max(len(text) - over, least))) if name == role else (name, text)
            for name, text in line
        ]
    return line if width is None or len(plain(line)) <= width else _clip(line, width)


def _hop(node: dict[str, Any], texts: dict[int, str], base: int) -> Line:
    line = [
        ("indent", "  " * (node["level"] + base)),
        ("count", f"{node['count']:,} x " if node["count"] > 1 else ""),
        ("arrow", "-> " if node["kind"] == "redispatch" else ""),
        ("op", node["op"] or "an unknown op"),
        ("key", f" [{node['key'] or '?'}]"),
        ("kernel", f" {package_relative(node['kernel'])}" if node["kernel"] else ""),
        ("module", module_text(node["module"], (node["modules"] or 1) - 1) if not node["level"] else ""),
        ("inputs", _inputs(node, texts)),
    ]
    return line + _marks(node)


def _link(node: dict[str, Any], texts: dict[int, str], base: int) -> Line:
    """A library call, an API call, or what the GPU did."""
    on_host = node["kind"] in _HOST
    detail = texts.get(node["signature"], "")
    line = [
        ("indent", "  " * (node["level"] + base)),
        ("count", f"{node['count']:,} x " if node["count"] > 1 else ""),
        ("link" if on_host else "device", node["op"] or UNKNOWN_KERNEL),
        ("inputs", _arguments(node, texts) if on_host else f" {detail}" if detail else ""),
        ("inputs", ", its API calls" if on_host and node["median_self_ns"] is None else ""),
    ]
    return line + _marks(node)


def _arguments(node: dict[str, Any], texts: dict[int, str]) -> str:
    """`(grid 2, block 64)` of a call; of compiled code with a space before: it has no arguments."""
    text = arguments_text(node, texts)
    return f" {text}" if text and node["kind"] in COMPILED_KINDS else text


def _marks(node: dict[str, Any]) -> Line:
    left_out = [("queries", "query", "queries"), ("others", "other API call", "other API calls")]
    counts = [
        f"{node[name]:,} {one if node[name] == 1 else many}" for name, one, many in left_out if node.get(name)
    ]
    line = [("inputs", f", {', '.join(counts)}")] if counts else []
    line += [("override", f" override {node['override']}")] * bool(node.get("override"))
    marks = [name for name in ("raised", "open") if node[name]]
    return line + [("mark", " " + " ".join(marks))] * bool(marks)


def _gpu(row: dict[str, Any]) -> str:
    return f", GPU {duration(row['gpu_ns'])}" if row.get("gpu_ns") else ""


def _times(node: dict[str, Any], on_gpu: bool) -> str:
    """Total, self and GPU time of a row in columns; the last two are empty if they are unknown."""
    total = duration(node["median_ns"])
    if node["kind"] not in _HOST:
        return _columns(["", "", total])
    own = "" if node["median_self_ns"] is None else duration(node["median_self_ns"])
    return _columns([total, own, *[duration(node["gpu_ns"]) if node.get("gpu_ns") else ""] * on_gpu])


def _inputs(node: dict[str, Any], texts: dict[int, str]) -> str:
    if node["kind"] == "redispatch" or node["signature"] not in texts:
        return ""
    others = _other_texts(node, texts)
    return f" ({texts[node['signature']]})" + (f" and {count(others, 'more input')}" if others else "")


def _other_texts(node: dict[str, Any], texts: dict[int, str]) -> int:
    """How many texts the inputs of the folded calls have beyond the one that is shown.

    Signatures also differ in what their text leaves out, such as strides.
    """
    return len({texts.get(number) for number in node["signatures"]}) - 1


def _cut(role: str, text: str, width: int) -> str:
    if len(text) <= width:
        return text
    if role == "inputs":
        return f"{text[: width - 4]}...)" if width > 4 else ""
    if role in ("device", "text"):
        return shorten_kernel(text, width) if width > 3 else ""
    space = " " * text.startswith(" ")
    cut = shorten(text.lstrip(), width - len(space))
    return space + cut if cut else ""


def _clip(line: Line, width: int) -> Line:
    """The beginning of a line that is too long, with `...` at its end."""
    clipped: Line = []
    end = "..." if width > 3 else ""
    left = width - len(end)
    for role, text in line:
        clipped.append((role, text[: max(left, 0)]))
        left -= len(text)
    return [*clipped, ("cost", end)]
