"""A report as one HTML page that opens offline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from markupsafe import Markup

from tracer.analysis.call_tree import call_tree
from tracer.base.visible import LONGEST, visible
from tracer.report.html.chains import packed_tree
from tracer.report.html.frame import render_frame
from tracer.report.html.sections import about, parts
from tracer.report.html.timeline import packed_timeline
from tracer.report.kernel_tables import KernelTables
from tracer.report.page import Page, percent
from tracer.report.reading import Reading
from tracer.report.roofline import Roofline, rooflines
from tracer.report.step_tables import parts_of
from tracer.report.svg.roofline import KINDS, roofline_body

_SCRIPTS = (
    "data.js",
    "tree.js",
    "chart.js",
    "icicle.js",
    "tracks.js",
    "timeline.js",
    "chain.js",
    "tables.js",
    "controls.js",
    "main.js",
)

_MOST_ROWS = 500
"""Of a table that the page holds; assets/tables.js shows the first 40 until all are asked for"""


def render_html(reading: Reading) -> str:
    """The page, with one newline at its end. Its tables have more rows than they show at first."""
    reading = replace(reading, rows=reading.rows or _MOST_ROWS)
    page = Page.of(reading)
    forest = reading.chosen_part
    tree = call_tree(forest, reading.phases)
    certificate, environment = reading.trace.certificate, reading.trace.environment
    drawn = _rooflines(reading)
    shown = list(parts(reading, page))
    of_a_step = parts_of(reading.step_times) if reading.only is None else None
    pictures = [("time", "Where time goes"), ("timeline", "Timeline")]
    return render_frame(
        "page.html.j2",
        _SCRIPTS,
        name=reading.name,
        title=reading.name,
        pictures=pictures + [("roofline", "Roofline")] * bool(drawn),
        parts=shown,
        packed={
            "tree-data": packed_tree(reading, tree),
            "timeline-data": packed_timeline(reading, forest, tree.node_of),
        },
        command=visible(" ".join(map(str, environment.get("argv") or [])), LONGEST),
        environment=visible(_environment(reading), LONGEST),
        verdict=visible(str(certificate["verdict"]), LONGEST),
        complete=bool(certificate.get("complete")),
        about=Markup(about(reading, page)),
        of_a_step=of_a_step,
        percent=percent,
        rooflines=drawn,
        roofline_body=roofline_body,
        roofline_kinds=KINDS,
    )


def _environment(reading: Reading) -> str:
    facts: dict[str, Any] = reading.trace.environment
    words = [f"torch {facts['torch']}"] if facts.get("torch") else []
    words += [f"Python {facts['python']}"] if facts.get("python") else []
    words += list(reading.devices)
    words += [str(facts["cpu"])] if facts.get("cpu") else []
    words += [str(facts["started_at"])] if facts.get("started_at") else []
    return " \u00b7 ".join(words)


def _rooflines(reading: Reading) -> list[Roofline]:
    return rooflines(KernelTables.of(reading)) if reading.has_cuda and reading.only != "cuda" else []
