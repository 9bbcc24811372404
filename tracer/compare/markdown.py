"""Renders a comparison of cases as GitHub markdown."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Hashable, Sequence
from math import isfinite, log
from typing import Any

from tracer.compare.accuracy import Check, Element
from tracer.compare.both_chains import both_chains
from tracer.compare.call_memory import Memory
from tracer.compare.cases import CPU
from tracer.compare.model import CaseResult, Comparison, Timing
from tracer.compare.roof import BYTES, Limit
from tracer.compare.spread import Spread, ratio_text
from tracer.compare.timing import GRAPH_CALLS
from tracer.compare.verdict import is_no_bound, trial_tables, verdict
from tracer.overrides.counts import BY_ITSELF
from tracer.report.cells import code, fenced, item, prose, table, wrapped
from tracer.report.svg.bars import Ratio as Bar
from tracer.report.svg.bars import bars_svg
from tracer.report.svg.picture import Pictures
from tracer.report.text import amount, count, duration, size

_LEAST_BARS = 3
_MORE = (
    "{shown} of {cases} follow one by one: those that are wrong, then those in which the override changes "
    "the time the most. `--details N` shows N of them."
)


def render(comparison: Comparison, details: int | None = None, pictures: Pictures | None = None) -> str:
    """The comparison as markdown, with one newline at its end. Pictures are added to `pictures`.

    `details`: how many cases to show one by one; None: every case. Those that are wrong are chosen first,
    then those in which the override changes the time the most.
    """
    parts = [
        f"# {prose(comparison.title)}: stock beside {', '.join(map(code, comparison.overrides))}",
        f"**{prose(verdict(comparison))}**",
        facts_table(comparison.facts),
        _method(comparison),
        "## Cases",
        _summary(comparison),
        *_pictures(comparison, pictures),
        *_ratios_note(comparison),
        *_notes(comparison),
        *trial_tables(comparison.trials),
    ]
    parts += [item(prose(remark)) for remark in comparison.remarks]
    if comparison.certificate:
        parts += [
            "## Certificate of the chains",
            certificate_lines(comparison.certificate, on_gpu=comparison.device != CPU),
        ]
    shown: dict[Hashable, int] = {}
    chosen = _chosen(comparison.cases, details)
    if more := len(comparison.cases) - len(chosen):
        parts.append(wrapped(_MORE.format(shown=len(chosen), cases=count(more + len(chosen), "case"))))
    for number in chosen:
        case = comparison.cases[number - 1]
        parts += [*_case(number, case, comparison), *_chains(number, case, shown)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _pictures(comparison: Comparison, pictures: Pictures | None) -> list[str]:
    """The ratios of all cases as bars: of GPU times where there are any, else of wall times."""
    timed = [(case, case.limited) for case in comparison.cases]
    ratios = [
        Bar(
            case.name,
            timing.ratio.value,
            timing.ratio.low,
            timing.ratio.high,
            f"{time_of(timing.stock.median)} -> {time_of(timing.override.median)}",
        )
        for case, timing in timed
        if timing and timing.ratio.value > 0
    ]
    if pictures is None or len(ratios) < _LEAST_BARS:
        return []
    kind = "GPU time" if any(case.gpu for case in comparison.cases) else "wall time"
    title = f"stock / override, {kind}: above 1 the override is faster; grey: undecided"
    return [pictures.add("ratios", "Ratios of stock to override", bars_svg(title, ratios))]


def _chosen(cases: list[CaseResult], details: int | None) -> list[int]:
    """The numbers of the cases that are shown one by one, in order."""

    def changes(number: int) -> tuple[bool, float]:
        case = cases[number - 1]
        timing = case.limited
        return not case.passed, abs(log(timing.ratio.value)) if timing and timing.ratio.value > 0 else 0.0

    numbers = sorted(range(1, len(cases) + 1), key=changes, reverse=True)
    return sorted(numbers[:details])


def facts_table(facts: dict[str, Any]) -> str:
    """What the figures were measured on."""
    shown = {
        "command": code(command_line(facts.get("argv") or [])),
        "started": prose(facts.get("started_at") or ""),
        "device": prose(facts.get("device") or ""),
        "torch": prose(facts.get("torch") or ""),
        "CUDA of torch": prose(facts.get("torch_cuda") or ""),
        "python": prose(facts.get("python") or ""),
        "tracer": prose(facts.get("tracer") or ""),
        "processor": prose(facts.get("cpu") or ""),
        "cores": prose(facts.get("cores") or ""),
        "platform": prose(facts.get("platform") or ""),
    }
    rows = [[name, value] for name, value in shown.items() if value]
    return table(["", ""], rows) if rows else ""


def command_line(argv: Sequence[Any]) -> str:
    """A command as it may be typed, without the folders of this machine."""
    words = [re.sub(r"(?:^|(?<==))/[^:=]*", _last_part, str(word)) for word in argv]
    return shlex.join([os.path.basename(words[0]), *words[1:]]) if words else ""


def _last_part(path: re.Match[str]) -> str:
    return os.path.basename(path[0].rstrip("/")) or path[0]


def certificate_lines(certificate: dict[str, Any], *, on_gpu: bool) -> str:
    """The verdict of a trace, and what lies behind it; of CUDA only where the GPU was used."""
    lines = [item(prose(certificate.get("verdict", "")))]
    lines += [item(prose(sentence)) for sentence in certificate.get("why", [])]
    cuda = certificate.get("cuda")
    if on_gpu and isinstance(cuda, dict):
        lines += [
            item(f"CUDA, {name}: {prose(cuda[name])}")
            for name in ("state", "verdict", "why")
            if isinstance(cuda.get(name), str) and cuda[name]
        ]
    return "\n".join(lines)


def interval(timing: Timing) -> str:
    """`1.23 (1.19 to 1.27)`; of a single sample there is no interval."""
    ratio = timing.ratio
    if timing.stock.samples < 2:
        return ratio_text(ratio.value)
    return f"{ratio_text(ratio.value)} ({ratio_text(ratio.low)} to {ratio_text(ratio.high)})"


def spread(of: Spread) -> str:
    """`12.3 us (11.9 us to 13.0 us)`: median and quartiles."""
    if of.samples < 2:
        return time_of(of.median)
    return f"{time_of(of.median)} ({time_of(of.lower)} to {time_of(of.upper)})"


def _method(comparison: Comparison) -> str:
    """How the figures were measured, as a list."""
    pairs = sorted({case.wall.stock.samples for case in comparison.cases if case.wall})
    counted = f"{pairs[0]}" if len(set(pairs)) == 1 else f"{pairs[0]} to {pairs[-1]}" if pairs else "no"
    lines = [
        f"Times are medians of {counted} pairs of samples, with quartiles in brackets. Stock and override "
        "take turns in changing order, after warm-up.",
        "A sample is the mean of the calls that a case names. Each call is timed alone and is not recorded.",
        "A ratio is stock / override, so the override is faster if it is above 1. The interval is the 95 % "
        "interval of a bootstrap over the pairs.",
    ]
    if comparison.device == CPU:
        lines.append("On the CPU a call ends when it returns, so host time and wall time are the same.")
    else:
        lines += [
            "Host time ends when the call returns. Wall time is measured by CUDA events around one call, so "
            "it includes the host if the GPU waits for it.",
            f"GPU time is that of one of {GRAPH_CALLS} calls in a CUDA graph, back to back; a GPU may clock "
            "lower under them.",
            "For GPU time inputs are the same in every call, so they come from the L2 cache if they fit. For "
            "cold GPU time calls take turns with copies of their inputs that are larger than the L2 cache.",
        ]
    if comparison.roof:
        time = "its time" if comparison.device == CPU else "its GPU time (wall time if there is none)"
        lines.append(
            "The limit is the least time for the bytes of a case or for its operations, whichever is longer, "
            f'by {prose(comparison.roof)}. "Of the limit" is that time divided by {time}.'
        )
        if comparison.device != CPU:
            lines.append("In L2: its bytes fit into the L2 cache, so memory is not the limit.")
    return "\n".join(wrapped(f"- {line}", "  ") for line in lines)


def _summary(comparison: Comparison) -> str:
    on_gpu = comparison.device != CPU
    rows = []
    for number, case in enumerate(comparison.cases, 1):
        row = [str(number), prose(case.name)]
        for timing in (case.wall, case.gpu, case.cold) if on_gpu else (case.wall,):
            row += _timing_cells(timing)
        rows.append([*row, _share_cell(case, on_gpu), _error_cell(case), result_of(case)])
    titles = ["#", "case", "stock:", "override:", "ratio (95 %):"]
    if on_gpu:
        titles[2:] = ["stock wall:", "override wall:", "ratio (95 %):"]
        titles += ["stock GPU:", "override GPU:", "ratio (95 %):"]
        titles += ["stock cold:", "override cold:", "ratio (95 %):"]
    return table([*titles, "of the limit:", "error / stock's:", "result"], rows)


def _timing_cells(timing: Timing | None) -> list[str]:
    if timing is None:
        return ["", "", ""]
    return [time_of(timing.stock.median), time_of(timing.override.median), interval(timing)]


def _ratios_note(comparison: Comparison) -> list[str]:
    """How many cases the override wins and loses, where the interval leaves no doubt."""
    ran = [case for case in comparison.cases if case.ran]
    said = []
    undecided = False
    kinds = [
        ("wall", [case.wall for case in ran]),
        ("GPU", [case.gpu for case in ran]),
        ("cold GPU", [case.cold for case in ran]),
    ]
    for kind, timings in kinds[:1] if comparison.device == CPU else kinds:
        ratios = [timing.ratio for timing in timings if timing]
        if not ratios:
            continue
        faster, slower = sum(ratio.low > 1 for ratio in ratios), sum(ratio.high < 1 for ratio in ratios)
        undecided |= faster + slower < len(ratios)
        known = "" if len(ratios) == len(ran) else f", which {len(ratios)} have"
        said.append(f"faster in {faster} and slower in {slower} by {kind} time{known}")
    if not said:
        return []
    rest = " In the rest the interval of the ratio reaches 1." if undecided else ""
    text = f"Of the {count(len(ran), 'case')} in which the override ran, it is {', '.join(said)}.{rest}"
    return [wrapped(text)]


def _notes(comparison: Comparison) -> list[str]:
    """A line for each note, with the numbers of its cases."""
    numbers: dict[str, list[str]] = {}
    for number, case in enumerate(comparison.cases, 1):
        if case.note:
            numbers.setdefault(case.note, []).append(str(number))
    return [
        wrapped(f"In {'case' if len(cases) == 1 else 'cases'} {', '.join(cases)} {prose(note)}.")
        for note, cases in numbers.items()
    ]


def _share_cell(case: CaseResult, on_gpu: bool) -> str:
    """`35 % -> 52 %`: how near stock and override come to the limit; of the wall time it is said."""
    if case.limit is None or case.limited is None:
        return ""
    if is_no_bound(case.limit):
        return "in L2"
    stock, override = (_share(case.limit, of) for of in (case.limited.stock, case.limited.override))
    return f"{stock} -> {override}{'' if case.gpu or not on_gpu else ', wall'}"


def _share(limit: Limit, of: Spread) -> str:
    return f"{100 * limit.ns / of.median:.0f} %" if of.median else ""


def _error_cell(case: CaseResult) -> str:
    """The largest of error / stock's error over the results; the same bytes say so."""
    checks = [check for check in case.checks if check.bound is not None]
    if case.checks and not checks:
        return "" if case.wrong else "same bytes"
    ratios = []
    for check in checks:
        if check.stock is None or check.override is None:
            return ""
        if not isfinite(check.override.relative):
            return "not finite"
        if check.override.relative:
            ratios.append(
                check.override.relative / check.stock.relative if check.stock.relative else float("inf")
            )
    if not ratios:
        return "none" if checks else ""
    return f"{max(ratios):.2f}" if isfinite(max(ratios)) else "stock has none"


