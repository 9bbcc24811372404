"""A markdown page as one HTML file without scripts, in the style of the report's page."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from tracer.base.package import VERSION
from tracer.base.visible import LONGEST, visible
from tracer.report.html.sections import to_html


def render_document(title: str, text: str) -> str:
    """`text` is markdown whose names are escaped (report.cells); it ends in a newline, as the page does."""
    body = to_html(text)
    for tag in ("table", "pre"):  # what may be scrolled sideways has the focus for it; names are escaped
        body = body.replace(f"<{tag}>", f'<{tag} tabindex="0">')
    return _template().render(
        title=visible(title, LONGEST), version=VERSION, style=Markup(asset("page.css")), body=Markup(body)
    )


def asset(name: str) -> str:
    return resources.files("tracer.report.html").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(asset("document.html.j2"))
