"""What trees and tables say, as documents for `--json`: plain dicts, times in nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.chain import text
from tracer.analysis.difference import Difference, Kind
from tracer.analysis.gaps import Gaps
from tracer.analysis.inputs_text import signature_texts
from tracer.analysis.lock import Lock
from tracer.analysis.lock_difference import LineChange
from tracer.analysis.memory_use import MemoryUse
from tracer.report.chain import chain_nodes
from tracer.report.decision_text import decision
from tracer.report.hot_paths import hottest_of
from tracer.report.sections import summary

if TYPE_CHECKING:
    from tracer.report.reading import Reading
    from tracer.trace import Trace

_OF_A_CHAIN = (
    "kind",
    "op",
    "key",
    "kernel",
    "override",
    "members",
    "median_ns",
    "median_self_ns",
    "gpu_total_ns",
)
_OF_A_GROUP = ("process", "thread", "source", "called_from", "backward_node", "range", "total_ns", "gpu_ns")
_OF_A_LINE = (
    *("level", "table", "id", "kind", "op", "key", "kernel", "override", "module", "source"),
    *("members", "count", "median_ns", "median_self_ns", "total_ns", "gpu_ns", "gpu_total_ns"),
    *("queries", "others", "raised", "open"),
)


def tree_document(
    trace: Trace, groups: pl.DataFrame, nodes: pl.DataFrame, details: dict[int, str], limit: int
) -> dict[str, Any]:
    """Groups and lines of a tree (trees.fold, row_ids.with_ids), at most `limit` lines (0: all).

    `group` of a line is a position in "groups", and `parent` one in "lines" (null if outermost).
    """
    shown = nodes.head(limit) if limit else nodes
    texts = signature_texts(trace.signatures, shown["signatures"].explode().unique().to_list()) | details
    numbers = {number: position for position, number in enumerate(groups["group"].to_list())}
    lines = []
    for node in shown.iter_rows(named=True):
        line = {"group": numbers[node["group"]], "parent": node["parent_node"]}
        lines.append(line | _line(node) | {"inputs": texts.get(node["signature"])})
    return {
        **_head(trace),
        "groups": [
            {name: row[name] for name in _OF_A_GROUP if name in row} | {"op_calls": row["calls"]}
            for row in groups.iter_rows(named=True)
        ],
        "lines": lines,
        "lines_left_out": len(nodes) - len(shown),
    }


def chain_lines(nodes: pl.DataFrame) -> list[dict[str, Any]]:
    """The lines of one call (trees.fold), outermost first."""
    return [_line(node) for node in nodes.iter_rows(named=True)]


def _line(node: dict[str, Any]) -> dict[str, Any]:
    return {name: node[name] for name in _OF_A_LINE if name in node}


def flat_document(trace: Trace, table: pl.DataFrame, by: str, limit: int) -> dict[str, Any]:
    """A table of analysis.flat, at most `limit` rows (0: all)."""
    shown = table.head(limit) if limit else table
    rows = [dict(row) for row in shown.iter_rows(named=True)]
    return {**_head(trace), "by": by, "rows": rows, "rows_left_out": len(table) - len(shown)}


def steps_document(
    trace: Trace, steps: pl.DataFrame, outside: Gaps, longest: pl.DataFrame, limit: int
) -> dict[str, Any]:
    """Rows of analysis.step_times, at most `limit` (0: all), and of analysis.gaps."""
    shown = steps.head(limit) if limit else steps
    return {
        **_head(trace),
        "steps": shown.to_dicts(),
        "steps_left_out": len(steps) - len(shown),
        "gaps_of": outside.of,
        "gaps_wall_ns": outside.wall_ns,
        "outside_ns": outside.outside_ns,
        "gaps": outside.table.to_dicts(),
        "longest_gaps": longest.to_dicts(),
    }


def report_document(reading: Reading) -> dict[str, Any]:
    """The hottest paths of a report and, in `look`, what "In one look" says of each, hottest first.

    `chain` has the lines from the outermost hop down to what the time goes to, outermost first.
    """
    found = hottest_of(reading)
    paths = []
    for path in found.paths:
        known = {one.name: getattr(path, one.name) for one in fields(path) if one.name != "nodes"}
        known |= {name: [asdict(one) for one in known[name]] for name in ("sources", "inputs")}
        chain = [{name: node.get(name) for name in _OF_A_CHAIN} for node in chain_nodes(path.nodes)]
        paths.append({**known, "chain": chain})
    look = [asdict(row) for row in summary.data(reading).rows] if paths else []
    return {
        **_head(reading.trace),
        "paths": paths,
        "paths_left_out": found.fitting - len(paths),
        "look": look,
    }


def lock_document(
    file: str, locked: Lock, found: Lock, changes: Sequence[LineChange], limit: int
) -> dict[str, Any]:
    """What a run did that its lock does not have, and the other way round; at most `limit` lines (0: all)."""
    shown = changes[:limit] if limit else changes
    return {
        "trace": file,
        "torch": {"lock": locked.torch, "run": found.torch},
        "lines": len(found.sections.keys() | locked.sections.keys()),
        "changes": [
            {
                **{name: getattr(change, name) for name in ("heading", "was", "only", "lines")},
                "paths": [
                    {"lock": text(path.locked or ()), "run": text(path.found or ())} for path in change.paths
                ],
            }
            for change in shown
        ],
        "changes_left_out": len(changes) - len(shown),
    }


def memory_document(trace: Trace, uses: Sequence[MemoryUse], limit: int) -> dict[str, Any]:
    """Devices of analysis.memory_use, each with at most `limit` rows of its table (0: all)."""
    devices = []
    for use in uses:
        shown = use.table.head(limit) if limit else use.table
        whole = {known.name: getattr(use, known.name) for known in fields(use) if known.name != "table"}
        devices.append({**whole, "rows": shown.to_dicts(), "rows_left_out": len(use.table) - len(shown)})
    return {**_head(trace), "devices": devices}


def difference_document(
    before: Sequence[Trace], after: Sequence[Trace], found: Difference, limit: int
) -> dict[str, Any]:
    """The runs of two sides compared (analysis.difference), at most `limit` changes of structure (0: all)."""
    changed = found.structural
    shown = changed[:limit] if limit else changed

    def side(kind: Kind | None) -> dict[str, Any] | None:
        if kind is None:
            return None
        return {
            "line": kind.line,
            "text": kind.text,
            "modules": sorted(kind.modules),
            "calls": kind.calls,
            "chains": {text(chain): count for chain, count in kind.chains.items()},
            "step_ns": kind.step_ns,
            "gpu_ns": kind.gpu_ns,
        }

    return {
        "before": _head(before[0]),
        "after": _head(after[0]),
        "traces": {"before": [_head(one) for one in before], "after": [_head(one) for one in after]},
        "runs": list(found.runs),
        "rule": "runs" if found.several else "steps",
        "pace": found.pace and {**asdict(found.pace), "uniform": found.pace.uniform},
        "decision": decision(found),
        "same_structure": not changed,
        "step": asdict(found.step),
        "usual": found.usual and asdict(found.usual),
        "gpu": asdict(found.gpu),
        "steps": list(found.steps),
        "steady": found.steady,
        "causes": found.causes,
        "remarks": found.remarks,
        "ops": {name: asdict(times) for name, times in found.ops.items()},
        "modules": {name: asdict(times) for name, times in found.modules.items()},
        "lines": [
            {"line": line, "backward": backward, **asdict(both)}
            for (line, backward), both in found.lines.items()
        ],
        "outside": [
            {"before_line": one, "after_line": other, **asdict(both)}
            for (one, other), both in found.outside.items()
        ],
        "values": found.values and asdict(found.values),
        "fusion": found.fusion and asdict(found.fusion),
        "facts": {name: list(pair) for name, pair in found.facts.items()},
        "settings": {name: list(pair) for name, pair in found.settings.items()},
        "kinds": len(found.changes),
        "changes": [
            {
                "line": change.kind.line,
                "text": change.kind.text,
                "op": change.kind.op,
                "backward": change.kind.backward,
                "what": list(change.what),
                "cause": change.cause and change.cause.text,
                **asdict(change.times),
                "before": side(change.before),
                "after": side(change.after),
            }
            for change in shown
        ],
        "changes_left_out": len(changed) - len(shown),
    }


_OF_A_FLEET = (
    *("ranks", "late", "outstanding", "mismatched", "unanswered"),
    *("messages", "stages", "collectives", "memory", "overlap", "ops", "kernels", "steps"),
)


def fleet_document(tables: Mapping[str, pl.DataFrame], limit: int) -> dict[str, Any]:
    """Tables of tracer.fleet.merge, each with at most `limit` rows, and how many are left out."""
    document: dict[str, Any] = {}
    for name in _OF_A_FLEET:
        document[name] = tables[name].head(limit).to_dicts()
        document[f"{name}_left_out"] = max(0, len(tables[name]) - limit)
    return document


def certificate_document(trace: Trace) -> dict[str, Any]:
    return {"trace": str(trace.path), **trace.certificate}


def _head(trace: Trace) -> dict[str, Any]:
    certificate = trace.certificate
    return {
        "trace": str(trace.path),
        "complete": certificate["complete"],
        "verdict": certificate["verdict"],
        "only_ops": trace.only_ops or None,
    }
