"""Renders a report as GitHub markdown. Decides how things read, never what is said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tracer.analysis.device_kernels import table_name
from tracer.analysis.links import GPU_KINDS, HOP_KINDS
from tracer.report.cells import code, fenced, prose, table, wrapped
from tracer.report.chain import chain_nodes
from tracer.report.kernels_markdown import KernelsPage
from tracer.report.mermaid import flowchart
from tracer.report.model import Path, Report, SourceCalls, Survey
from tracer.report.overrides import overrides_section
from tracer.report.runtime_markdown import RuntimePage
from tracer.report.text import (
    count,
    duration,
    left_out,
    package_relative,
    shorten_kernel,
    signature_texts,
    source_line,
    steady_steps,
)
from tracer.report.tree import arguments_text, plain, time_text, tree_lines
from tracer.trace.certificate.counts import in_words

__all__ = ["code", "prose", "render", "table"]

_MS_FROM_NS = 10_000_000
_HOP_LINES = 60
_SOURCES = 6
_INPUTS = 4
_CHAIN = 6
_STANDS_OUT = 10
_COMPILE_WORKER = "torch/_inductor/compile_worker/__main__.py"
_NAME = 64


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
    if report.runtime:
        environment.globals["runtime"] = RuntimePage(report.runtime, report)
    if report.kernels:
        environment.globals["kernels"] = KernelsPage(report.kernels, report)
    template = "part.md.j2" if report.only else "report.md.j2"
    text = environment.get_template(template).render(report=report)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


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
            "about": self.about,
            "below": self.below,
            "chain": lambda nodes: fenced(flowchart(nodes).split("\n"), "mermaid"),
            "overrides": overrides_section,
            "count": count,
            "facts": self.facts,
            "certificate": self.certificate,
            "cuda_certificate": self.cuda_certificate,
            "reasons": self.reasons,
            "why": self.why,
            "overview": self.overview,
            "origin": self.origin,
            "threads": self.threads,
            "command": _command,
            "title": _title,
            "percent": _percent,
            "all_steps": self.all_steps,
            "cost": _cost,
            "inputs": self.inputs,
            "hops": self.hops,
            "survey": self.survey,
        }

    def about(self) -> str:
        """What the report shows, in a sentence or two."""
        report = self._report
        script = code(" ".join(map(str, report.environment.get("argv") or []))) or "the recorded script"
        if report.only == "cuda":
            text = (
                f"Which functions of the CUDA API PyTorch and the libraries below it called while {script} "
                "ran: how often, from where, for which ops, and what that cost the host."
            )
        elif report.only == "kernels":
            text = (
                f"Every kind of kernel that the GPU ran for {script}: which op launched it, how its work was "
                "spread over the GPU, and how far its time is from what the bandwidth of the memory and the "
                "peaks of the units allow."
            )
        else:
            down = (
                ", the library and CUDA calls below them, and the kernels on the GPU"
                if report.runtime
                else ""
            )
            text = f"What the ops of {script} became: each hop of PyTorch's dispatcher{down}, with times."
        return wrapped(text)

    def below(self) -> str:
        """Which paths follow."""
        report, chosen = self._report, self._report.chosen
        if chosen is None or not (chosen.among or chosen.patterns or chosen.steady):
            return "No op call was recorded."
        steady = ""
        if chosen.steady:
            steady = f" in {steady_steps(chosen.steps)}" if chosen.steps.steady else " in steady steps"
        if chosen.fitting and not report.paths:
            return f"{count(chosen.fitting, 'dispatch path')}{steady}, of which none is shown."
        words = " or ".join(map(code, chosen.patterns))
        if not report.paths:
            return wrapped(f"No dispatch path{f' with {words} in it' if words else ''} was recorded{steady}.")
        text = (
            "Outermost op calls that ran the same hops make one dispatch path. Below: the "
            f"{len(report.paths)} hottest of {chosen.fitting:,}"
        )
        text += f" that have {words} in them, of {chosen.among:,} in all" if words else ""
        share = _percent(sum(path.share for path in report.paths))
        return wrapped(f"{text}{steady}, with {share} of the time in ops{' there' if steady else ''}.")

    def all_steps(self) -> str:
        """What a table of everything says where other tables are of the steady steps; else nothing."""
        report = self._report
        shown_apart = report.runtime and report.runtime.steps.steady
        chosen_apart = report.chosen and report.chosen.steady and report.chosen.steps.steady
        if not (shown_apart or chosen_apart):
            return ""
        return "Of the whole recording, warm-up and what ran outside steps included."

    def threads(self) -> str:
        """How many threads and processes ran ops, and how many were recorded where those are more."""
        totals, certificate = self._report.totals, self._report.certificate
        of = in_words(totals.processes, "process", "processes")
        ran = f"{count(totals.threads, 'thread')} of {of}"
        threads, processes = certificate.get("threads", 0), certificate.get("processes", 0)
        if threads <= totals.threads and processes <= totals.processes:
            return ran
        has, was = "has" if totals.threads == 1 else "have", "was" if threads == 1 else "were"
        of = in_words(processes, "process", "processes")
        return f"{ran} {has} ops; {count(threads, 'thread')} of {of} {was} recorded"

    def facts(self) -> str:
        facts = self._report.environment
        options = facts.get("options") or {}
        off = [name for name in ("shapes", "source") if options.get(name) is False]
        shown = {
            "command": code(" ".join(map(str, facts.get("argv") or []))),
            "started": prose(facts.get("started_at") or ""),
            "torch": prose(facts.get("torch") or ""),
            "GPU": prose(", ".join(self._report.devices)),
            "CUDA of torch": prose(facts.get("torch_cuda") or "none") if facts.get("torch") else "",
            "python": prose(facts.get("python") or ""),
            "tracer": prose(facts.get("tracer") or ""),
            "processor": prose(facts.get("cpu") or ""),
            "cores": prose(facts.get("cores") or ""),
            "platform": prose(facts.get("platform") or ""),
            "not recorded": prose(", ".join(off)),
            "recorded": prose("; ".join(_narrowed(options, self._report.certificate))),
        }
        return table(["", ""], [[name, value] for name, value in shown.items() if value])

    def certificate(self) -> str:
        left_out = ["complete", "verdict", "why", "not_stopped", "outlived", "overrides", "steps", "max_size"]
        if not self._report.certificate.get("max_size"):
            left_out += _OF_A_LIMIT
        return _counts({k: v for k, v in self._report.certificate.items() if k not in left_out})

    def cuda_certificate(self) -> str:
        """What the recording says of CUDA: a sentence, the counts, and what lies behind them."""
        facts = self._report.certificate.get("cuda")
        if not isinstance(facts, dict):
            return ""
        texts = {k.replace("_", " "): v for k, v in facts.items() if isinstance(v, str) and v}
        versions = {k: v for k, v in facts.items() if k in _VERSIONS and v}
        said = [f"{prose(name)}: {prose(text)}" for name, text in texts.items()]
        said += [f"{name.replace('_', ' ')} {prose(number)}" for name, number in versions.items()]
        counted = {k: v for k, v in facts.items() if k not in versions and not isinstance(v, str)}
        has_any = any(value for value in counted.values() if value is not True)
        return "\n\n".join(
            filter(None, ("; ".join(said) + ".", _counts(counted) if has_any else "", _items(facts)))
        )

    def reasons(self) -> str:
        """A list of what lies behind the counts: one item a reason, at most ten a count."""
        return "\n".join([self.why(), _items(self._report.certificate)]).strip()

    def why(self) -> str:
        """The sentences of the certificate on what is not complete or not certain."""
        return "\n".join(f"- {prose(sentence)}" for sentence in self._report.certificate.get("why", []))

    def overview(self) -> str:
        """A table of the hottest paths, each with the chain of hops that the time goes to."""
        paths = self._report.paths
        unit = _unit(path.total_ns for path in paths)
        median_unit = _unit(path.median_ns for path in paths)
        gpu_unit = _unit(path.gpu_ns for path in paths)
        rows = [
            [
                str(number),
                _chain(path, self._report.details),
                f"{path.calls:,}",
                f"{path.hops:,}",
                _time(path.total_ns, unit),
                _percent(path.share),
                _time(path.median_ns, median_unit),
                *([_time(path.gpu_ns, gpu_unit)] if self._report.runtime else []),
            ]
            for number, path in enumerate(paths, 1)
        ]
        titles = ["path:", "where the time goes", "calls:", "hops a call:", "total:", "share:", "median:"]
        return table([*titles, "on GPU:"] if self._report.runtime else titles, rows)

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
        calls: Counter[str] = Counter()  # signatures may differ in what their text leaves out
        for inputs in path.inputs:
            if inputs.signature in texts:
                calls[texts[inputs.signature]] += inputs.calls
        words = [f"{code(text)} ({count(number, 'call')})" for text, number in calls.most_common(_INPUTS)]
        if len(calls) > _INPUTS:
            words.append(count(len(calls) - _INPUTS, "more input"))
        return "; ".join(words)

    def hops(self, path: Path) -> str:
        nodes = path.nodes.head(_HOP_LINES)
        lines = [
            plain(line) for line in tree_lines(nodes, self._report.signatures, details=self._report.details)
        ]
        if more := len(path.nodes) - len(nodes):
            lines.append(f"{count(more, 'more line')}: tracer tree {self._report.name} --limit 0")
        return fenced(lines)

    def survey(self, name: str) -> str:
        survey: Survey = getattr(self._report, name)
        columns = _COLUMNS[name]
        units = {key: _unit(row[key] for row in survey.rows) for _, key, kind in columns if kind == "time"}
        write: dict[str, Callable[[dict[str, Any], str], str]] = {
            "time": lambda row, key: _time(row[key], units[key]),
            "count": lambda row, key: f"{row[key]:,}",
            "share": lambda row, key: self._share(row[key]),
            "code": lambda row, key: code(row[key] or ""),
            "function": lambda row, key: code(package_relative(row[key] or "")),
            "line": lambda row, key: self._line(row[key]),
            "module": lambda row, key: code(row[key]) if row[key] else "no module",
            "codes": lambda row, key: ", ".join(map(code, row[key])),
            "text": lambda row, key: prose("" if row[key] is None else row[key]),
            "caught": lambda row, key: f"caught in {code(row[key])}" if row[key] else "reached Python",
            "nested": lambda row, key: "-> " * row["depth"] + code(row[key]),
        }
        rows = [[write[kind](row, key) for _, key, kind in columns] for row in survey.rows]
        return table([title for title, _, _ in columns], rows) + left_out(survey.left_out)

    def _line(self, source: str | None) -> str:
        return code(source_line(source, self._folder)) if source else "no Python line"

    def _backward(self, calls: SourceCalls) -> str:
        if not calls.backward_node:
            return ""
        elsewhere = calls.called_from and calls.called_from != calls.source
        run = f", run from {self._line(calls.called_from)}" if elsewhere else ""
        return f", backward in {code(calls.backward_node)}{run}"

    def _share(self, ns: int) -> str:
        whole = self._report.totals.in_ops_ns
        return _percent(ns / whole) if whole else ""


_VERSIONS = ("cupti", "driver_version", "runtime_version")
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
    "modules": [
        ("module", "module", "module"),
        ("calls:", "calls", "count"),
        ("hops:", "hops", "count"),
        ("forward:", "total_ns", "time"),
        ("backward calls:", "backward_calls", "count"),
        ("backward hops:", "backward_hops", "count"),
        ("backward:", "backward_ns", "time"),
        ("share:", "both_ns", "share"),
    ],
    "backward": [
        ("forward line", "source", "line"),
        ("forward op", "forward_op", "code"),
        ("node", "backward_node", "code"),
        ("what it calls", "ops", "codes"),
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
        ("kernel", "kernel", "function"),
        ("line", "source", "line"),
        ("open for:", "open_ns", "time"),
    ],
    "exceptions": [
        ("raised in", "op", "code"),
        ("key", "key", "code"),
        ("kernel", "kernel", "function"),
        ("line", "source", "line"),
        ("left", "left", "code"),
        ("then", "caught_in", "caught"),
        ("times:", "count", "count"),
    ],
}


def _command(text: str | None) -> str:
    """The command of a process; a compile worker's options are numbers of this one run."""
    if text is None:
        return "unknown"
    words, worker, _ = package_relative(text).partition(_COMPILE_WORKER)
    return f"{code(words + worker)} (options left out)" if worker else code(text)


