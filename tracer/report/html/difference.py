"""What changed between two sides as one HTML page: both flame graphs with one scale, and the tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from markupsafe import Markup
from numpy.typing import NDArray

from tracer.analysis.call_tree import CallTree
from tracer.analysis.difference.both_calls import SIDES, both_calls, line_names
from tracer.base.visible import LONGEST, visible
from tracer.report.difference_page import answer, sections
from tracer.report.difference_text import cells, cells_of, figure_titles, short_text, verdict
from tracer.report.html.chains import Texts, modules_of
from tracer.report.html.columns import of_table, packed
from tracer.report.html.frame import MOST_ROWS, SHARED_SCRIPTS, environment_of, render_frame
from tracer.report.html.sections import Part, to_html
from tracer.report.text import package_relative, unbroken

if TYPE_CHECKING:
    from tracer.analysis.difference import Both, Change, Difference
    from tracer.analysis.difference.lines import Line
    from tracer.trace import Trace

_LONGER = (("ns", "host_ns"), ("gpu_ns", "gpu_ns"))
_ORIGINS = {"backward_node": "backward", "part": "phase"}
_OWN = (("host_ns", "own_ns"), ("gpu_ns", "own_gpu_ns"))
_NOTE = (
    "Bars are medians of what {unit} spends in each op of a line, added up. Siblings are in one order, and "
    "outermost bars begin at the same place."
)


def render_difference(
    before: Sequence[Trace], after: Sequence[Trace], found: Difference, names: tuple[str, str], limit: int
) -> str:
    """The page: pictures, times, then at most `limit` changes (0: all). Tables have 500 rows or more."""
    most_rows = limit and max(limit, MOST_ROWS)
    unit = "a step" if all(found.steps) else "the whole run"
    shown = [Part(name, title, 2, to_html(text)) for name, title, text in sections(found, limit, most_rows)]
    sides = zip(SIDES, names, (before[0], after[0]), strict=True)
    return render_frame(
        "difference.html.j2",
        [*SHARED_SCRIPTS, "difference.js"],
        name=f"{names[0]} \u2192 {names[1]}",
        title=f"{names[0]} and {names[1]}",
        pictures=[("time", "Where time goes")],
        parts=sorted(shown, key=lambda part: part.name == "structure"),
        packed={"tree-data": _packed(before, after, found, names)},
        sides=[_side(*side) for side in sides],
        verdict=unbroken(verdict(found)),
        answer=Markup(to_html(answer(found))),
        note=_NOTE.format(unit=unit),
    )


def _side(word: str, name: str, trace: Trace) -> dict[str, str]:
    command = " ".join(map(str, trace.environment.get("argv") or []))
    said = {"name": name, "command": command, "environment": environment_of(trace)}
    return {"word": word} | {key: visible(text, LONGEST) for key, text in said.items()}


def _packed(
    before: Sequence[Trace], after: Sequence[Trace], found: Difference, names: tuple[str, str]
) -> str:
    tree = both_calls(before, after, found)
    texts = Texts()
    lines = zip(line_names(found.changes), found.changes, strict=True)
    columns = _columns(tree, {name: change.kind.text for name, change in lines}, texts)
    outside = [
        [_plain(" -> ".join(lines)), [both.times.before or 0, both.times.after or 0], cells(both, found)]
        for lines, both in found.outside.items()
    ]
    meta = {
        "texts": texts.texts,
        "stacks": {},
        "said": [],
        "modules": modules_of(before[0]) | modules_of(after[0]),
        "sides": [visible(name, LONGEST) for name in names],
        "titles": [title.rstrip(":") for title in figure_titles(found)],
        "changes": [_change(change, found) for change in found.changes],
        "rows": _rows(found, tree),
        "outside": outside,
    }
    return packed(columns, meta)


def _columns(tree: CallTree, said: dict[str, str], texts: Texts) -> dict[str, NDArray[Any]]:
    """`said` has the text of each line."""
    shown = {"kernel": package_relative}
    labels = {column.name: texts.of(column, shown.get(column.name, str)) for column in tree.labels}
    origins = {column.name: texts.of(column) for column in tree.origins.rename(_ORIGINS)}
    origins["said"] = texts.of(tree.origins["line"], lambda line: said.get(line, ""))
    columns = of_table("nodes", _nodes(tree.nodes)) | of_table("labels", pl.DataFrame(labels))
    return columns | of_table("origins", pl.DataFrame(origins))


def _nodes(nodes: pl.DataFrame) -> pl.DataFrame:
    """Whole numbers. `host_ns` and `gpu_ns`, by which the heaviest chain is found, are of the longer side."""
    most = [pl.max_horizontal(f"{side}_{name}" for side in SIDES).alias(of) for name, of in _LONGER]
    outermost = pl.col("parent") < 0
    own = [pl.when(outermost).then(of).otherwise(0).alias(own) for of, own in _OWN]
    whole = pl.selectors.float().ceil().cast(pl.Int64)  # a call of some steps is one
    unknown = [pl.lit(-1).alias(name) for name in ("stack", "inputs", "inputs_count")]
    return (
        nodes.with_columns(most).with_columns(own).with_columns(whole, rows=pl.lit(0)).with_columns(unknown)
    )


def _change(change: Change, found: Difference) -> dict[str, Any]:
    """A row of the table by line: what it is found by, its cells, and the verdicts of host and GPU."""
    kind, times, gpu = change.kind, change.times.times, change.times.gpu
    name = f"{kind.line} (backward)" if kind.backward else kind.line
    figures = cells_of(change, found)
    return {
        "names": [_plain(text) for text in (name, kind.op, short_text(kind)) if text],
        "cells": figures,
        "ns": [times.before or 0, times.after or 0],
        "verdicts": [figures[3], gpu.verdict if change.before and change.after else figures[3]],
    }


def _rows(found: Difference, tree: CallTree) -> dict[str, dict[str, list[str]]]:
    """The figures of each name that is one bar: an op has one if its calls have one key."""
    outermost = tree.nodes.filter(pl.col("parent") < 0)["label"].unique()
    bars = Counter(tree.labels["op"].gather(outermost))
    ops = {name: both for name, both in found.ops.items() if bars[name] == 1}
    of_page = {"line": _lines(found), "op": ops, "module": found.modules}
    return {by: {_plain(name): cells(both, found) for name, both in of.items()} for by, of in of_page.items()}


def _lines(found: Difference) -> dict[str, Both]:
    """Of lines without a backward, and of the backward of lines: that bar is within the line's own."""
    entries: dict[str, set[Line]] = defaultdict(set)
    for name, change in zip(line_names(found.changes), found.changes, strict=True):
        named = change.before or change.kind
        entries[name].add((named.line, named.backward))
    lines = {}
    for name, keys in entries.items():
        backward = [line for line in keys if line[1]]
        if len(keys) == 1 and not backward:
            lines[name] = found.lines[keys.pop()]
        if len(backward) == 1:
            lines[f"{name} (backward)"] = found.lines[backward[0]]
    return lines


def _plain(text: str) -> str:
    """As a cell shows it."""
    return visible(" ".join(text.split()))
