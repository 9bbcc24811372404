"""The tables of the HTML page: sorted, longer than shown, and each row the same as its panel."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from made_pages import written
from many_rows import many_ops

from tracer.report.reading import Reading

ROWS = 60


@pytest.fixture(scope="module")
def many(folder: Path) -> Path:
    return written(folder / "many.html", Reading(many_ops(ROWS), "many.trace"))


def column(page, section: str, title: str) -> list[str]:
    """The cells of a column in the rows that are shown."""
    titles = page.locator(f"#{section} th").all_inner_texts()
    place = titles.index(title)
    return page.locator(f"#{section} tbody tr:visible td:nth-child({place + 1})").all_inner_texts()


def amount(cell: str) -> float:
    number, unit = re.fullmatch(r"(?:< )?([\d,.]+) ?(us|ms|s|%)?", cell).groups()
    return float(number.replace(",", "")) * {"ms": 1e3, "s": 1e6}.get(unit, 1)


@pytest.mark.parametrize("how", ["click", "key"])
def test_columns_are_sorted_by_click_and_by_key(opened, many: Path, how: str) -> None:
    page = opened(many)

    def press(title: str) -> str | None:
        button = page.locator("#ops th button", has_text=re.compile(f"^{title}$"))
        button.click() if how == "click" else button.press("Enter")
        assert page.locator("#ops th[aria-sort]").count() == 1
        return button.locator("..").get_attribute("aria-sort")

    for title in ("total", "median", "self share", "calls"):
        assert press(title) == "descending"
        down = list(map(amount, column(page, "ops", title)))
        assert down == sorted(down, reverse=True)
        assert press(title) == "ascending"
        up = list(map(amount, column(page, "ops", title)))
        assert up == sorted(up)
        assert up[0] < down[-1], "rows that were not shown are sorted too"
    assert press("op") == "ascending"
    assert column(page, "ops", "op")[:3] == ["aten::op0", "aten::op1", "aten::op2"]


def test_the_rows_beyond_the_first_are_in_the_page(opened, many: Path) -> None:
    page = opened(many)
    shown = len(column(page, "ops", "op"))
    assert shown < ROWS
    page.get_by_role("button", name=f"Show all {ROWS} rows").first.click()
    assert len(column(page, "ops", "op")) == ROWS
    assert page.locator("#ops button.rest").count() == 0
    first_more = page.locator("#ops tbody tr").nth(shown)
    assert first_more.evaluate("row => row === document.activeElement")


@pytest.mark.parametrize("section", ["ops", "keys", "sources", "modules", "backward", "summary", "paths"])
def test_what_a_row_says_its_panel_says(opened, resnet: Path, section: str) -> None:
    page = opened(resnet)
    titles = page.locator(f"#{section} table >> nth=0 >> th").all_inner_texts()
    rows = page.locator(f"#{section} table >> nth=0 >> tbody tr.leads")
    assert rows.count() > 3
    for place in range(min(rows.count(), 6)):
        row = rows.nth(place)
        cells = row.locator("td").all_inner_texts()
        row.locator("td").first.click()
        said = page.locator("#chain .facts span").all_inner_texts()
        figures = [f"{title} {cell}" for title, cell in zip(titles, cells, strict=True) if cell]
        assert said, cells
        assert said == figures[: len(said)]
        assert {"total", "calls", "self"} & set(titles[: len(said)])
        page.keyboard.press("Escape")


def test_the_chains_below_a_row_are_all_that_it_counts(opened, resnet: Path) -> None:
    page = opened(resnet)
    row = page.locator("#ops tbody tr", has_text="aten::convolution_backward").first
    row.locator("td").first.click()
    said = page.locator("#chain .facts span").all_inner_texts()
    calls = next(int(text.split()[1]) for text in said if text.startswith("calls"))
    lines = page.locator("#chain-body ol").last.locator(".cost").all_inner_texts()
    assert sum(int(text.rpartition(", ")[2].split(" x")[0]) for text in lines) == calls


def test_ticks_are_round_and_at_equal_distances(opened, resnet: Path) -> None:
    page = opened(resnet)
    texts = page.evaluate("""() => {
      const drawn = [], original = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        if (/^[\\d,.]+ (us|ms|s)$/.test(text)) drawn.push([text, x]);
        return original.call(this, text, x, y);
      };
      document.getElementById("zoom-reset").click();
      return new Promise(done => setTimeout(() => done(drawn), 300));
    }""")
    found = dict(texts)
    assert len(found) > 3
    values = sorted(map(amount, found))
    steps = {round(after - before, 6) for before, after in pairwise(values)}
    assert len(steps) == 1
    assert re.fullmatch("[125]0*", f"{steps.pop():.0f}")
    assert not any(re.fullmatch(r"[\d,]{5,} (us|ms)", text) for text in found), "10 s, not 10,000 ms"
    places = sorted(found.values())
    distances = [after - before for before, after in pairwise(places)]
    assert max(distances) - min(distances) < 1


def test_on_a_narrow_screen_every_cell_has_the_title_of_its_column(opened, resnet: Path) -> None:
    """A step, or the number of a path, was a bare number on a line of its own."""
    page = opened(resnet, 400)
    bare = """() => [...document.querySelectorAll(".part td:not(:empty)")].filter((cell) => cell.offsetParent)
      .filter((cell) => { const head = cell.closest("table").tHead.rows[0].cells[cell.cellIndex].textContent;
        return head && getComputedStyle(cell, "::before").content !== JSON.stringify(head + " "); })
      .map((cell) => cell.textContent)"""
    assert page.evaluate(bare) == []


def test_an_arrow_is_never_broken(opened, resnet: Path) -> None:
    page = opened(resnet, 400)
    broken = """() => [...document.querySelectorAll(".part .arrow")]
      .filter((arrow) => arrow.getClientRects().length > 1).length"""
    assert page.locator(".part .arrow").count() > 20
    assert page.evaluate(broken) == 0
