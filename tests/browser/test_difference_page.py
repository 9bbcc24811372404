"""The page of `tracer diff`: two flame graphs with one scale, coloured by what was decided, and tables."""

from __future__ import annotations

import re
from pathlib import Path

import gpu_trace
import pytest
from made_pages import RESNET, drawing
from made_runs import SCRIPT, edited, run
from test_page_by_keyboard import FOCUSED, SENT, TAKEN, VISIBLE, violations
from test_page_tables import amount, column

from tracer.analysis.difference import difference
from tracer.report.html.difference import render_difference
from tracer.trace import load

BAR, AXIS, TITLE = 19, 23, 19
BEFORE, AFTER = AXIS + TITLE, AXIS + 2 * TITLE + 2 * BAR + 8
WIDTH = 1000


def written(path: Path, before, after) -> Path:
    path.write_text(render_difference(before, after, difference(before, after), ("a.trace", "b.trace"), 10))
    return path


@pytest.fixture(scope="module")
def changed(folder: Path) -> Path:
    """Line 2 takes twice as long, line 4 half as long, line 3 calls another op, the others are as before."""
    times = {2: 2.0, 4: 0.5}
    script = [
        (text, op, int(ns * times.get(number, 1)))
        for number, (text, op, ns) in enumerate(
            edited(SCRIPT[2][0], "hidden = F.gelu(hidden)", "aten::gelu", 50_000), 1
        )
    ]
    return written(folder / "changed.html", [run()], [run(script, seed=3)])


@pytest.fixture(scope="module")
def on_gpu(folder: Path) -> Path:
    return written(folder / "gpu_difference.html", [load(gpu_trace.PATH)], [load(RESNET)])


# The colours along a row of pixels, by name: [name, first pixel, last pixel].
COLOURS = """y => {
  const canvas = document.querySelector("#icicle canvas");
  const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  copy.canvas.width = canvas.width;
  copy.drawImage(canvas, 0, -y);
  const { data } = copy.getImageData(0, 0, canvas.width, 1);
  const style = getComputedStyle(document.documentElement);
  const names = ["slower", "faster", "longer", "shorter", "same"];
  const known = new Map(names.map(name => [style.getPropertyValue("--" + name).trim(), name]));
  const found = [];
  for (let x = 0; x < canvas.width; x++) {
    const hex = "#" + [0, 1, 2].map(part => data[4 * x + part].toString(16).padStart(2, "0")).join("");
    const last = found[found.length - 1];
    if (last && last[0] === known.get(hex)) last[2] = x;
    else found.push([known.get(hex), x, x]);
  }
  return found.filter(([name, from, to]) => name && to - from > 3);
}"""


def bars(page, top: float) -> list[tuple[str, int, int]]:
    """The bars of a level: colour, first and last pixel, above what they say."""
    drawing(page, "icicle")
    return [tuple(bar) for bar in page.evaluate(COLOURS, top + 2)]


def test_both_graphs_have_one_scale_and_say_what_changed(opened, changed: Path) -> None:
    page = opened(changed, WIDTH)
    before, after = bars(page, BEFORE), bars(page, AFTER)
    kinds = [colour for colour, *_ in before]
    assert kinds[:4] == ["slower", "faster", "same", "faster"], "lines 2, 4, 6 and 3, the longest first"
    assert set(kinds[4:]) == {"same"}
    assert [colour for colour, *_ in after] == kinds
    for one, other, factor in zip(before, after, (2, 0.5, 1, 5 / 12), strict=False):
        assert one[1] == pytest.approx(other[1], abs=2), "aligned"
        widths = [bar[2] - bar[1] for bar in (one, other)]
        assert widths[1] / widths[0] == pytest.approx(factor, rel=0.1), "one scale"
    ops = [[colour for colour, *_ in bars(page, top + BAR)][3] for top in (BEFORE, AFTER)]
    assert ops == ["faster", "slower"], "tanh only before, gelu only after"
    legend = page.locator("#legend").inner_text()
    assert [word for word in ("slower", "faster", "no change", "not decided") if word in legend] == [
        *("slower", "faster", "no change")
    ]


def test_what_no_rule_decided_is_paler_and_says_so(opened, folder: Path) -> None:
    script = [("x = a(y)", "aten::mm", 300_000), ("y = b(x)", "aten::tanh", 100_000)]
    longer = [(text, op, ns * (2 if op == "aten::mm" else 1)) for text, op, ns in script]
    runs = [run(script, marked=False)], [run(longer, marked=False, seed=2)]
    page = opened(written(folder / "whole_runs.html", *runs), WIDTH)
    assert [colour for colour, *_ in bars(page, AFTER)][:2] == ["longer", "same"]
    assert "longer, not decided" in page.locator("#legend").inner_text()
    assert page.locator("#measure label").count() == 1


