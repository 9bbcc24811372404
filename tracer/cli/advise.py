"""`tracer advise`: what is worth changing, and what it gains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tracer.base.own import is_own
from tracer.cli.common import (
    SourceFrom,
    TraceFile,
    analysing,
    chosen_trace,
    exclusive,
    fail,
    one_of,
    progress,
    say,
    say_steps,
    writing,
)
from tracer.cli.documents import AsJson, print_json

if TYPE_CHECKING:
    from tracer.advice.advise import Advised
    from tracer.trace import Trace


def _rules() -> list[str]:
    from tracer.advice.rules import RULES

    return list(RULES)


def advise(
    file: TraceFile = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run recorded calls as they were and changed, to measure gains.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every row, and with --measure what gained nothing.")
    ] = False,
    rule: Annotated[
        str | None, one_of("--rule", _rules, "Say what a rule looks for, and stop there.", "NAME")
    ] = None,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Show what is worth changing, and what a step gains by it.

    At most five rows, those first that gain most: what to do, the line where the time
    passes, what was seen there. A gain is a bound ("at most") until --measure runs the
    recorded calls changed, in a process of its own, for two minutes at most. What it
    measured last stays, for this command and for reports of the same recording.

    Record at least five steps, with --values scalars if you want to measure.

    \b
    Examples:
      tracer advise
      tracer advise run.trace --measure
      tracer advise run.trace --measure --all
      tracer advise run.trace --json | jq '.advice[0].do'
      tracer advise --rule optimizer
    """
    if rule is not None:
        exclusive(rule=rule, measure=measure)
        _explain(rule)
        return
    file = chosen_trace(file)
    with analysing(file, needs_all_ops=True) as trace:
        say_steps(trace.steps)
        found = _found(trace, measure)
        from tracer.analysis.source_lines import SourceLines
        from tracer.report import advice_text as text

        sources = SourceLines.of(trace)
    if as_json:
        most = None if everything else text.ROWS
        print_json(text.advice_document(str(file), found, sources, most))
        return
    from tracer.base.visible import visible

    with writing():
        for line in text.lines(found, sources, everything):
            print(visible(line))


def _explain(name: str) -> None:
    from tracer.advice.rules import RULES
    from tracer.report.advice_text import explained

    with writing():
        for line in explained(name, RULES[name]):
            print(line)


def _found(trace: Trace, measure: bool) -> Advised:
    from tracer.advice.advise import advise as advised
    from tracer.advice.steady import NoAdviceError

    try:
        return _measured(trace) if measure else advised(trace)
    except NoAdviceError as error:
        fail(str(error))


def _measured(trace: Trace) -> Advised:
    from tracer.advice.advise import arranged, found
    from tracer.advice.remembered import remember
    from tracer.experiments.measured import measured

    steady, rows = found(trace)
    if not is_own(trace.environment):
        say("this trace may be of another machine; gains are measured on this one")
    with progress("measuring"):
        rows = measured(trace, steady, rows)
    remember(trace, rows)
    return arranged(steady, rows)
