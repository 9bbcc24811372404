"""`tracer doctor`: whether this machine can record, one line per check."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import progress, writing
from tracer.cli.documents import AsJson, print_json
from tracer.cli.lines import print_line, terminal

if TYPE_CHECKING:
    from tracer.doctor.finding import Finding

_WIDTH = 80
_INDENT = " " * 21


def doctor(
    cuda: Annotated[
        bool, typer.Option("--cuda", help="Also record on the GPU; this initialises CUDA.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check whether this Python can record here, and how to mend it.

    One line per check: ok, note (recording works, something else is missing) or
    problem (tracer cannot record). Doctor records one matmul in a temporary folder;
    this takes a few seconds. The exit status is 1 if there is a problem.

    \b
    Examples:
      tracer doctor
      tracer doctor | grep -v '^ok'
      tracer doctor --json | jq '.findings[] | select(.state == "problem")'
    """
    from tracer.doctor.examination import examine

    findings = []
    with writing(pages=False):
        checks = examine(with_gpu=cuda)
        while (finding := _next(checks)) is not None:
            findings.append(finding)
            if not as_json:
                _show(finding)
        states = [finding.state for finding in findings]
        if not as_json:
            print(f"\n{_verdict(states.count('problem'), states.count('note'))}")
    works = not any(finding.state == "problem" for finding in findings)
    if as_json:
        print_json({"works": works, "findings": [asdict(finding) for finding in findings]})
    if not works:
        raise typer.Exit(1)


def _next(checks: Iterator[Finding]) -> Finding | None:
    with progress("checking"):
        return next(checks, None)


def _show(finding: Finding) -> None:
    text = textwrap.fill(
        finding.text,
        _WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    line = [(finding.state, f"{finding.state:<8}"), ("plain", f" {finding.name:<11} {text.lstrip()}")]
    print_line(terminal()[0], line)
    if finding.advice:
        advice = textwrap.fill(
            finding.advice,
            _WIDTH,
            initial_indent=f"{_INDENT}-> ",
            subsequent_indent=f"{_INDENT}   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        print(advice)
    sys.stdout.flush()


def _verdict(problems: int, notes: int) -> str:
    noted = f"; {notes} {'note' if notes == 1 else 'notes'}" if notes else ""
    if problems:
        return f"{problems} {'problem stops' if problems == 1 else 'problems stop'} recording{noted}."
    return f"Recording works here{noted}."