def test_the_header_names_both_traces(opened, changed: Path) -> None:
    page = opened(changed, WIDTH)
    assert page.title() == "a.trace and b.trace - tracer"
    assert page.locator("h1").inner_text() == "a.trace \u2192 b.trace"
    assert page.locator(".sides dd").count() == 2
    assert page.locator("nav a").all_inner_texts()[:2] == ["Where time goes", "Times by line"]
    page.locator("nav a", has_text="Times by line").click()
    page.locator("nav a[aria-current]").get_by_text("Times by line", exact=True).wait_for()


@pytest.mark.parametrize("section", ["lines", "ops"])
def test_what_a_row_says_its_panel_says(opened, changed: Path, section: str) -> None:
    page = opened(changed, WIDTH)
    titles = page.locator(f"#{section} th").all_inner_texts()
    rows = page.locator(f"#{section} tbody tr.leads")
    assert rows.count() > 5
    for row in rows.all():
        cells = row.locator("td").all_inner_texts()
        row.locator("td").first.click()
        said = page.locator("#chain .facts span").all_inner_texts()
        assert len(said) >= 2, cells
        figures = [f"{title} {cell}" for title, cell in zip(titles, cells, strict=True) if cell]
        assert said == figures[: len(said)]
        name = cells[titles.index("op")].removeprefix("outside ops") or cells[titles.index("line")]
        assert name in page.locator("#chain-title").inner_text()
        page.keyboard.press("Escape")
        assert page.locator("#chain").is_hidden()


def test_a_bar_says_what_its_row_says(opened, changed: Path) -> None:
    page = opened(changed, WIDTH)
    _, first, last = bars(page, AFTER)[0]
    for level in (0, 1):
        page.locator("#icicle canvas").click(position={"x": (first + last) / 2, "y": AFTER + BAR * level + 9})
        said = page.locator("#chain .facts span").all_inner_texts()
        row = page.locator("#lines tbody tr", has_text="train.py:2").filter(has_text="aten::linear")
        cells = row.locator("td").all_inner_texts()
        assert [
            text.rpartition(title)[2].strip()
            for text, title in zip(said, ("before", "after", "(95 %)", "verdict"), strict=True)
        ] == cells[:4]
        assert page.locator("#chain-body .cost", has_text="\u2192").count() == 1


def test_columns_are_sorted(opened, changed: Path) -> None:
    page = opened(changed, WIDTH)
    page.locator("#lines th button", has_text="after").click()
    after = [amount(cell) for cell in column(page, "lines", "after") if cell]
    assert after == sorted(after, reverse=True)


def test_search_groupings_and_gpu_time(opened, on_gpu: Path) -> None:
    page = opened(on_gpu, WIDTH)
    seen = {drawing(page, "icicle")}
    for grouping in ("module", "op", "line"):
        for measure in ("GPU time", "host time"):
            page.locator("#grouping label", has_text=grouping).click()
            page.locator("#measure label", has_text=measure).click()
            seen.add(drawing(page, "icicle"))
    assert len(seen) == 6
    page.fill("#search", "conv")
    assert re.match(r"[\d,]+ bars\. Enter", page.locator("#found").inner_text())
    assert drawing(page, "icicle") not in seen
    page.press("#search", "Enter")
    page.press("#search", "Escape")
    page.locator("#lines tbody tr.leads", has_text="aten::").first.locator("td").first.click()
    kinds = page.locator("#chain-body .what").all_inner_texts()
    assert {"line", "op"} <= set(kinds)
    page.locator("#chain-zoom").click()


def test_the_keyboard_alone(opened, changed: Path) -> None:
    page = opened(changed, WIDTH)
    page.focus("#icicle")
    taken = [key for key in [*TAKEN, "Tab", "PageDown", "Control+f"] if page.evaluate(SENT, ["icicle", key])]
    assert taken == TAKEN
    page.keyboard.press("Escape")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED) == "BODY":
            break
        assert page.evaluate(VISIBLE)
    page.locator("#lines tbody tr").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "chain"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1024, 1440, 2560])
def test_it_fits_and_axe_finds_nothing(opened, changed: Path, width: int, scheme: str) -> None:
    page = opened(changed, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    page.locator("#lines tbody tr").first.locator("td").first.click()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
