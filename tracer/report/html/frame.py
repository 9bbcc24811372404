"""What pages with pictures share: the frame, the policy and the scripts.

Names of a trace are untrusted. Jinja escapes all text; the tables are HTML of sections.to_html, which keeps
no HTML of a name; numbers and names that are drawn come as base64. A page allows no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from tracer.analysis.cuda_tables import has_cuda
from tracer.base.package import VERSION
from tracer.base.visible import LONGEST, visible
from tracer.report.html.document import asset
from tracer.report.html.sections import Part

if TYPE_CHECKING:
    from tracer.trace import Trace

SHARED_SCRIPTS = ("data.js", "tree.js", "chart.js", "chain.js", "tables.js", "controls.js")
MOST_ROWS = 500
"""Of a table that a page holds; assets/tables.js shows the first 40 until all are asked for"""
_VERSIONS = (("torch", "torch"), ("Python", "python"))
_LIBRARY = "flame-chart.min.js"


def render_frame(
    template: str,
    scripts: Sequence[str],
    *,
    name: str,
    title: str,
    pictures: Sequence[tuple[str, str]],
    parts: Sequence[Part],
    packed: dict[str, str],
    **values: Any,
) -> str:
    """The page, with one newline at its end. `pictures`: anchors and titles; `packed`: data by id."""
    shown = [inline(asset(_LIBRARY)), _script(tuple(scripts))]
    sections = [(part.name, part.title) for part in parts if part.level == 2]
    return (
        _template(template)
        .render(
            name=visible(name, LONGEST),
            title=visible(title, LONGEST),
            version=VERSION,
            policy=_policy(shown),
            style=Markup(asset("page.css")),
            contents=[*pictures, *sections],
            named={part.name for part in parts},
            parts=[{**vars(part), "body": Markup(part.body)} for part in parts],
            licences=asset("THIRD_PARTY.txt"),
            packed=packed,
            scripts=list(map(Markup, shown)),
            **values,
        )
        .rstrip()
        + "\n"
    )


def environment_of(trace: Trace) -> str:
    """torch, Python, devices and when, of what is known."""
    facts = trace.environment
    words = [f"{name} {facts[key]}" for name, key in _VERSIONS if facts.get(key)]
    if has_cuda(trace):
        words.extend(trace.devices["name"].drop_nulls().unique(maintain_order=True))
    words += [str(facts[key]) for key in ("cpu", "started_at") if facts.get(key)]
    return " \u00b7 ".join(words)


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
def _script(parts: tuple[str, ...]) -> str:
    return inline("(() => {\n'use strict';\n" + "\n".join(map(asset, parts)) + "})();\n")


@cache
def _template(name: str) -> Any:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(asset),
    )
    return environment.get_template(name)
