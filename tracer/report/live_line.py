"""Lines of a recording that is being followed."""

from __future__ import annotations

from typing import Any

from tracer.analysis.source_lines import NO_SOURCES, SourceLines
from tracer.report.text import count, duration_and_self
from tracer.report.tree import Line, fit, module_text


def live_line(
    row: dict[str, Any], texts: dict[int, str], *, width: int | None = None, sources: SourceLines = NO_SOURCES
) -> Line:
    """When a hop ended, its op and key, inputs, times, the hops in it and where it was called.

    `row` is of trace.follow.Follower.look, `texts` are those of its `inputs`; `folder` is where the
    script runs.
    """
    inputs = texts.get(row["inputs"])
    where = sources.name(row["source"]) if row["source"] else ""
    if row["backward_node"]:
        where = " ".join(filter(None, ["backward:", row["backward_node"], where and f"(run from {where})"]))
    line = [
        ("cost", f"{row['end_ns'] / 1e9:11.6f} s "),
        ("indent", "  " * row["depth"]),
        ("arrow", "-> " if row["kind"] == "redispatch" else ""),
        ("op", row["op"] or "an unknown op"),
        ("key", f" [{row['key'] or '?'}]"),
        ("inputs", f" ({inputs})" if inputs and row["kind"] != "redispatch" else ""),
        ("module", module_text(row["module"]) if not row["depth"] else ""),
        ("time", f" {duration_and_self(row['end_ns'] - row['start_ns'], row['self_ns'])}"),
        ("cost", f", {count(row['size'], 'hop')}" if not row["depth"] else ""),
        ("mark", " raised" if row["raised"] else ""),
        ("group", f"  {where}" if where else ""),
    ]
    return fit(line, width)
