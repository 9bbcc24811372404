"""What changed between two traces, as a markdown page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

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


class Section(NamedTuple):
    """`text` is markdown."""

    name: str
    title: str
    text: str


def difference_page(found: Difference, before: str, after: str, limit: int) -> str:
    """Markdown that ends in a newline; `before` and `after` name the traces, 0 is no limit of rows."""
    parts = [
        "# What changed",
        wrapped(f"{code(before)} (before) and {code(after)} (after): {prose(verdict(found))}."),
        answer(found),
    ]
    for section in sections(found, limit, limit):
        parts += [f"## {section.title}", section.text]
    return paragraphs(*parts) + "\n"


def answer(found: Difference) -> str:
    """What is said after the verdict: by what rule, likely causes, remarks."""
    return paragraphs(
        "\n".join(f"- {prose(sentence)}" for sentence in decision(found)),
        "Likely causes:" if found.causes else "",
        "\n".join(f"- {prose(cause)}" for cause in found.causes),
        "\n".join(wrapped(f"{prose(remark)}.") for remark in found.remarks),
    )


def sections(found: Difference, limit: int, most_rows: int) -> Iterator[Section]:
    """Those that have something to say; at most `limit` changes, and `most_rows` of each table of times."""
    if found.values is not None:
        yield Section("values", "Values", "\n".join(f"- {prose(line)}" for line in value_lines(found.values)))
    if found.fusion is not None:
        yield Section("fusion", "Eager against compiled", paragraphs(*fusion_parts(found.fusion, limit)))
    changed = folded(found.structural)
    if changed:
        shown = first(changed, limit)
        entries = [_change(change, others, limit) for change, others in shown]
        cut = shown_of(len(shown), len(changed), "change")
        yield Section("structure", "Structure, in the order in which it ran", paragraphs(*entries, cut))
    for by in ROWS:
        if text := _times(by, found, most_rows):
            yield Section(f"{by}s", f"Times by {by}", text)


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
    return paragraphs(note, table(titles(by, found), cells), shown_of(len(shown), len(of), "row"))
