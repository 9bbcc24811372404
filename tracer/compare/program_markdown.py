"""Renders the comparison of a script as GitHub markdown."""

from __future__ import annotations

from tracer.compare.both_chains import both_chains
from tracer.compare.markdown import certificate_lines, command_line, facts_table, interval, spread, time_of
from tracer.compare.model import Timing
from tracer.compare.program import Alone, OpComparison, ProgramComparison
from tracer.compare.spread import ratio_text
from tracer.compare.verdict import of_trials, trial_tables
from tracer.report.cells import code, fenced, prose, table, wrapped
from tracer.report.sections import overrides as overrides_section
from tracer.report.text import count, duration, left_out, size

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
        *_alone(found),
        *trial_tables(found.trials),
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
    if ran and found.ops:
        words.append(_speed(found))
    words += [f"WRONG in {op.op}: {op.alone.wrong}" for op in found.wrong_alone[:1] if op.alone]
    words.append(of_trials(found.trials))
    words.append("stdout is the same" if not found.output else "stdout differs")
    return "; ".join(filter(None, [*words, *_warnings(found)]))


def _speed(found: ProgramComparison) -> str:
    """`its calls are 0.20 x as fast as stock's (95 %: 0.18 to 0.22)`, on the GPU too if there is one."""
    said = f"its calls are {_times(found, found.in_calls)} as fast as stock's"
    if found.in_calls_gpu is None:
        return said
    return f"{said} by host time, {_times(found, found.in_calls_gpu)} by GPU time"


def _times(found: ProgramComparison, timing: Timing) -> str:
    ratio = timing.ratio
    value = f"{ratio_text(ratio.value)} x"
    if found.runs < 2:
        return value
    return f"{value} (95 %: {ratio_text(ratio.low)} to {ratio_text(ratio.high)})"


def _warnings(found: ProgramComparison) -> list[str]:
    """What takes less time than the device allows has not computed, or not each time."""
    shares = [(op.shares[1], op.op) for op in found.ops if op.shares]
    most, op = max(shares, default=(0.0, ""))
    said = f"WARNING: the override of {op} reached {100 * most:.0f} % of the device's limit"
    return [f"{said}: does it compute each call?"] if most > 1 else []


def _method(found: ProgramComparison) -> str:
    text = (
        f"The script ran {count(found.runs, 'time')} on each side, in turns of changing order, each time "
        "recorded in a separate process. Times are medians over the runs, with quartiles in brackets. They "
        "include the cost of recording, which is the same on both sides and moves ratios towards 1. Tables "
        "and chains are of the same runs. A ratio is stock / override, so the override is faster if it is "
        "above 1"
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
        row += [time_of(side.median) for side in (op.call.stock, op.call.override)]
        row.append(interval(op.call))
        row += [time_of(side.median) for side in (op.total.stock, op.total.override)]
        rows.append(row + [duration(ns) for ns in op.gpu_ns] * on_gpu)
    titles = ["op", "inputs", "calls, stock:", "override:", "a call, stock:", "override:"]
    titles += [_ratio_title(found), "total, stock:", "override:"]
    titles += ["GPU, stock:", "override:"] * on_gpu
    about = wrapped(
        "The operators of the overrides by their inputs, including everything below them. The ratio is that "
        "of a call: its median time. The total has the slow first calls too."
    )
    return f"{about}\n\n{table(titles, rows)}{left_out(len(found.ops) - _ROWS)}"


def _alone(found: ProgramComparison) -> list[str]:
    """What calls with the script's arguments give when they are made again alone."""
    again = [op for op in found.ops if op.alone]
    if not again:
        return []
    titles = ["op", "inputs", "error, stock:", "override:", "allocated, stock:", "override:"]
    titles += ["peak, stock:", "override:", "of the limit:"]
    about = wrapped(
        "Each op was called again alone, with the arguments of one more run; the values in its tensors are "
        "random. The error is the relative one from float64, in the Frobenius norm. The limit is the least "
        "time that the device allows for a call; the times that are held against it are those of the table "
        "above."
    )
    reasons = [
        wrapped(f"- {code(op.op)} {prose(op.inputs)}: {prose(_reason(op.alone))}", "  ")
        for op in again
        if op.alone and _reason(op.alone)
    ]
    tables = table(titles, [_alone_row(op, op.alone) for op in again if op.alone])
    return ["## Errors, memory and the limit", about, tables, "\n".join(reasons)]


def _reason(alone: Alone) -> str:
    if alone.why:
        return f"not called again: {alone.why}"
    return f"WRONG: {alone.wrong}" if alone.wrong else ""


def _alone_row(op: OpComparison, alone: Alone) -> list[str]:
    memories = [
        [size(memory.allocated), size(memory.peak)] if memory else ["", ""] for memory in alone.memory
    ]
    shares = "" if op.shares is None else " -> ".join(f"{100 * share:.0f} %" for share in op.shares)
    return [
        code(op.op),
        prose(op.inputs),
        *("" if error is None else f"{error.relative:.2g}" for error in alone.errors),
        *(column for pair in zip(*memories, strict=True) for column in pair),
        shares,
    ]


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
    text += " Times are medians over the calls that became it: in each run, then over the runs."
    if notes:
        text += f" {'; '.join(notes)}."
    return [title, wrapped(text), fenced(both_chains(op.chains).split("\n"))]
