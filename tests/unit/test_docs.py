"""The pages that people read: a short README, complete indexes, links that lead somewhere."""

import re
from pathlib import Path

import pytest
from pages import DOCS, ROOT, anchors

from tracer.trace.tables import schema

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "examples/README.md",
    ROOT / "reports/README.md",
    *sorted(DOCS.glob("*.md")),
]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]+)?\)")


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    broken = []
    for path, anchor in LINK.findall(text):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(path + anchor)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n[a](#one) [b](#two) [c](other.md) [d](page.md#one) [e](https://example.org/none)\n"
    )
    assert broken_links(page) == ["#two", "other.md"]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_the_index_has_every_page():
    index = (DOCS / "index.md").read_text()
    assert [page.name for page in DOCS.glob("*.md") if f"({page.name})" not in index] == ["index.md"]


@pytest.mark.parametrize(
    "table", ["HOPS", "SIGNATURES", "API_CALLS", "LIBRARY_CALLS", "GPU_ACTIVITIES", "PROCESSES", "THREADS"]
)
def test_the_page_of_tables_has_every_column(table: str):
    page = (DOCS / "api.md").read_text()
    assert [column for column in getattr(schema, table) if f"`{column}`" not in page] == []


def test_the_site_has_every_page():
    site = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in DOCS.glob("*.md") if f"docs/{page.name}\n" not in site] == []


def test_the_index_of_decisions_has_every_section():
    text = (DOCS / "decisions.md").read_text()
    listed = set(re.findall(r"^(?:- |\*\*)\[.*\]\((#[^)]*)\)", text, flags=re.M))
    sections = anchors(DOCS / "decisions.md") - {"#decisions", "#index"}
    assert sections == listed


def test_sections_of_decisions_are_in_the_order_of_the_index():
    text = (DOCS / "decisions.md").read_text()
    listed = re.findall(r"^- \[(.*)\]\(#.*\)$", text, flags=re.M)
    assert re.findall(r"^### (.*)$", text, flags=re.M) == listed


def test_pictures_are_small():
    assert {
        picture.name: picture.stat().st_size <= 200 * 1024 for picture in (DOCS / "pictures").iterdir()
    } == {"tree.svg": True, "report.png": True}