def _title(path: Path) -> str:
    """The op, and where the chain leads: the library function, and the API call or GPU activity."""
    chain = chain_nodes(path.nodes)
    words = [f"{path.op} [{path.key}]"]
    words += [node["op"] for node in chain if node["kind"] == "library"][:1]
    words += [table_name(node["op"]) for node in chain[-1:] if node["kind"] in (*GPU_KINDS, "api")]
    return " -> ".join(code(shorten_kernel(word, _NAME)) for word in words)


def _cost(path: Path) -> str:
    """Calls and times; the longest call too where it stands out, as a first one that loads code does."""
    words = [count(path.calls, "call"), f"{duration(path.total_ns)} in total"]
    words.append(f"median {duration(path.median_ns)}")
    if path.longest_ns > _STANDS_OUT * path.median_ns:
        words.append(f"longest {duration(path.longest_ns)}")
    return ", ".join(words)


def _chain(path: Path, details: dict[int, str]) -> str:
    """The chain as text: hops with their keys, then calls with their arguments and the device kernel."""
    chain = chain_nodes(path.nodes)
    hops = [node for node in chain if node["kind"] in HOP_KINDS]
    words = [code(f"{node['op']} [{node['key']}]") for node in hops]
    if len(words) > _CHAIN:
        words[2:-2] = [f"... {len(words) - 4:,} more ..."]
    kernel = package_relative(hops[-1]["kernel"] or "")
    links = [code(_link(node, details)) for node in chain[len(hops) :]]
    time = "" if chain[-1]["kind"] in HOP_KINDS else f" {time_text(chain[-1])}"
    return " -> ".join([*words[:-1], words[-1] + (f" {code(kernel)}" if kernel else ""), *links]) + time


