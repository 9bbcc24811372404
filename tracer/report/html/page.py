"""Writes a report as one HTML page that opens offline.

Names of a trace are untrusted. Jinja escapes all text; the tables are HTML of sections.to_html, which keeps
no HTML of a name; numbers and names that are drawn come as base64. The page allows no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from tracer.analysis.call_tree import call_tree
from tracer.base.package import VERSION
from tracer.base.visible import LONGEST, visible
from tracer.report.html.chains import packed_tree
from tracer.report.html.document import asset
from tracer.report.html.sections import about, parts
from tracer.report.html.timeline import packed_timeline
from tracer.report.kernel_tables import KernelTables
from tracer.report.page import Page, percent
from tracer.report.reading import Reading
from tracer.report.roofline import Roofline, rooflines
from tracer.report.step_tables import parts_of
from tracer.report.svg.roofline import KINDS, roofline_body

_SCRIPTS = ("flame-chart.min.js", "page.js")
_PARTS_OF_PAGE = (
    "data.js",
    "tree.js",
    "chart.js",
    "icicle.js",
    "tracks.js",
    "timeline.js",
    "chain.js",
    "tables.js",
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
    scripts = [_script(name) for name in _SCRIPTS]
    anchors = [("time", "Where time goes"), ("timeline", "Timeline")] + [("roofline", "Roofline")] * bool(
        drawn
    )
    anchors += [(part.name, part.title) for part in shown if part.level == 2]
    return (
        _template()
        .render(
            name=visible(reading.name, LONGEST),
            version=VERSION,
            policy=_policy(scripts),
            style=Markup(asset("page.css")),
            command=visible(" ".join(map(str, environment.get("argv") or [])), LONGEST),
            environment=visible(_environment(reading), LONGEST),
            verdict=visible(str(certificate["verdict"]), LONGEST),
            complete=bool(certificate.get("complete")),
            named={part.name for part in shown},
            contents=anchors,
            about=Markup(about(reading, page)),
            of_a_step=of_a_step,
            percent=percent,
            rooflines=drawn,
            roofline_body=roofline_body,
            roofline_kinds=KINDS,
            parts=[{**vars(part), "body": Markup(part.body)} for part in shown],
            licences=asset("THIRD_PARTY.txt"),
            tree=packed_tree(reading, tree),
            timeline=packed_timeline(reading, forest, tree.node_of),
            scripts=[Markup(script) for script in scripts],
        )
        .rstrip()
        + "\n"
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


def _policy(scripts: list[str]) -> str:
    """No address is fetched, and only these scripts run."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    own = f"script-src {hashes}; style-src 'unsafe-inline'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def inline(script: str) -> str:
    """A script as it may be between <script> and </script>."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _script(name: str) -> str:
    if name == "page.js":
        text = "(() => {\n'use strict';\n" + "\n".join(map(asset, _PARTS_OF_PAGE)) + "})();\n"
    else:
        text = asset(name)
    return inline(text)


@cache
def _template() -> Any:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(asset("page.html.j2"))
