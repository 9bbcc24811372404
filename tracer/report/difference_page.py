"""What changed between two traces, as a markdown page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.report.cells import code, fenced, prose, table, wrapped
from tracer.report.decision_text import decision
from tracer.report.difference_text import (
    LINE,
    MODULE,
    ROWS,
    chain_diff,
    explained,
    first,
    folded,
    place,
    rows,
    shown_of,
    titles,
    value_lines,
    verdict,
)
from tracer.report.fusion_page import fusion_parts
from tracer.report.page import paragraphs

if TYPE_CHECKING:
    from tracer.analysis.difference import Change, Difference


def difference_page(found: Difference, before: str, after: str, limit: int) -> str:
    """Markdown that ends in a newline; `before` and `after` name the traces, 0 is no limit of rows."""
    parts = [
        "# What changed",
        wrapped(f"{code(before)} (before) and {code(after)} (after): {prose(verdict(found))}."),
        "\n".join(f"- {prose(cause)}" for cause in found.causes) if found.causes else "",
        "\n".join(wrapped(f"{prose(remark)}.") for remark in found.remarks),
    ]
    if found.causes:
        parts.insert(2, "Likely causes:")
    parts.insert(2, "\n".join(f"- {prose(sentence)}" for sentence in decision(found)))
    if found.values is not None:
        parts += ["## Values", "\n".join(f"- {prose(line)}" for line in value_lines(found.values))]
    if found.fusion is not None:
        parts += fusion_parts(found.fusion, limit)
    changed = folded(found.structural)
    if changed:
        parts += ["## Structure, in the order in which it ran"]
        parts += [_change(change, others, limit) for change, others in first(changed, limit)]
        parts += [shown_of(len(first(changed, limit)), len(changed), "change")]
    parts += [_times(by, found, limit) for by in ROWS]
    return paragraphs(*parts) + "\n"


def _change(change: Change, others: list[Change], limit: int) -> str:
    kind = change.kind
    head = f"### {prose(place(change))}: {code(kind.op)}"
    what = "\n".join(f"- {prose(word)}" for word in change.what)
    lines = chain_diff(change)
    also = wrapped(prose(explained(change, others, limit)))
    return paragraphs(head, code(kind.text), what, fenced(lines, "diff") if lines else "", also)


def _times(by: str, found: Difference, limit: int) -> str:
    of = rows(by, found)
    if not of:
        return ""
    shown = first(of, limit)
    names = 2 if by == LINE else 1
    cells = [
        [*(code(cell) for cell in row[:names]), *row[names : -1 if by == LINE else None]]
        + ([code(row[-1])] if by == LINE else [])
        for row in shown
    ]
    what = "A module counts those within it. " if by == MODULE else ""
    unit = "a step" if all(found.steps) else "the whole run"
    note = f"{what}Times are medians of what {unit} spends in outermost ops."
    return paragraphs(
        f"## Times by {by}", note, table(titles(by, found), cells), shown_of(len(shown), len(of), "row")
    )