def _link(node: dict[str, Any], details: dict[int, str]) -> str:
    """`cublasSgemm_v2(N, N, m=64, n=64, k=64)` of a call, the name of what the GPU did."""
    arguments = "" if node["kind"] in GPU_KINDS else arguments_text(node, details)
    return shorten_kernel(table_name(node["op"]), _NAME) + arguments


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


def _counts(facts: dict[str, Any]) -> str:
    rows = [
        [_ROWS.get(name) or prose(name.replace("_", " ")), shown]
        for name, value in facts.items()
        if (shown := _counted(value)) is not None
    ]
    return table(["captured or dropped", "count:"], rows)


_ROWS = {
    "library_calls": "library calls at their hooks",
    "in_a_hop": "kernels in a hop",
    "captured_in_a_hop": "kernels captured in a hop",
    "outside_ops": "kernels outside ops",
    "outside_ops_by": "kernels outside ops by",
}
"""Rows of a certificate by another name, which says what they count: of the library calls not those that only
a native stack names"""
_OF_A_LIMIT = (
    "stopped_at_max_size",
    "overwritten_hops",
    "overwritten_calls",
    "overwritten_activities",
    "other_definitions",
)
"""What a certificate counts where the file had a largest size"""


def _narrowed(options: dict[str, Any], certificate: dict[str, Any]) -> Iterator[str]:
    """What was asked for instead of everything."""
    if isinstance(ops := options.get("ops"), list) and ops:
        yield f"only operators like {' or '.join(map(str, ops))}"
    if isinstance(steps := options.get("steps"), list) and len(steps) == 2:
        yield f"only steps {steps[0]}:{'' if steps[1] is None else steps[1]}"
    if size := certificate.get("max_size"):
        end = "oldest" if options.get("then_stop") else "newest"
        yield f"the {end} {size / (1 << 20):,.4g} MiB"


