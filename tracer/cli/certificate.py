"""`tracer certificate`: whether a trace is complete, and what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tracer.cli.common import TraceFile, analysing, chosen_trace, writing
from tracer.cli.documents import AsJson, print_json

if TYPE_CHECKING:
    from tracer.trace import Trace


def certificate(
    file: TraceFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a trace is complete, and what it lacks if not.

    The first line is the verdict. The lines below it name what is missing, and
    what tracer cannot see in any recording. --json prints every count of the certificate.
    The exit status is 0 if the trace is complete and 1 if not, for scripts.

    \b
    Examples:
      tracer certificate
      tracer certificate run.trace && echo complete
      tracer certificate run.trace --json | jq .hops
    """
    file = chosen_trace(file)
    with analysing(file) as trace:
        pass
    if as_json:
        from tracer.report.documents import certificate_document

        print_json(certificate_document(trace))
    else:
        with writing():
            _show(trace)
    if not trace.certificate["complete"]:
        raise typer.Exit(1)


def _show(trace: Trace) -> None:
    import textwrap

    from tracer.base.visible import visible

    found = trace.certificate
    print(visible(f"{trace.path}: {found['verdict']}"))
    for title, clauses in (("", found["why"]), ("not visible to tracer: ", found["not_visible"])):
        for clause in clauses:
            print(textwrap.fill(visible(f"{title}{clause}"), 80, initial_indent="- ", subsequent_indent="  "))
