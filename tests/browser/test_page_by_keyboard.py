"""The HTML page without a mouse, and for readers who see, hear or move it in another way."""

from __future__ import annotations

from pathlib import Path

import hostile
import pytest
import viewers
from made_pages import RESNET, SPLIT, drawing, written
from many_rows import many_ops

from tracer.report.html.document import render_document
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.trace import load

PICTURES = ("icicle", "tracks")
TAKEN = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Enter", "Escape", "+", "-"]
BROWSERS = [
    *("Tab", "Shift+Tab", " ", "PageDown", "PageUp", "Home", "End", "F5", "a", "/", "=", "Delete"),
    *(f"Control+{key}" for key in ("f", "c", "p", "r", "+", "-", "ArrowLeft", "Enter", "Home")),
    *("Alt+ArrowLeft", "Meta+ArrowUp"),
]
# What a press of a key does here, and whether the page took it: nothing reaches the browser.
SENT = """([id, key]) => {
  const parts = key.split("+").filter(part => part);
  const event = new KeyboardEvent("keydown", {
    key: key.endsWith("+") ? "+" : parts[parts.length - 1], bubbles: true, cancelable: true,
    ctrlKey: parts.includes("Control"), altKey: parts.includes("Alt"),
    metaKey: parts.includes("Meta"), shiftKey: parts.includes("Shift"),
  });
  document.getElementById(id).dispatchEvent(event);
  return event.defaultPrevented;
}"""
FOCUSED = "document.activeElement.id || document.activeElement.tagName"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
VISIBLE = """() => {
  const style = getComputedStyle(document.activeElement.closest("fieldset label") || document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


@pytest.fixture(scope="module")
def many(folder: Path) -> Path:
    return written(folder / "many.html", Reading(many_ops(60), "many.trace"))


def until(page, true: str) -> None:
    """The page's policy forbids playwright's own `wait_for_function`."""
    for _ in range(200):
        if page.evaluate(true):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never: {true}")


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_takes_its_keys_and_no_other(opened, resnet: Path, picture: str) -> None:
    page = opened(resnet)
    page.locator(f"#{picture} canvas").click(position={"x": 60, "y": 60})
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUSED) == picture
    taken = {key: page.evaluate(SENT, [picture, key]) for key in [*TAKEN, *BROWSERS]}
    assert [key for key, prevented in taken.items() if prevented] == TAKEN
    for key in ("Shift+ArrowLeft", "Shift+ArrowRight", "Shift+ArrowUp", "Shift+ArrowDown"):
        assert page.evaluate(SENT, [picture, key])


@pytest.mark.parametrize("picture", PICTURES)
def test_tab_page_and_end_work_after_a_click_on_a_picture(opened, resnet: Path, picture: str) -> None:
    page = opened(resnet)
    page.locator(f"#{picture} canvas").click(position={"x": 60, "y": 60})
    page.keyboard.press("Escape")
    for key in ("PageDown", "End"):
        before = page.evaluate("scrollY")
        page.keyboard.press(key)
        until(page, f"scrollY > {before}")
    page.keyboard.press("Home")
    until(page, "scrollY === 0")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) != picture
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(FOCUSED) == picture
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(FOCUSED) != picture


def test_tab_goes_through_the_whole_page_and_is_seen_everywhere(opened, resnet: Path) -> None:
    page = opened(resnet)
    seen = []
    for _ in range(400):
        page.keyboard.press("Tab")
        place = page.evaluate(FOCUSED)
        if place == "BODY":
            break
        assert page.evaluate(VISIBLE), place
        seen.append(place)
    assert place == "BODY"
    assert {"theme", "search", "icicle", "step", "tracks", "TR", "circle", "SUMMARY"} <= set(seen)
    tables = page.locator(".part table:visible:has(tr.leads)").count()
    assert seen.count("TR") == tables, "one stop a table"


def test_arrows_go_from_bar_to_bar_and_enter_opens_the_chain(opened, resnet: Path) -> None:
    page = opened(resnet)
    whole = drawing(page, "icicle")
    page.evaluate("scrollTo(0, 1e6)")
    page.focus("#icicle")
    titles = []
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
        drawing(page, "icicle")
        titles.append(page.locator("#tooltip b").inner_text())
    assert titles == ["ResNet", "blocks", "stem", "blocks", "ResNet"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#chain-title").inner_text() == "blocks"
    assert page.evaluate(FOCUSED) == "chain"
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "chain-zoom"
    page.keyboard.press("Escape")
    assert page.locator("#chain").is_hidden()
    assert page.evaluate(FOCUSED) == "icicle"
    chosen = drawing(page, "icicle")
    page.keyboard.press("+")
    assert drawing(page, "icicle") != chosen
    page.keyboard.press("-")
    page.keyboard.press("Escape")
    assert drawing(page, "icicle") != whole, "the bar is still marked"
    page.focus("#tracks")
    page.keyboard.press("ArrowDown")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#chain-body .here").is_visible()


def test_shift_and_arrows_measure_from_bar_to_bar(opened, resnet: Path) -> None:
    page = opened(resnet)
    page.focus("#tracks")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.locator("#chain").is_hidden()
    title = page.locator("#chain-title")
    widths = []
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
        assert page.evaluate(FOCUSED) == "tracks", "to go on"
        widths.append(milliseconds(title.inner_text()))
    assert widths[0] > 0
    assert widths == sorted(set(widths)), "each time one bar more"
    page.keyboard.press("Shift+ArrowLeft")
    assert milliseconds(title.inner_text()) == widths[1]
    assert "By op" in page.locator("#chain-body").inner_text()
    drawn = drawing(page, "tracks")
    page.keyboard.press("Escape")
    assert page.locator("#chain").is_hidden()
    assert drawing(page, "tracks") != drawn, "the span is gone"
    page.keyboard.press("Enter")
    assert milliseconds(title.inner_text()) > 0, "of the part that is selected"
    assert page.evaluate(FOCUSED) == "chain"
    assert violations(page) == []
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUSED) == "tracks"


def milliseconds(title: str) -> float:
    """Of `1.2 ms of step 6, from ...`."""
    number, unit = title.split()[:2]
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


def test_rows_by_keyboard(opened, resnet: Path) -> None:
    page = opened(resnet)
    page.locator("#ops tbody tr").first.focus()
    page.keyboard.press("ArrowDown")
    row = page.locator("#ops tbody tr").nth(1)
    assert row.evaluate("row => row === document.activeElement")
    page.keyboard.press("Enter")
    assert page.locator("#chain-title").inner_text() in row.inner_text()
    page.keyboard.press("Escape")
    assert row.evaluate("row => row === document.activeElement")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) != "TR"


def violations(page) -> list[list[str]]:
    """What axe-core finds on a page with all its parts open: rules, and the first elements that break it."""
    try:
        script = viewers.axe()
    except viewers.NotThereError as error:
        pytest.skip(str(error))
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.evaluate(script)
    checked = "options => axe.run(document, options).then(found => found.violations.map(" + (
        "each => [each.id, ...each.nodes.slice(0, 3).map(node => node.html.slice(0, 150))]))"
    )
    return page.evaluate(checked, {"runOnly": {"type": "tag", "values": WCAG}})


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing(opened, resnet: Path, width: int, scheme: str) -> None:
    page = opened(resnet, width, scheme)
    assert violations(page) == []
    page.locator("#ops tbody tr").first.click()
    page.click("#ops th button >> nth=0")
    assert page.locator("#chain").is_visible()
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_a_page_of_text_alone(chromium, folder: Path, scheme: str) -> None:
    """Those of a job and a fleet; here the whole report of a trace."""
    path = folder / "document.html"
    path.write_text(render_document("report", render(Reading(load(RESNET), "resnet34.trace"))))
    context = chromium.new_context(viewport={"width": 390, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(path.as_uri())
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_axe_sees_what_cannot_be_read(opened, training: Path) -> None:
    page = opened(training)
    page.add_style_tag(content="p { color: #ccc; background: #fff; }")
    assert "color-contrast" in [rule for rule, *_ in violations(page)]


@pytest.mark.parametrize("width", [320, 390, 620, 1024, 1440, 2560])
def test_the_body_never_scrolls_sideways(opened, resnet: Path, width: int) -> None:
    page = opened(resnet, width)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#ops tbody tr").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


LONGEST = """() => Math.max(...[...document.querySelectorAll("p:not(.legend), dd, #answer li")].map(each => {
  const range = new Range();
  range.selectNodeContents(each);
  const lines = new Set([...range.getClientRects()].map(box => Math.round(box.bottom / 12))).size;
  return each.textContent.length / Math.max(lines, 1);
}))"""
"""Characters of the longest line of text, about"""


def test_on_a_large_screen_pictures_are_wide_and_text_is_not(opened, resnet: Path) -> None:
    page = opened(resnet, 2560)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    for picture in ("icicle", "tracks"):
        assert page.locator(f"#{picture}").bounding_box()["width"] > 2400
    assert page.evaluate(LONGEST) <= 110
    assert page.locator("#roofline svg").bounding_box()["width"] <= 1280, "its letters grow with it"


@pytest.mark.parametrize("width", [360, 400, 1280])
def test_no_link_is_cut_off_and_no_unit_is_on_another_line(opened, training: Path, width: int) -> None:
    page = opened(training, width)
    last = page.locator("nav a").last.bounding_box()
    assert last["x"] + last["width"] <= width
    assert page.evaluate(SPLIT, ".part, #step-parts, #about") == []


def test_a_word_longer_than_the_first_screen_is_broken(opened, training: Path) -> None:
    page = opened(training, 320)
    texts = page.locator(".first button span, .first code")
    assert texts.count() >= 2
    texts.evaluate_all("all => all.forEach(each => { each.textContent = 'x'.repeat(200); })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("word", ["n" * 8000, "a.b_c" * 1600, "/d" * 4000], ids=["letters", "dots", "path"])
def test_names_of_any_length_make_no_page_wide(opened, folder: Path, word: str) -> None:
    """They were 85,000 pixels: of a stranger's trace each name, also in lists and texts, has any length."""
    trace = load(hostile.write(folder / "long.trace", word))
    page = opened(written(folder / "long.html", Reading(trace, "long.trace")), 400)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_each_row_shows_its_first_number_and_its_name_at_every_width(
    opened, resnet: Path, width: int
) -> None:
    page = opened(resnet, width)
    for section in ("ops", "sources", "modules", "summary", "kernels_to_gain", "backward"):
        row = page.locator(f"#{section} tbody tr").first
        row.scroll_into_view_if_needed()
        for cell in (row.locator("td").first, row.locator("td:has(code)").first):
            box = cell.bounding_box()
            assert box["x"] >= 0, section
            assert box["x"] + box["width"] <= width + 1, section


def test_nothing_moves_and_the_printed_page_has_all_rows(opened, many: Path) -> None:
    page = opened(many, 1000, "dark")
    moving = "[...document.querySelectorAll('*')].filter(each => { const style = getComputedStyle(each); "
    moving += "return style.animationName !== 'none' || parseFloat(style.transitionDuration) > 0 || "
    assert page.evaluate(f"{moving} style.scrollBehavior === 'smooth'; }}).length") == 0
    hidden = page.locator("#ops tbody tr[hidden]").first
    assert hidden.is_hidden()
    page.emulate_media(media="print")
    assert hidden.is_visible()
    assert page.locator("nav").is_hidden()
    assert page.locator("#zoom-in").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_link_of_the_section_one_is_in_is_marked(opened, resnet: Path) -> None:
    page = opened(resnet)
    for section in ("Ops", "Modules"):
        page.locator("nav a", has_text=section).first.click()
        marked = page.locator("nav a[aria-current]")
        marked.get_by_text(section, exact=True).wait_for()
        assert marked.count() == 1
        box = marked.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1000