def _items(facts: dict[str, Any]) -> str:
    """An item a line for what is listed under a name, at most ten of each."""
    lines = []
    for name, value in facts.items():
        items = value if isinstance(value, list) and name not in ("why", "overrides") else []
        for item in items[:10]:
            text = prose(item) if not isinstance(item, dict) else _reason(item)
            lines.append(f"- {prose(name.replace('_', ' '))}: {text}")
        if len(items) > 10:
            lines.append(f"- {prose(name.replace('_', ' '))}: {len(items) - 10:,} more")
    return "\n".join(lines)


def _reason(item: dict[str, Any]) -> str:
    if item.keys() == {"what", "count"}:
        return f"{code(item['what'])} ({item['count']:,})"
    op, key = item.get("op"), item.get("key")
    head = f"{code(f'{op} [{key}]' if key else op)} " if op else ""
    return head + prose(", ".join(str(v) for k, v in item.items() if k not in ("op", "key")))


def _percent(share: float) -> str:
    """`42.0 %` of 0.42; 0.0 % is nothing."""
    text = f"{100 * share:.1f} %"
    return "< 0.1 %" if share and text == "0.0 %" else text


def _unit(times: Iterable[int | None]) -> str:
    """The unit of a column of times in nanoseconds."""
    return "ms" if max((ns or 0 for ns in times), default=0) >= _MS_FROM_NS else "us"


def _time(ns: int | None, unit: str) -> str:
    if ns is None:
        return ""
    return f"{ns / 1e6:,.3f} ms" if unit == "ms" else f"{ns / 1e3:,.2f} us"
