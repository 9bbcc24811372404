"""What `tracer.load` returns: the tables of a trace, and methods that show them."""

from __future__ import annotations

import html
import os
from dataclasses import fields
from pathlib import Path

import polars as pl

from tracer import trace as reader
from tracer.analysis import flat as flat_tables
from tracer.analysis import links, ranges, trees
from tracer.analysis.groups import GROUPS, SORTS
from tracer.analysis.source_lines import SourceLines
from tracer.analysis.step_times import step_times
from tracer.interactive.shown import Markdown, Page, Table, Text
from tracer.report.flat import flat_lines
from tracer.report.handed_over import with_handed_over
from tracer.report.tree import group_line, plain, title_line, tree_lines

_SHOWN = 8
"""Rows of each table of a trace that a notebook shows"""


class Trace(reader.Trace):
    """tracer.trace.Trace, with `tree`, `flat`, `steps_table`, `report` and `page`."""

    def tree(self, *, step: int | None = None, depth: int | None = None, limit: int = 60) -> Text:
        """The dispatch tree, as `tracer tree` prints it: at most `limit` lines (0: all), `depth` levels.

        Raises ValueError if no hop is in the step.
        """
        rows = links.combine(self).rows
        if step is not None:
            rows = rows.filter(pl.col("step") == step)
            if rows.is_empty():
                raise ValueError(f"no hop is in step {step}")
        forest = trees.Forest.of(rows)
        shown = rows if depth is None else rows.filter(forest.depth < depth)
        shown = shown.with_columns(
            source=trees.own_or_forward_line(), range=ranges.headings(shown, self.ranges)
        )
        groups, nodes = trees.fold(trees.Forest.of(shown), trees.OF_A_GROUP)
        cut = with_handed_over(nodes.head(limit) if limit else nodes, self.certificate)
        heads = {row["group"]: row for row in groups.iter_rows(named=True)}
        sources = SourceLines.of(self)
        lines = [plain(title_line(cut))]
        details = links.combine(self).details
        group = None
        for number, line in zip(cut["group"], tree_lines(cut, self.signatures, details=details), strict=True):
            if number != group:
                group = number
                lines.append(plain(group_line(heads[number], sources)))
            lines.append(plain(line))
        if len(nodes) > len(cut):
            lines.append(f"Shown: {len(cut):,} of {len(nodes):,} lines. More: limit=0.")
        return Text("\n".join(lines))

    def flat(self, by: str = "hop", sort: str = "self", limit: int = 40) -> Table:
        """A row per op, key and kernel function, or per `by`: op, key, source, module, kernel or range.

        Columns are those of tracer.analysis.flat.flat_table. `sort`: by self, total, calls, hops or median.
        It is shown as `tracer top` shows it, at most `limit` rows (0: all). Raises ValueError for another
        `by` or `sort`.
        """
        for name, value, known in (("by", by, [*GROUPS]), ("sort", sort, [*SORTS])):
            if value not in known:
                raise ValueError(f"{name}={value!r}: choose {', '.join(known[:-1])} or {known[-1]}")
        table = flat_tables.ranked(flat_tables.flat_table(self, by=by), sort)
        whole_ns, sources = flat_tables.whole_ns(self), SourceLines.of(self)
        shown = flat_lines(table, by, sort=sort, whole_ns=whole_ns, limit=limit, sources=sources)
        lines = [plain(line) for line in shown]
        if limit and len(table) > limit:
            lines.append(f"Shown: {limit:,} of {len(table):,} rows. More: limit=0.")
        return Table.of(table, "\n".join(lines))

    def steps_table(self) -> pl.DataFrame:
        """Where the wall time of each step went, in ns: see tracer.analysis.step_times.step_times."""
        return step_times(self)

    def report(self, *sections: str) -> Markdown:
        """The report in markdown, or only these sections of it (`paths`, `steps`, `ops`, ...).

        Raises ValueError for a section that there is not.
        """
        from tracer.report.reading import Reading
        from tracer.report.report import render
        from tracer.report.sections import NAMED

        for name in sections:
            if name not in NAMED:
                raise ValueError(f"{name!r} is not a section; choose {', '.join(NAMED)}")
        return Markdown(render(Reading(self, Path(self.path).name, sections=sections)))

    def page(self) -> Page:
        """The page of `tracer report --html`: some hundred KB, in a notebook as in a file."""
        from tracer.report.html.page import render_html  # Jinja and the sections take a tenth of a second
        from tracer.report.reading import Reading

        return Page(render_html(Reading(self, Path(self.path).name)))

    def _repr_html_(self) -> str:
        """Its verdict, and the lines and ops that took the time: some KB."""
        name, verdict = html.escape(Path(self.path).name), html.escape(str(self.certificate["verdict"]))
        tables = [self.flat(by, limit=_SHOWN)._repr_html_() for by in ("source", "op")]
        more = (
            "More: <code>.tree()</code>, <code>.flat()</code>, <code>.report()</code>, <code>.page()</code>"
        )
        return f"<p><b>{name}</b>: {verdict}</p>{''.join(tables)}<p>{more}</p>"


def load(path: str | os.PathLike[str], *, step: int | None = None) -> Trace:
    """Reads a trace file, as tracer.trace.load does, and raises what that raises."""
    read = reader.load(path, step=step)
    return Trace(**{field.name: getattr(read, field.name) for field in fields(read)})
