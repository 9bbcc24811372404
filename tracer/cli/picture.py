"""`tracer export --to svg`: the hottest path among the chosen hops as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracer.cli.common import analysing, fail, say, say_verdict
from tracer.cli.output import check_svg, write_output
from tracer.cli.selection import Selection

if TYPE_CHECKING:
    import polars as pl

    from tracer.trace import Trace


def draw(file: Path, selection: Selection, output: Path, force: bool) -> None:
    """Draws the path that took the most time among the hops that are chosen and what is around them."""
    check_svg(output, force)
    with analysing(file, selection.step) as trace:
        from tracer.analysis import links, trees

        combined = links.combine(trace)
        forest = trees.Forest.of(combined.rows)
        matching = selection.matching(trace, combined.rows)
        kept = matching if matching.all() else forest.around(matching)
        if selection.exclude:
            kept = kept & ~forest.below(selection.excluded(combined.rows))
        _draw_hottest(trace, combined.rows.filter(kept), combined.details, output)
    say_verdict(trace)


def _draw_hottest(trace: Trace, rows: pl.DataFrame, details: dict[int, str], output: Path) -> None:
    """Draws the path that took the most time among these rows of links.combine."""
    from tracer.analysis.inputs_text import signature_texts
    from tracer.analysis.paths import hottest_paths, survey_paths
    from tracer.analysis.source_lines import SourceLines
    from tracer.analysis.trees import Forest
    from tracer.report.svg.path import path_svg
    from tracer.report.text import count, duration

    forest = Forest.of(rows)
    survey = survey_paths(forest)
    hottest = hottest_paths(forest, survey, 1)
    if hottest.paths.is_empty():
        fail("no path to draw: no hop is left of those that were recorded")
    path = hottest.paths.row(0, named=True)
    sources = SourceLines.of(trace)
    heading = []
    for row in hottest.sources.head(1).iter_rows(named=True):
        if row["source"]:
            backward = "backward of " if row["backward_node"] else ""
            heading.append(f"{backward}{sources.name(row['source'])}  {sources.text(row['source'])}".rstrip())
    said = f"{count(path['calls'], 'call')}, median {duration(path['median_ns'])}"
    signature = hottest.inputs["signature"][0] if len(hottest.inputs) else None
    texts = signature_texts(trace.signatures, [signature]) | details
    heading.append("; ".join(filter(None, (said, texts.get(signature) if signature is not None else None))))
    write_output(output, path_svg(hottest.nodes, heading))
    say(f"wrote {output}: the hottest of {count(len(survey), 'path')}")