def result_of(case: CaseResult) -> str:
    """`no difference`, `WRONG`, `raised` or who ran, in words."""
    if case.failed:
        return "**raised**"
    if case.wrong or case.broken:
        return "**WRONG**"
    words = ["no difference"] if case.ran else ["stock ran"]
    if any(why != BY_ITSELF for reasons in case.handed_over.values() for why in reasons):
        words.append("handed over" if not case.ran else "some calls handed over")
    if not case.repeats:
        words.append("not the same bits twice")
    return ", ".join(words)


def _case(number: int, case: CaseResult, comparison: Comparison) -> list[str]:
    parts = [f"## {number}. {prose(case.name)}"]
    if case.failed:
        return [*parts, "It raised:", fenced(case.failed.rstrip().split("\n"))]
    if case.broken:
        parts.append(wrapped(f"**Wrong**: {prose(case.broken)}."))
    parts += [_wrong(check) for check in case.wrong if check.wrong != case.broken]
    parts += [_ran(case), _figures(case, comparison.device), _errors(case)]
    if case.limit:
        parts.append(_limit(case.limit, comparison.device))
    if case.why_no_gpu and comparison.device != CPU:
        parts.append(wrapped(f"No GPU time: {prose(case.why_no_gpu)}."))
    return parts


def _chains(number: int, case: CaseResult, shown: dict[Hashable, int]) -> list[str]:
    """The chains side by side, once for all cases that have the same."""
    if case.chains is None:
        return []
    chains = tuple(case.chains.stock.links), tuple(case.chains.override.links)
    first = shown.setdefault(chains, number)
    if first != number:
        return [f"The dispatch chains are those of case {first}, with other times."]
    same = chains[0] == chains[1]
    title = "The dispatch chains of one recorded call" + (", which are the same:" if same else ":")
    return [title, fenced(both_chains(case.chains).split("\n"))]


