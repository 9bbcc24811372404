"""Renders a report as GitHub markdown. Decides how things read, never what is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tracer.report.mermaid import flowchart
from tracer.report.model import Path, Report, SourceCalls, Survey
from tracer.report.text import count, duration, signature_texts, source_line
from tracer.report.tree import plain, tree_lines

_PADDED = 44
_MS_FROM_NS = 10_000_000
_HOP_LINES = 60
_SOURCES = 6
_INPUTS = 4
_CHAIN = 6


def render(report: Report) -> str:
    """The report as markdown, with one newline at its end."""
    environment = Environment(
        loader=PackageLoader("tracer.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.globals.update(_Page(report).helpers())
    text = environment.get_template("report.md.j2").render(report=report)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def code(text: object) -> str:
    """A code span that shows `text` as it is, also in a cell and with backticks in it."""
    words = " ".join(str(text).split())
    ticks = "`" * (max((len(run) for run in re.findall("`+", words)), default=0) + 1)
    pad = " " if words.startswith("`") or words.endswith("`") else ""
    return f"{ticks}{pad}{words}{pad}{ticks}" if words else ""


def prose(text: object) -> str:
    """`text` on one line, with nothing in it that markdown or HTML would read as its own."""
    words = " ".join(str(text).split())
    return re.sub(r"[\\`*\[\]<>~]|(?<!\w)_|_(?!\w)", lambda match: "\\" + match[0], words)


def table(titles: list[str], rows: Iterable[list[str]]) -> str:
    """A table; titles that end in a colon stand over right-aligned columns.

    Cells are padded where a column is narrow, so that the source reads as a table too.
    """
    right = [title.endswith(":") for title in titles]
    cells = [[title.rstrip(":") for title in titles]]
    cells += [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(titles))]
    widths = [width if width <= _PADDED else 3 for width in widths]
    rule = ["-" * (w - 1) + ":" if r else "-" * w for w, r in zip(widths, right, strict=True)]
    lines = [
        " | ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        for row in [cells[0], rule, *cells[1:]]
    ]
    return "\n".join(f"| {line} |" for line in lines)


class _Page:
    """What the template calls, for one report."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._folder = report.environment.get("cwd")

    def helpers(self) -> dict[str, Callable[..., str]]:
        return {
            "code": code,
            "prose": prose,
            "duration": duration,
            "chain": flowchart,
            "count": count,
            "facts": self.facts,
            "certificate": self.certificate,
            "reasons": self.reasons,
            "overview": self.overview,
            "origin": self.origin,
            "inputs": self.inputs,
            "hops": self.hops,
            "survey": self.survey,
        }

    def facts(self) -> str:
        facts = self._report.environment
        options = facts.get("options") or {}
        off = [name for name, on in options.items() if on is False]
        shown = {
            "command": code(" ".join(map(str, facts.get("argv") or []))),
            "started": prose(facts.get("started_at") or ""),
            "torch": prose(facts.get("torch") or ""),
            "CUDA of torch": prose(facts.get("torch_cuda") or "none") if facts.get("torch") else "",
            "python": prose(facts.get("python") or ""),
            "tracer": prose(facts.get("tracer") or ""),
            "processor": prose(facts.get("cpu") or ""),
            "cores": prose(facts.get("cores") or ""),
            "platform": prose(facts.get("platform") or ""),
            "not recorded": prose(", ".join(off)),
        }
        return table(["", ""], [[name, value] for name, value in shown.items() if value])

    def certificate(self) -> str:
        rows = []
        for name, value in self._report.certificate.items():
            shown = _counted(value)
            if name not in ("verdict", "why") and shown is not None:
                rows.append([name.replace("_", " "), shown])
        return table(["captured or dropped", "count:"], rows)

    def reasons(self) -> str:
        """A list of what lies behind the counts: one item a reason, at most ten a count."""
        lines = [f"- {prose(sentence)}" for sentence in self._report.certificate.get("why", [])]
        for name, value in self._report.certificate.items():
            items = value if isinstance(value, list) and name != "why" else []
            for item in items[:10]:
                text = prose(item) if not isinstance(item, dict) else _reason(item)
                lines.append(f"- {name.replace('_', ' ')}: {text}")
            if len(items) > 10:
                lines.append(f"- {name.replace('_', ' ')}: {len(items) - 10:,} more")
        return "\n".join(lines)

    def overview(self) -> str:
        """A table of the hottest paths, each with the chain of hops that the time goes to."""
        paths = self._report.paths
        unit = "ms" if paths and paths[0].total_ns >= _MS_FROM_NS else "us"
        median_unit = "ms" if any(path.median_ns >= _MS_FROM_NS for path in paths) else "us"
        rows = [
            [
                str(number),
                _chain(path),
                f"{path.calls:,}",
                f"{path.hops:,}",
                _time(path.total_ns, unit),
                self._share(path.total_ns),
                _time(path.median_ns, median_unit),
            ]
            for number, path in enumerate(paths, 1)
        ]
        return table(
            ["path:", "where the time goes", "calls:", "hops a call:", "total:", "share:", "median:"], rows
        )

    def origin(self, path: Path) -> str:
        """The source lines that made the path's calls: a list, the most frequent first."""
        lines = [
            f"- {self._line(calls.source)}{self._backward(calls)}: {count(calls.calls, 'call')}"
            for calls in path.sources[:_SOURCES]
        ]
        if more := path.sources[_SOURCES:]:
            lines.append(f"- {count(len(more), 'more line')}: {count(sum(c.calls for c in more), 'call')}")
        return "\n".join(lines)

    def inputs(self, path: Path) -> str:
        texts = signature_texts(self._report.signatures, [calls.signature for calls in path.inputs])
        known = [(texts[c.signature], c.calls) for c in path.inputs if c.signature in texts]
        words = [f"{code(text)} ({count(calls, 'call')})" for text, calls in known[:_INPUTS]]
        if len(known) > _INPUTS:
            words.append(f"{len(known) - _INPUTS:,} other shapes")
        return "; ".join(words)

    def hops(self, path: Path) -> str:
        nodes = path.nodes.head(_HOP_LINES)
        lines = [plain(line) for line in tree_lines(nodes, self._report.signatures)]
        if more := len(path.nodes) - len(nodes):
            lines.append(f"{more:,} more lines: tracer tree {self._report.name} --limit 0")
        return "\n".join(lines)

    def survey(self, name: str) -> str:
        survey: Survey = getattr(self._report, name)
        columns = _COLUMNS[name]
        units = {key: _unit(survey.rows, key) for _, key, kind in columns if kind == "time"}
        write: dict[str, Callable[[dict[str, Any], str], str]] = {
            "time": lambda row, key: _time(row[key], units[key]),
            "count": lambda row, key: f"{row[key]:,}",
            "share": lambda row, key: self._share(row[key]),
            "code": lambda row, key: code(row[key] or ""),
            "line": lambda row, key: self._line(row[key]),
            "codes": lambda row, key: ", ".join(map(code, row[key])),
            "text": lambda row, key: prose("" if row[key] is None else row[key]),
            "caught": lambda row, key: f"caught in {code(row[key])}" if row[key] else "reached Python",
            "nested": lambda row, key: "-> " * row["depth"] + code(row[key]),
        }
        rows = [[write[kind](row, key) for _, key, kind in columns] for row in survey.rows]
        left_out = f"\n\n{survey.left_out:,} more rows left out." if survey.left_out else ""
        return table([title for title, _, _ in columns], rows) + left_out

    def _line(self, source: str | None) -> str:
        return code(source_line(source, self._folder)) if source else "no Python line"

    def _backward(self, calls: SourceCalls) -> str:
        if not calls.backward_node:
            return ""
        run = f", run from {self._line(calls.called_from)}" if calls.called_from else ""
        return f", backward in {code(calls.backward_node)}{run}"

    def _share(self, ns: int) -> str:
        whole = self._report.totals.in_ops_ns
        return f"{100 * ns / whole:.1f} %" if whole else ""


