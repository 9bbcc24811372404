"""The tree of calls of a page: numbers by node, and the texts that the nodes name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.around import module_chains
from tracer.analysis.call_tree import CallTree
from tracer.analysis.device_kernels import table_name
from tracer.analysis.gaps import gaps, gaps_of_recording
from tracer.analysis.inputs_text import signature_texts
from tracer.analysis.source_lines import SourceLines
from tracer.analysis.step_times import waits
from tracer.base.visible import LONGEST, visible
from tracer.report.handed_over import with_handed_over
from tracer.report.html.columns import of_table, packed
from tracer.report.reading import Reading
from tracer.report.step_tables import with_lines
from tracer.report.text import package_relative

if TYPE_CHECKING:
    from tracer.trace import Trace

MOST_GAPS = 300
"""Pairs of lines around time outside ops that have a bar of their own"""
_OF_GAPS = ("total_ns", "gaps", "longest_ns")


def packed_tree(reading: Reading, tree: CallTree) -> str:
    """The text for the page: columns `nodes.*`, `labels.*`, `origins.*`; `meta` has the texts by number."""
    texts = Texts()
    sources = SourceLines.of(reading.trace)
    labels = pl.DataFrame(
        {
            "kind": texts.of(tree.labels["kind"]),
            "op": texts.of(tree.labels["op"]),
            "key": texts.of(tree.labels["key"]),
            "kernel": texts.of(tree.labels["kernel"], package_relative),
            "registered_at": texts.of(tree.labels["registered_at"], package_relative),
            "override": texts.of(with_handed_over(tree.labels, reading.trace.certificate)["override"]),
            "table_name": texts.of(tree.labels["op"], table_name),
            "waits": tree.labels["op"].is_in(_waits(reading)).fill_null(False),
        },
    )
    origins = pl.DataFrame(
        {
            "module": texts.of(tree.origins["module"]),
            "line": texts.of(tree.origins["line"], sources.name),
            "said": texts.of(tree.origins["line"], sources.text),
            "called_from": texts.of(tree.origins["called_from"], sources.name),
            "backward": texts.of(tree.origins["backward_node"]),
            "phase": texts.of(tree.origins["part"]),
        },
    )
    wanted = tree.nodes["inputs"].unique().to_list()
    inputs = signature_texts(reading.trace.signatures, wanted) | reading.links.details
    known = {number: texts.number(inputs[number]) for number in wanted if number in inputs}
    nodes = tree.nodes.with_columns(
        pl.col("inputs").replace_strict(known, default=-1, return_dtype=pl.Int64)
        if known
        else pl.lit(-1).alias("inputs")
    )
    stacks = {
        number: [sources.frame(visible(frame, LONGEST)) for frame in frames]
        for number, frames in _frames(reading, tree)
    }
    columns = of_table("nodes", nodes) | of_table("labels", labels) | of_table("origins", origins)
    meta = {"texts": texts.texts, "stacks": stacks, "said": _said(reading)}
    return packed(
        columns, meta | {"modules": modules_of(reading.trace), "outside": _outside(reading, sources)}
    )


def modules_of(trace: Trace) -> dict[str, list[str]]:
    """Each module that is in others: all of them, the outermost first."""
    _, chains = module_chains(trace)
    return {
        visible(chain[0], LONGEST): [visible(name, LONGEST) for name in reversed(chain)]
        for chain in sorted(chains)
        if len(chain) > 1
    }


def _outside(reading: Reading, sources: SourceLines) -> list[list[Any]]:
    """The time outside ops by the lines around it: both lines, ns, gaps, the longest (ns), their text."""
    if reading.patterns:
        return []
    found = gaps(reading.trace) if reading.steady else gaps_of_recording(reading.trace)
    table = found.table
    rows = [
        [
            visible(f"{row['before']} -> {row['after']}", LONGEST),
            *(row[name] for name in _OF_GAPS),
            visible(row["text"], LONGEST),
        ]
        for row in with_lines(table.head(MOST_GAPS).iter_rows(named=True), sources)
    ]
    if len(rest := table[MOST_GAPS:]):
        sums = rest.select(pl.col("total_ns", "gaps").sum(), pl.col("longest_ns").max())
        rows.append([f"{len(rest):,} more pairs of lines", *sums.row(0), ""])
    return rows


def _waits(reading: Reading) -> list[str]:
    """The API functions that wait for the GPU."""
    trace = reading.trace
    calls = [waits(trace, process) for process in trace.api_calls["process"].unique()]
    return pl.concat(calls)["name"].drop_nulls().unique().to_list() if calls else []


def _frames(reading: Reading, tree: CallTree) -> list[tuple[int, list[str]]]:
    """The Python stacks of outermost calls: id, frames from the inside out."""
    wanted = tree.nodes.filter(pl.col("parent") < 0)["stack"].drop_nulls().unique().to_list()
    frames = reading.trace.python_stacks["frames"]
    return [(number, frames[number].to_list()) for number in wanted]


def _said(reading: Reading) -> list[str]:
    """What the tree leaves out, in sentences."""
    said = ["Only calls in steady steps."] if reading.steady else []
    return said + [f"Only paths with {', '.join(map(visible, reading.patterns))}."] * bool(reading.patterns)


class Texts:
    """Numbers for texts, the same for equal ones; names as a reader may see them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(visible(text, LONGEST))
        return self._numbers[text]

    def of(self, column: pl.Series, shown: Any = str) -> list[int]:
        """The number of each text of a column; -1 for none."""
        return [-1 if text is None else self.number(shown(text)) for text in column]