def _wrong(check: Check) -> str:
    text = f"**Wrong**, {code(check.output)}: {prose(check.wrong)}."
    return wrapped(f"{text} {element(check.worst)}" if check.worst else text)


def element(worst: Element) -> str:
    """The element that is the furthest off, on both sides and in float64."""
    index = ", ".join(map(str, worst.index))
    return (
        f"The worst element is [{index}]: stock {worst.stock!r}, override {worst.override!r}, "
        f"float64 {worst.exact!r}."
    )


def _ran(case: CaseResult) -> str:
    lines = [f"- {code(op)}: {count(n, 'call')} computed by the override" for op, n in case.ran.items()]
    lines += [
        f"- {code(op)}: {count(n, 'call')} handed over to stock: {prose(why)}"
        for op, reasons in case.handed_over.items()
        for why, n in reasons.items()
    ]
    if not lines:
        lines = ["- the override never ran: no call of its operators reached its dispatch key"]
    if case.note:
        lines.append(item(prose(case.note)))
    if not case.repeats:
        lines.append("- two calls of the override gave different bits")
    return "\n".join(lines)


def _figures(case: CaseResult, device: str) -> str:
    rows = []
    kinds = (("wall", case.wall), ("host", case.host), ("GPU", case.gpu), ("cold GPU", case.cold))
    for name, timing in kinds[:1] if device == CPU else kinds:
        if timing:
            rows.append([f"{name} time", spread(timing.stock), spread(timing.override), interval(timing)])
    if case.limit and case.limited and not is_no_bound(case.limit):
        sides = case.limited.stock, case.limited.override
        name = "the GPU time" if case.gpu else "the wall time"
        rows.append([f"limit, of {name}", *(_share(case.limit, side) for side in sides), ""])
    stock, override = case.memory
    if stock and override:
        rows.append(["allocated", _memory(stock), _memory(override), ""])
        rows.append(["peak", size(stock.peak), size(override.peak), ""])
    if case.chains:
        left, right = case.chains.stock, case.chains.override
        counts = left.counts, right.counts
        rows.append(["op calls, hops", *(f"{c.op_calls:,}, {c.hops:,}" for c in counts), ""])
        if device != CPU:
            calls = (f"{c.library_calls:,}, {c.api_calls:,}, {c.launches:,}" for c in counts)
            rows.append(["library calls, API calls, launches", *calls, ""])
        if any(c.allocations for c in counts):
            rows.append(["allocations of the CUDA API", *(f"{c.allocations:,}" for c in counts), ""])
        if not case.gpu and (left.gpu_ns or right.gpu_ns):
            rows.append(["GPU time when recorded", duration(left.gpu_ns), duration(right.gpu_ns), ""])
    text = table(["", "stock:", "override:", "ratio (95 %):"], rows) if rows else ""
    return f"{text}\n\n{count(case.calls, 'call')} a sample." if case.calls else text