_COLUMNS = {
    "ops": [
        ("op", "op", "code"),
        ("calls:", "calls", "count"),
        ("hops:", "hops", "count"),
        ("total:", "total_ns", "time"),
        ("self:", "self_ns", "time"),
        ("self share:", "self_ns", "share"),
        ("median call:", "median_ns", "time"),
    ],
    "keys": [
        ("key", "key", "code"),
        ("ops:", "ops", "count"),
        ("hops:", "hops", "count"),
        ("self:", "self_ns", "time"),
        ("self share:", "self_ns", "share"),
        ("median self:", "median_self_ns", "time"),
    ],
    "sources": [
        ("line", "source", "line"),
        ("calls:", "calls", "count"),
        ("hops:", "hops", "count"),
        ("forward:", "total_ns", "time"),
        ("backward calls:", "backward_calls", "count"),
        ("backward hops:", "backward_hops", "count"),
        ("backward:", "backward_ns", "time"),
    ],
    "backward": [
        ("forward line", "source", "line"),
        ("forward op", "forward_op", "code"),
        ("node", "backward_node", "code"),
        ("calls", "ops", "codes"),
        ("op calls:", "calls", "count"),
        ("hops:", "hops", "count"),
        ("total:", "total_ns", "time"),
    ],
    "threads": [
        ("process:", "process", "text"),
        ("thread:", "thread", "text"),
        ("name", "name", "text"),
        ("calls:", "calls", "count"),
        ("hops:", "hops", "count"),
        ("in ops:", "total_ns", "time"),
        ("first:", "first_ns", "time"),
        ("last:", "last_ns", "time"),
    ],
    "open_hops": [
        ("process:", "process", "text"),
        ("thread:", "thread", "text"),
        ("op", "op", "nested"),
        ("key", "key", "code"),
        ("kernel", "kernel", "code"),
        ("line", "source", "line"),
        ("open for:", "open_ns", "time"),
    ],
    "exceptions": [
        ("raised in", "op", "code"),
        ("key", "key", "code"),
        ("kernel", "kernel", "code"),
        ("line", "source", "line"),
        ("left", "left", "code"),
        ("then", "caught_in", "caught"),
        ("times:", "count", "count"),
    ],
}


