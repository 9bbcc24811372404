"""The Python lines of the ops that compiled code calls: each op that Inductor kept is a node of its graph."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes.arrays import nearest, take
from tracer.trace.tables.compiled import CompiledTables, at_definitions, innermost
from tracer.trace.tables.distinct import numbered, same
from tracer.trace.tables.series import indices, named, numbers

Index = NDArray[np.int64]

_BASE = re.compile(r"(?:extern_kernels\.|torch\.ops\.\w+\.|aten\.|\w+::)?(\w+)")


def with_lines_of_nodes(hops: pl.DataFrame, compiled: CompiledTables) -> pl.DataFrame:
    """`hops` with the line that asked for it as the `source` of each op in compiled code, and no decorator's.

    The ops of a call of a region are matched by name and order to the nodes that Inductor left as ops. If
    their numbers differ, the sources stay as they are: the line of the compiled function.
    """
    calls = compiled.calls
    if calls.is_empty() or hops.is_empty():
        return hops
    places = (hops[name].cast(pl.Int64).to_numpy() for name in ("process", "thread", "start_ns"))
    call = innermost(calls, *places)
    inside = np.flatnonzero(call >= 0)
    if not len(inside):
        return hops
    hops = at_definitions(hops, call, compiled.functions, ("source", "called_from"))
    hops = _called_where_the_region_is(hops, inside, call[inside], calls)
    parent = numbers(hops["parent"])
    outermost = inside[take(call, parent[inside]) != call[inside]]
    number, names = numbered(hops["op"].gather(indices(outermost)))
    bases = [*map(_base, names), ""]
    found: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, of, op in zip(outermost.tolist(), call[outermost].tolist(), number.tolist(), strict=True):
        found[of][bases[op]].append(row)
    lines: dict[str, int] = {}
    code = np.full(len(hops), -1, np.int32)
    lines_of_ops: dict[int, dict[str, list[str | None]]] = {}  # many calls have one document
    for of, rows_of in found.items():
        document = compiled.documents[of]
        if id(document) not in lines_of_ops:
            lines_of_ops[id(document)] = _lines_of_ops(document)
        nodes = lines_of_ops[id(document)]
        for base, rows in rows_of.items():
            if len(wanted := nodes.get(base, [])) == len(rows):
                code[rows] = [lines.setdefault(line, len(lines)) if line else -1 for line in wanted]
    left = np.setdiff1d(inside, outermost)
    is_left = np.zeros(len(hops), np.bool_)
    is_left[left] = True
    code[left] = code[nearest(parent, ~is_left)[left]]  # what these ops call has their lines
    if not lines:
        return hops
    line = named(list(lines), code)
    return hops.with_columns(source=pl.when(line.is_not_null()).then(line).otherwise(pl.col("source")))


def _called_where_the_region_is(
    hops: pl.DataFrame, inside: Index, call: Index, calls: pl.DataFrame
) -> pl.DataFrame:
    """`hops` with the line that called the region as `called_from`, where that is the region's `def`.

    Code that Dynamo generated runs no line of its own. `inside`: the rows in a call, `call`: its row.
    """
    number, lines = numbered(calls["called_from"])
    at_def = same(hops["called_from"].gather(inside), calls["defined_at"].gather(call))
    code = np.full(len(hops), -1, np.int64)
    code[inside[at_def]] = number[call[at_def]]
    line = named(lines, code)
    return hops.with_columns(called_from=pl.when(line.is_not_null()).then(line).otherwise("called_from"))


def _lines_of_ops(document: dict[str, Any]) -> dict[str, list[str | None]]:
    """Of each op that a region calls, by the name its hops have too, the lines of its places in order."""
    lines: defaultdict[str, list[str | None]] = defaultdict(list)
    for name, uses in (document.get("uses") or {}).items():
        if "." not in name and "::" not in name:
            continue  # a kernel that was generated
        for use in uses or ():
            sources = [node["source"] for node in use.get("nodes") or () if node.get("source")]
            lines[_base(name)].append(sources[0] if sources else None)
    return lines


def _base(name: str) -> str:
    """`addmm` of `extern_kernels.addmm`, `aten::addmm.out` and `torch.ops.aten.addmm.default`."""
    match = _BASE.match(name)
    return match[1] if match else name
