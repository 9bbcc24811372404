"""reports/README.md names every report, and nothing that is not there."""

import re
from pathlib import Path

import pytest

REPORTS = Path(__file__).resolve().parents[2] / "reports"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def links_of(page: Path) -> set[Path]:
    """The files that a page links to."""
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text())}


def unlisted(folder: Path) -> list[str]:
    """Reports that neither the folder's README.md links to nor a README.md that it leads to."""
    index = folder / "README.md"
    pages = {index} | {page for page in links_of(index) if page.name == "README.md" and page.exists()}
    listed = set().union(*map(links_of, pages))
    reports = {report.resolve() for report in folder.rglob("*.md")} - pages
    return sorted(str(report.relative_to(folder.resolve())) for report in reports - listed)


def test_every_report_is_listed():
    assert unlisted(REPORTS) == []


def test_a_report_that_is_not_listed_is_found(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "README.md").write_text("[one](one.md), [more](more/README.md)")
    (tmp_path / "more" / "README.md").write_text("[two](two.md)")
    for name in ("one.md", "forgotten.md", "more/two.md", "more/also.md"):
        (tmp_path / name).write_text("# A report")
    assert unlisted(tmp_path) == ["forgotten.md", "more/also.md"]


def test_every_link_leads_somewhere():
    assert [str(target) for target in sorted(links_of(REPORTS / "README.md")) if not target.exists()] == []


@pytest.mark.parametrize("report", sorted(REPORTS.glob("*.md")), ids=lambda report: report.name)
def test_no_report_names_a_machine(report):
    """Not its folders, which the reader does not have."""
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|work|opt)/\S*", report.read_text()) == []
