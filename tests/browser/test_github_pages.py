"""Committed reports as GitHub shows them: no table is wider than the page, and diagrams can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_trace
import pytest
import test_report
import viewers
from made_pages import RESNET, SPLIT
from many_rows import many_ops
from markdown_it import MarkdownIt

from tracer.report.github import WIDTH, for_github
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.trace import load

ROOT = Path(__file__).parents[2]
COMMITTED = [ROOT / "README.md", *sorted((ROOT / "reports").rglob("*.md"))]
SMALLEST = 11  # pixels of a letter
PAGE = """<!doctype html><meta charset="utf-8">
<style>{css} body {{ margin: 0 }} .markdown-body {{ width: {width}px }}</style>
<article class="markdown-body">{body}</article>"""
WIDE = """() => [...document.querySelectorAll("table")].map(table => [table.scrollWidth,
  [...table.rows[0].cells].map(cell => cell.textContent).join(" | ")])"""
DRAWN = """async () => {
  mermaid.initialize({ startOnLoad: false });
  await mermaid.run({ querySelector: ".language-mermaid" });
  const sizes = [...document.querySelectorAll("svg text, svg foreignObject span, svg foreignObject p")]
    .filter(each => each.textContent.trim())
    .map(each => parseFloat(getComputedStyle(each).fontSize) * each.closest("svg").getScreenCTM().a);
  return [document.querySelectorAll("svg").length, Math.min(...sizes)];
}"""


def fetched(viewer: Callable[[], Any]) -> Any:
    try:
        return viewer()
    except viewers.NotThereError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def page(chromium):
    page = chromium.new_page(viewport={"width": 1200, "height": 900})
    yield page
    page.close()


def shown(page, markdown: str) -> None:
    """The page with all that can be folded open."""
    body = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown)
    page.set_content(PAGE.format(css=fetched(viewers.github_css), width=WIDTH, body=body))
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")


def too_wide(page, markdown: str) -> list[list[Any]]:
    shown(page, markdown)
    return [[width, titles] for width, titles in page.evaluate(WIDE) if width > WIDTH]


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_table_of_a_committed_report_is_wider_than_the_page(page, path: Path) -> None:
    """Nor is a number on another line than its unit."""
    assert too_wide(page, path.read_text()) == []
    assert page.evaluate(SPLIT, "td") == []


def test_a_unit_on_another_line_is_seen(page) -> None:
    row = "|".join(["12.5 ms"] + ["`" + "x" * 55 + "`"] * 2)
    shown(page, f"|a|b|c|\n|-|-|-|\n|{row}|\n")
    assert page.evaluate(SPLIT, "td") == ["12.5 ms"]
    shown(page, for_github(f"|a|b|c|\n|-|-|-|\n|{row}|\n"))
    assert page.evaluate(SPLIT, "td") == []


@pytest.mark.parametrize(
    "trace", [test_report.training, lambda: load(gpu_trace.PATH), lambda: load(RESNET), lambda: many_ops(30)]
)
def test_no_table_of_a_new_report_is(page, trace: Callable[[], Any]) -> None:
    assert too_wide(page, for_github(render(Reading(trace(), "new.trace")))) == []
    assert page.evaluate(SPLIT, "td") == []


def test_a_wide_table_is_seen(page) -> None:
    row = "|".join(["`" + "x" * 60 + "`"] * 3)
    assert too_wide(page, f"|a|b|c|\n|-|-|-|\n|{row}|\n") != []
    assert too_wide(page, for_github(f"|a|b|c|\n|-|-|-|\n|{row}|\n")) == []


@pytest.mark.parametrize(
    "path",
    [path for path in COMMITTED if "```mermaid" in path.read_text()],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_diagrams_can_be_read(page, path: Path) -> None:
    script = fetched(viewers.mermaid)
    shown(page, path.read_text())
    page.add_script_tag(path=script)
    drawn, smallest = page.evaluate(DRAWN)
    assert drawn == path.read_text().count("```mermaid")
    assert smallest >= SMALLEST