def _memory(memory: Memory) -> str:
    return f"{size(memory.allocated)} in {memory.allocations:,}"


def _limit(limit: Limit, device: str) -> str:
    if device == CPU:
        rate = amount(limit.rate, "B/s" if limit.by == BYTES else "FLOP/s")
        return wrapped(
            f"At the best that stock reached here, {rate}, its {limit.by} take {time_of(limit.ns)}."
        )
    if is_no_bound(limit):
        return wrapped(
            f"No limit is known: the memory moves its bytes in {time_of(limit.ns)}, but they fit into the L2 "
            "cache, where the calls before left them."
        )
    by = f"by what it computes, {limit.by} at {amount(limit.rate, 'FLOP/s')}"
    if limit.by == "fp32 cores":
        by += " (products made of three TF32 ones could take less)"
    if limit.by == BYTES:
        by = f"by the bytes that must be moved, at {amount(limit.rate, 'B/s')}"
    return wrapped(f"The least time that the device allows is {time_of(limit.ns)}, {by}.")


def _errors(case: CaseResult) -> str:
    """A row for each result, with how far both sides are from float64."""
    rows = []
    for check in case.checks:
        if check.bound is None:
            rows.append([code(check.output), "", "", "", "", "the same bytes and strides"])
            continue
        if check.stock is None or check.override is None:
            continue
        bounds = []
        if isfinite(check.bound.relative):
            bounds.append(f"relative {check.bound.relative:.2g}")
        if isfinite(check.bound.largest):
            bounds.append(f"largest {check.bound.largest:.2g}")
        rows.append(
            [
                code(check.output),
                *(f"{side.relative:.3g}" for side in (check.stock, check.override)),
                *(f"{side.largest:.3g}" for side in (check.stock, check.override)),
                ", ".join(bounds),
            ]
        )
    titles = [
        "error against float64",
        "relative, stock:",
        "override:",
        "largest, stock:",
        "override:",
        "bound",
    ]
    return table(titles, rows) if rows else ""


def time_of(ns: float) -> str:
    return duration(round(ns))
