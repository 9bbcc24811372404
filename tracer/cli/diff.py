"""`tracer diff`: what changed between two recordings."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.cli.common import USAGE, analysing, chosen_trace, fail, writing
from tracer.cli.documents import AsJson, print_json
from tracer.cli.lines import print_cells

if TYPE_CHECKING:
    from tracer.analysis.difference import Change, Difference, Times

_CHAIN_LINES = 16  # of a change
_TEXT = 60


def diff(
    before: Annotated[Path, typer.Argument(help="The trace of the first run.", metavar="BEFORE")],
    after: Annotated[Path, typer.Argument(help="The trace of the second run.", metavar="AFTER")],
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="Show at most N changes and N rows (default 10); 0: all.")
    ] = 10,
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="Exit status 1 only if a step is slower by more than PERCENT, e.g. 10%."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two recordings: structure, inputs, settings and times.

    Op calls are the same if their line (by its text), operator and direction (forward or
    backward) are. Of those that changed, the chain of hops, library calls and kernels is
    shown as a diff, in the order in which they ran. Times are medians of the steady steps;
    where the 95 % interval of a ratio reaches 1, that is no change.

    The exit status is 0 if the structure is the same and 1 if not. With --fail-over it is 1
    only if the steady step became slower by more than that, and the interval says so too.

    \b
    Examples:
      tracer diff before.trace after.trace
      tracer diff main.trace branch.trace --fail-over 10%
      tracer diff before.trace after.trace --json | jq .causes
    """
    most = None if fail_over is None else _percent(fail_over)
    before, after = chosen_trace(before), chosen_trace(after)
    from tracer.analysis.difference import difference

    with analysing(before) as first:
        pass
    with analysing(after) as second:
        found = difference(first, second)
    if as_json:
        from tracer.report.documents import difference_document

        print_json(difference_document(first, second, found, limit))
    else:
        with writing():
            _show(found, limit)
    if most is None:
        failed = bool(found.structural)
    else:
        ratio = found.step.ratio
        if ratio is None:
            fail("--fail-over needs three steps in each trace; record more, or call tracer.step()", USAGE)
        failed = ratio.value > 1 + most and ratio.low > 1 + most
    if failed:
        raise typer.Exit(1)


def _percent(text: str) -> float:
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not share >= 0:
        fail(f"--fail-over {text}: give a percentage, e.g. 10%", USAGE)
    return share


def _show(found: Difference, limit: int) -> None:
    from tracer.report.text import count
    from tracer.report.visible import visible

    changed = found.structural
    words = (
        "the same structure"
        if not changed
        else f"{len(changed)} of {count(len(found.changes), 'kind')} of op calls changed"
    )
    print(f"{words}; {_step(found)}")
    if found.causes:
        print(visible(f"likely causes: {'; '.join(found.causes)}"))
    for change in changed[:limit] if limit else changed:
        print()
        for line in _told(change):
            print(visible(line))
    if limit and len(changed) > limit:
        print(f"\nShown: {limit} of {count(len(changed), 'change')}. More: --limit 0.")
    rows = sorted(
        found.changes, key=lambda change: -abs((change.times.after or 0) - (change.times.before or 0))
    )
    timed = [change for change in rows if change.times.before or change.times.after]
    if timed:
        print()
        print_cells(
            ["line", "op", "before:", "after:", "ratio (95 %):", "verdict", "text"],
            [_row(change) for change in (timed[:limit] if limit else timed)],
        )


def _step(found: Difference) -> str:
    from tracer.report.text import count

    kind = "steady step" if found.steady else "step"
    steps = f"{found.steps[0]:,} and {count(found.steps[1], kind)}"
    if not all(found.steps):
        return "no steps to compare: call tracer.step() after each iteration"
    return f"a step took {_times(found.step)} ({steps})"


def _times(times: Times) -> str:
    from tracer.report.text import duration

    one, other = (duration(round(ns)) if ns is not None else "nothing" for ns in (times.before, times.after))
    if times.ratio is None:
        return f"{one} before, {other} after"
    ratio = times.ratio
    interval = f"{ratio.value:.2f} x ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{one} before, {other} after: {interval}, {ratio.verdict}"


def _told(change: Change) -> list[str]:
    kind = change.kind
    backward = "backward of " if kind.backward else ""
    lines = [f"{backward}{kind.line}  {kind.text}".rstrip(), f"  {kind.op}: {'; '.join(change.what)}"]
    if change.before and change.after:
        one, other = (side.chains.most_common(1)[0][0].splitlines() for side in (change.before, change.after))
        hunks = list(unified_diff(one, other, lineterm="", n=2))[2:]
        differing = [line for line in hunks if not line.startswith("@@")]
        lines += [f"    {line}" for line in differing[:_CHAIN_LINES]]
        if len(differing) > _CHAIN_LINES:
            lines.append(f"    ... {len(differing) - _CHAIN_LINES} more lines")
    return lines


def _row(change: Change) -> list[str]:
    from tracer.report.text import duration

    kind, times = change.kind, change.times
    ratio = times.ratio
    text = kind.text if len(kind.text) <= _TEXT else f"{kind.text[: _TEXT - 3]}..."
    figures: list[Any] = [duration(round(ns)) if ns is not None else "" for ns in (times.before, times.after)]
    interval = "" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    verdict = (
        ratio.verdict
        if ratio
        else "new"
        if change.before is None
        else "vanished"
        if change.after is None
        else ""
    )
    name = f"{kind.line} (backward)" if kind.backward else kind.line
    return [name, kind.op, *figures, interval, verdict, text]
