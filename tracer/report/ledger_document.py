"""A ledger as a document for `--json`, and as a page of markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tracer.analysis.ledger import Ledger
from tracer.report.cells import item, prose, table
from tracer.report.ledger_text import TITLES, below, cells, heading, layer_name


def ledger_document(path: str, found: Ledger, of: str) -> dict[str, Any]:
    """Plain dictionaries; times in nanoseconds a step, null where they are not known."""
    return {
        "trace": path,
        "process": found.process,
        "steps": list(found.steps),
        "of": of or None,
        "wall_ns": found.wall_ns,
        "bare_ns": found.bare_ns,
        "own_ns": found.own_ns,
        "rest_ns": found.rest_ns,
        "hops": found.hops,
        "other_threads_ns": found.other_threads_ns,
        "rows": [
            {
                "layer": row.layer.kind,
                "key": None if row.layer.path else row.layer.name or None,
                "path": list(row.layer.path) or None,
                "name": layer_name(row.layer).strip(),
                "ns": row.ns,
                "times": row.times,
            }
            for row in found.rows
        ],
        "ns_per_hop": None
        if found.own is None
        else {
            "outermost": found.own.outermost.ns,
            "inner": found.own.inner.ns,
            "timed_events": found.own.timed,
        },
        "unknown": list(found.unknown),
        "gpu": None if found.gpu is None else asdict(found.gpu),
    }


def ledger_page(name: str, found: Ledger, of: str, steady: Sequence[int] | None) -> str:
    """A page of markdown."""
    deep = any(row.layer.path for row in found.rows)
    rows = [[_indented(row[0]) if deep else prose(row[0].strip()), *row[1:]] for row in cells(found)]
    notes = "\n".join(item(prose(line)) for line in below(found, of))
    title = f"# Ledger of {prose(name)}"
    return "\n\n".join([title, prose(heading(found, of, steady)), table(TITLES, rows), notes]) + "\n"


def _indented(name: str) -> str:
    """Markdown takes spaces at the beginning of a cell away."""
    text = name.lstrip()
    return "&nbsp;" * (len(name) - len(text)) + prose(text)
