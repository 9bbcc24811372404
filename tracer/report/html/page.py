"""A report as one HTML page that opens offline."""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from tracer.analysis.call_tree import call_tree
from tracer.base.visible import LONGEST, visible
from tracer.report.html.chains import packed_tree
from tracer.report.html.frame import MOST_ROWS, SHARED_SCRIPTS, environment_of, render_frame
from tracer.report.html.sections import about, parts
from tracer.report.html.timeline import packed_timeline
from tracer.report.kernel_tables import KernelTables
from tracer.report.page import Page, percent
from tracer.report.reading import Reading
from tracer.report.roofline import Roofline, rooflines
from tracer.report.step_tables import parts_of
from tracer.report.svg.roofline import KINDS, roofline_body
from tracer.report.text import unbroken

_SCRIPTS = (*SHARED_SCRIPTS, "icicle.js", "tracks.js", "timeline.js", "main.js")


def render_html(reading: Reading) -> str:
    """The page, with one newline at its end. Its tables have more rows than they show at first."""
    reading = replace(reading, rows=reading.rows or MOST_ROWS)
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
        environment=visible(environment_of(reading.trace), LONGEST),
        verdict=visible(str(certificate["verdict"]), LONGEST),
        complete=bool(certificate.get("complete")),
        about=Markup(about(reading, page)),
        of_a_step=of_a_step,
        percent=percent,
        unbroken=unbroken,
        rooflines=drawn,
        roofline_body=roofline_body,
        roofline_kinds=KINDS,
    )


def _rooflines(reading: Reading) -> list[Roofline]:
    return rooflines(KernelTables.of(reading)) if reading.has_cuda and reading.only != "cuda" else []