def _chain(path: Path) -> str:
    """Where the time goes: redispatches, and calls that take longer than the hop's own work."""
    nodes, level = path.nodes.to_dicts(), 0
    chain: list[dict[str, Any]] = []
    while below := _children(nodes, level):
        place, node = max(below, key=lambda child: child[1]["total_ns"])
        if chain and node["kind"] == "call" and node["total_ns"] <= _own_ns(chain[-1]):
            break
        chain.append(node)
        nodes, level = nodes[place + 1 :], level + 1
    words = [code(f"{node['op']} [{node['key']}]") for node in chain]
    if len(words) > _CHAIN:
        words[2:-2] = [f"... {len(words) - 4:,} more ..."]
    kernel = chain[-1]["kernel"]
    return " -> ".join(words) + (f" {code(kernel)}" if kernel else "")


def _own_ns(node: dict[str, Any]) -> int:
    return int(node["median_self_ns"] * node["members"])


def _children(nodes: list[dict[str, Any]], level: int) -> list[tuple[int, dict[str, Any]]]:
    """The nodes of `level` with their places, up to where the enclosing hop ends."""
    children = []
    for place, node in enumerate(nodes):
        if node["level"] < level:
            break
        if node["level"] == level:
            children.append((place, node))
    return children


def _counted(value: Any) -> str | None:
    """How a certificate's value reads as a count; None where it is not one."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, dict) and value and all(isinstance(v, bool) for v in value.values()):
        return f"{sum(value.values())} of {len(value)}"
    return f"{len(value):,}" if isinstance(value, list) else None


def _reason(item: dict[str, Any]) -> str:
    op, key = item.get("op"), item.get("key")
    head = f"{code(f'{op} [{key}]' if key else op)} " if op else ""
    return head + prose(", ".join(str(v) for k, v in item.items() if k not in ("op", "key")))


def _unit(rows: list[dict[str, Any]], key: str) -> str:
    return "ms" if max((row[key] or 0 for row in rows), default=0) >= _MS_FROM_NS else "us"


def _time(ns: int | None, unit: str) -> str:
    if ns is None:
        return ""
    return f"{ns / 1e6:,.3f} ms" if unit == "ms" else f"{ns / 1e3:,.2f} us"
