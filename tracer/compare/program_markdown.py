"""Renders the comparison of a script as GitHub markdown."""

from __future__ import annotations

from tracer.compare.both_chains import both_chains
from tracer.compare.markdown import certificate_lines, command_line, facts_table, interval, spread
from tracer.compare.model import Timing
from tracer.compare.program import OpComparison, ProgramComparison
from tracer.report.cells import code, fenced, prose, table, wrapped
from tracer.report.sections import overrides as overrides_section
from tracer.report.text import count, duration, left_out

_ROWS = 40
_OUTPUT_LINES = 40


def render(found: ProgramComparison) -> str:
    """The comparison as markdown, with one newline at its end."""
    command = command_line(found.command)
    names = ", ".join(map(code, found.overrides)) or "no override"
    parts = [
        f"# {code(command)}: stock beside {names}",
        f"**{prose(_verdict(found))}**",
        facts_table({**found.facts, "argv": found.command}),
        _method(found),
        "## Whole runs",
        _whole(found),
        "## Output",
        _output(found),
        "## Overrides",
        overrides_section.table_of(found.states) if found.states else "None was on.",
        "## Ops",
        _ops(found),
        "## Certificates",
        "Stock, last run:",
        certificate_lines(found.certificates[0], on_gpu=found.gpu is not None),
        "With the overrides, last run:",
        certificate_lines(found.certificates[1], on_gpu=found.gpu is not None),
    ]
    for number, op in enumerate((op for op in found.ops if op.chains), 1):
        parts += _chain(number, op)
    return "\n\n".join(filter(None, parts)) + "\n"


def _verdict(found: ProgramComparison) -> str:
    ran = sum(state["ran"] for state in found.states)
    handed_over = sum(sum(state["handed_over"].values()) for state in found.states)
    words = [f"the overrides computed {count(ran, 'call')}" if ran else "NO OVERRIDE RAN"]
    if handed_over:
        words.append(f"{count(handed_over, 'call')} handed over to stock")
    same = "stdout is the same" if not found.output else "stdout differs"
    return "; ".join([*words, same])


def _method(found: ProgramComparison) -> str:
    text = (
        f"The script ran {count(found.runs, 'time')} on each side, in turns of changing order, each time "
        "recorded in a separate process. Times are medians over the runs, with quartiles in brackets. They "
        "include the cost of recording, which is the same on both sides and moves ratios towards 1. A ratio "
        "is stock / override, so the override is faster if it is above 1"
    )
    interval_text = (
        ", with the 95 % interval of a bootstrap over the pairs of runs." if found.runs > 1 else "."
    )
    return wrapped(text + interval_text)


def _whole(found: ProgramComparison) -> str:
    rows = [
        _row("the process", found.process),
        _row("first hop to last", found.elapsed),
        _row("in ops", found.in_ops),
    ]
    if found.gpu:
        rows.append(_row("on the GPU", found.gpu))
    rows.append(["hops", *(f"{hops:,}" for hops in found.hops), ""])
    return table(["", "stock:", "override:", _ratio_title(found)], rows)


def _row(name: str, timing: Timing) -> list[str]:
    return [name, spread(timing.stock), spread(timing.override), interval(timing)]


def _ratio_title(found: ProgramComparison) -> str:
    return "ratio (95 %):" if found.runs > 1 else "ratio:"


def _output(found: ProgramComparison) -> str:
    if not found.output:
        return f"Both sides wrote the same to stdout: {count(found.output_lines, 'line')}."
    shown = [line.expandtabs() for line in found.output[:_OUTPUT_LINES]]
    more = len(found.output) - len(shown)
    unshown = [f"... {count(more, 'more line')}"] if more else []
    by_itself = "" if found.steady_output else " It differs between runs of stock, too."
    return f"What the script wrote to stdout differs.{by_itself}\n\n{fenced([*shown, *unshown], 'diff')}"


def _ops(found: ProgramComparison) -> str:
    if not found.ops:
        return "No operator of an override was called on both sides."
    on_gpu = any(any(op.gpu_ns) for op in found.ops)
    rows = []
    for op in found.ops[:_ROWS]:
        row = [code(op.op), prose(op.inputs), *(f"{calls:,}" for calls in op.calls)]
        row += [duration(round(side.median)) for side in (op.total.stock, op.total.override)]
        row.append(interval(op.total))
        rows.append(row + [duration(ns) for ns in op.gpu_ns] * on_gpu)
    titles = [
        "op",
        "inputs",
        "calls, stock:",
        "override:",
        "total, stock:",
        "override:",
        _ratio_title(found),
    ]
    titles += ["GPU, stock:", "override:"] * on_gpu
    about = wrapped(
        "The operators of the overrides by their inputs: all calls of a run, including everything below them."
    )
    return f"{about}\n\n{table(titles, rows)}{left_out(len(found.ops) - _ROWS)}"


def _chain(number: int, op: OpComparison) -> list[str]:
    assert op.chains is not None
    title = f"## {number}. {code(op.op)} {prose(op.inputs)}"
    notes = [
        f"{count(others, 'call')} of {side} became another chain"
        for others, side in zip(op.other_chains, ("stock", "the override"), strict=True)
        if others
    ]
    same = all(pair.same for pair in op.chains.pairs)
    text = "The most frequent dispatch chain of each side" + (", which are the same." if same else ".")
    if notes:
        text += f" {'; '.join(notes)}."
    return [title, wrapped(text), fenced(both_chains(op.chains).split("\n"))]
