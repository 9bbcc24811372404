"""The HTML page in a browser: click, search, zoom, light and dark, wide and narrow, hostile names."""

from __future__ import annotations

import re
from pathlib import Path

import gpu_trace
import hostile
import pytest
import test_report
from frames import TraceBuilder
from made_pages import RESNET, drawing, written

from tracer.analysis import surveys
from tracer.analysis.gaps import gaps_of_recording
from tracer.analysis.source_lines import SourceLines
from tracer.analysis.step_times import step_times
from tracer.report.reading import Reading
from tracer.report.step_tables import summary
from tracer.report.text import count, duration
from tracer.trace import load

RANGES = 238  # pixels from the top of the timeline to the first range
BAR = 19  # pixels from a bar to the one below it
SIZES = [(1000, "light"), (1000, "dark"), (400, "light"), (400, "dark")]


def choose(page, name: str, value: str) -> None:
    page.locator(f"#{name} label", has_text=re.compile(f"^{value}$")).click()
    drawing(page, "icicle")


def click_bar(page, level: int, x: float = 60) -> None:
    drawing(page, "icicle")
    page.mouse.move(1, 1)
    page.locator("#icicle canvas").click(position={"x": x, "y": 23 + BAR * level + 9})


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_page_fits_and_has_its_colours(opened, resnet: Path, width: int, scheme: str) -> None:
    page = opened(resnet, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    for holder in ("icicle", "tracks"):
        canvas = page.locator(f"#{holder} canvas")
        box = canvas.bounding_box()
        assert 0.85 * width < box["width"] <= width
        drawing(page, holder)
        corner = page.evaluate(
            "canvas => [...canvas.getContext('2d')"
            ".getImageData(canvas.width - 2, canvas.height - 2, 1, 1).data]",
            canvas.element_handle(),
        )
        assert (sum(corner[:3]) > 3 * 128) == (scheme == "light")
    for button in page.locator("button:visible, fieldset label").all():
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_the_theme_switch_is_stronger_than_the_system(opened, resnet: Path) -> None:
    page = opened(resnet, 1000, "dark")
    dark = drawing(page, "icicle")
    page.select_option("#theme", "light")
    light = drawing(page, "icicle")
    assert light != dark
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.select_option("#theme", "")
    assert drawing(page, "icicle") == dark


def test_a_click_on_a_bar_shows_its_chain_down_to_the_kernel(opened, resnet: Path) -> None:
    page = opened(resnet)
    choose(page, "measure", "GPU time")
    choose(page, "grouping", "op")
    click_bar(page, 0)
    page.keyboard.press("Escape")
    page.mouse.move(500, 5)  # flame-chart-js must not take leaving the canvas for a click
    page.wait_for_timeout(100)
    assert not page.locator("#chain").is_visible()
    click_bar(page, 0)
    assert page.locator("#chain-title").inner_text() == "aten::convolution_backward [AutogradCUDA]"
    links = page.locator("#chain-body .links").first.locator("li")
    kinds = [row.locator(".what").inner_text() for row in links.all()]
    assert kinds == ["module", "line", "op", "redispatch", "library call", "API call", "kernel"]
    text = page.locator("#chain-body").inner_text()
    for part in (
        "resnet34.py:",
        "backward: ConvolutionBackward0",
        "kernel function wrapper_CUDA__convolution_backward",
        "registered at RegisterCUDA_0.cpp:7344",
        "cudnnBackendExecute",
        "Asked for by",
    ):
        assert part in text
    page.locator("#chain-body button", has_text="cudaLaunchKernel").first.click()
    assert page.locator("#chain-title").inner_text().startswith("cudaLaunchKernel")
    page.keyboard.press("Escape")
    assert not page.locator("#chain").is_visible()


def test_a_group_shows_its_heaviest_chain(opened, resnet: Path) -> None:
    page = opened(resnet)
    click_bar(page, 0)
    assert page.locator("#chain-title").inner_text() == "ResNet"
    click_bar(page, 1)
    assert page.locator("#chain-title").inner_text() == "blocks"
    assert "Below: the heaviest of" in page.locator("#chain-body").inner_text()


def test_search_counts_what_matches_and_enter_zooms(opened, resnet: Path) -> None:
    page = opened(resnet)
    before = drawing(page, "icicle")
    page.fill("#search", "CONV2D")
    found = page.locator("#found").inner_text()
    assert re.match(r"[\d,]+ bars: [\d.]+ ms, [\d.]+ %\. Enter", found)
    assert drawing(page, "icicle") != before
    page.press("#search", "Enter")
    assert page.locator("#chain-title").inner_text() == "aten::conv2d [AutogradCUDA]"
    page.press("#search", "Escape")
    assert page.locator("#found").inner_text() == ""
    page.click("#zoom-reset")
    page.fill("#search", "no such thing")
    assert page.locator("#found").inner_text() == "No bar matches."


def test_matches_within_a_match_count_once(opened, training: Path) -> None:
    page = opened(training)
    in_ops = Reading(test_report.training(), "t").time_in_ops_ns
    page.fill("#search", "::")
    assert f": {duration(in_ops)}, 99.7 %" in page.locator("#found").inner_text()


def test_time_outside_ops_is_a_root_with_its_lines_and_its_sum_is_that_of_the_gaps(
    opened, resnet: Path
) -> None:
    trace = load(RESNET)
    outside = gaps_of_recording(trace)
    page = opened(resnet)
    assert "outside ops" in page.locator("#legend").inner_text()
    for grouping in ("module", "line", "op", "key"):
        choose(page, "grouping", grouping)
        note = page.locator("#icicle-note").inner_text()
        assert f"summed over threads, and {duration(outside.outside_ns)} outside ops." in note
        page.fill("#search", "outside ops")
        assert f": {duration(outside.outside_ns)}, " in page.locator("#found").inner_text()
        pair = outside.table.row(0, named=True)
        page.fill("#search", f"{short(trace, pair['before'])} -> {short(trace, pair['after'])}")
        assert f": {duration(pair['total_ns'])}, " in page.locator("#found").inner_text()
        page.fill("#search", "")


def short(trace, line: str) -> str:
    return SourceLines.of(trace).name(line)


def test_the_first_screen_says_where_a_step_goes(opened, resnet: Path) -> None:
    page = opened(resnet)
    words = page.locator("#step-parts .legend > span").all_inner_texts()
    assert words
    said = summary(step_times(load(RESNET)))
    assert said.endswith(f"Of their wall time: {', '.join(words)}.")
    bar = page.locator("#step-parts .phases")
    whole = bar.bounding_box()
    assert whole["y"] + whole["height"] < 400
    for part, text in zip(bar.locator("span").all(), words, strict=True):
        share = float(text.removeprefix("< ").split()[0])
        assert part.bounding_box()["width"] / whole["width"] == pytest.approx(share / 100, abs=0.02)
    assert page.locator(".verdict").bounding_box()["width"] < 500, "a badge"
    for place, button in enumerate(page.locator(".first[data-of=sources] button").all()):
        row = page.locator("#sources tbody tr").nth(place)
        assert set(button.inner_text().split()) <= set(row.inner_text().split())
        button.click()
        assert page.locator("#chain-title").inner_text() in row.inner_text()
        page.keyboard.press("Escape")
    assert place == 2
    assert page.locator(".words dd").first.is_hidden()
    page.locator(".words summary").click()
    assert page.locator(".words dt", has_text="hop").is_visible()


def test_the_first_screen_has_the_advice_that_the_report_has(opened, folder: Path) -> None:
    trace = load(RESNET.with_name("gru.trace.xz"))
    page = opened(written(folder / "gru.html", Reading(trace, "gru.trace")))
    buttons = page.locator(".first[data-of=advice] button").all()
    assert 0 < len(buttons) <= 3
    for place, button in enumerate(buttons):
        row = page.locator("#advice tbody tr").nth(place).inner_text()
        assert set(button.inner_text().split()) <= set(row.split())
    buttons[0].press("Enter")
    assert page.locator("#chain").is_visible()
    assert page.locator("#chain-title").inner_text() in buttons[0].inner_text()


def test_zoom_by_buttons_wheel_and_double_click(opened, resnet: Path) -> None:
    page = opened(resnet)
    for prefix, holder in (("zoom", "icicle"), ("timeline", "tracks")):
        page.evaluate(f"document.getElementById('{holder}').scrollIntoView({{block: 'center'}})")
        whole = drawing(page, holder)
        page.click(f"#{prefix}-in")
        zoomed = drawing(page, holder)
        assert zoomed != whole
        page.click(f"#{prefix}-out")
        page.click(f"#{prefix}-reset")
        page.mouse.move(1, 1)
        assert drawing(page, holder) == whole
    page.evaluate("scrollTo(0, 0)")
    whole = drawing(page, "icicle")
    box = page.locator("#icicle canvas").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 150)
    page.mouse.wheel(0, 120)
    page.wait_for_timeout(200)
    assert page.evaluate("scrollY") > 0  # without Ctrl the page scrolls
    page.evaluate("scrollTo(0, 0)")
    page.mouse.move(box["x"] + 101, box["y"] + 150)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -240)
    page.keyboard.up("Control")
    page.wait_for_timeout(200)
    page.mouse.move(1, 1)
    wheeled = drawing(page, "icicle")
    assert wheeled != whole
    page.click("#zoom-reset")
    page.locator("#icicle canvas").dblclick(position={"x": 500, "y": 23 + 9 + BAR})
    page.keyboard.press("Escape")
    assert drawing(page, "icicle") not in (whole, wheeled)


def test_the_tooltip_is_not_above_the_panel(opened, resnet: Path) -> None:
    page = opened(resnet, 400)
    click_bar(page, 2)
    page.wait_for_timeout(100)
    box = page.locator("#tooltip").bounding_box() if page.locator("#tooltip").is_visible() else None
    panel = page.locator("#chain").bounding_box()
    assert box is None or box["y"] < panel["y"]


def test_the_totals_are_those_of_the_tables(opened, resnet: Path, training: Path) -> None:
    trace = load(RESNET)
    reading = Reading(trace, "t")
    in_ops = duration(reading.time_in_ops_ns)
    on_gpu = duration(int((trace.gpu_activities["end_ns"] - trace.gpu_activities["start_ns"]).sum()))
    page = opened(resnet)
    for grouping in ("module", "line", "op", "key"):
        choose(page, "grouping", grouping)
        for measure, total in (
            ("host time", in_ops),
            ("GPU time", on_gpu),
            ("calls", count(len(trace.hops), "call")),
        ):
            choose(page, "measure", measure)
            assert f"All {total} " in page.locator("#icicle-note").inner_text(), (grouping, measure)
    keys = surveys.per_key(test_report.training().hops)
    page = opened(training)
    choose(page, "grouping", "key")
    for key, self_ns in keys.select("key", "self_ns").rows():
        page.fill("#search", "")
        page.fill("#search", f"[{key}]")
        assert f": {duration(self_ns)}, " in page.locator("#found").inner_text()


def test_rows_of_tables_lead_to_chains(opened, resnet: Path) -> None:
    page = opened(resnet)
    for section, part in (
        ("ops", "aten::"),
        ("kernels_to_gain", "sm90_xmma_wgrad_indexed_implicit_gemm"),
        ("sources", "resnet34.py:"),
        ("modules", "module"),
        ("keys", "Autograd"),
        ("paths", "aten::convolution_backward"),
    ):
        page.keyboard.press("Escape")
        row = page.locator(f"#{section} tbody tr.leads").first
        row.scroll_into_view_if_needed()
        row.locator("td").first.click()
        assert page.locator("#chain").is_visible(), section
        assert part in page.locator("#chain").inner_text()
    page.keyboard.press("Escape")
    page.locator(".point").first.scroll_into_view_if_needed()
    page.locator(".point").last.click()
    assert page.locator("#chain-body .here .what").inner_text() == "kernel"


def test_a_row_of_a_step_chooses_it_in_the_timeline(opened, resnet: Path) -> None:
    page = opened(resnet)
    for step, number, wall in (("5", "0", "35.0 ms"), ("6", "1", "23.2 ms"), ("5", "0", "35.0 ms")):
        row = page.locator("#steps tbody tr", has_text=re.compile(rf"\s{step}\s*$"))
        row.locator("td").first.click()
        assert page.locator("#step").input_value() == number
        assert wall in page.locator("#timeline-note").inner_text()


def test_a_call_of_the_timeline_has_its_chain(opened, resnet: Path) -> None:
    page = opened(resnet)
    page.evaluate("document.getElementById('tracks').scrollIntoView({block: 'center'})")
    canvas = page.locator("#tracks canvas")
    before = drawing(page, "tracks")
    height = canvas.bounding_box()["height"]
    for x in range(300, 960, 3):  # kernels are narrow: until one is met
        canvas.click(position={"x": x, "y": height - 19})
        if page.locator("#chain").is_visible():
            break
    here = page.locator("#chain-body .here .what").inner_text()
    assert here in ("kernel", "copy", "fill")
    page.keyboard.press("Escape")
    page.mouse.move(1, 1)
    assert drawing(page, "tracks") != before  # with its arrow


def test_ranges_are_slices_above_the_calls_of_their_thread(opened, resnet: Path) -> None:
    page = opened(resnet)
    page.evaluate("document.getElementById('tracks').scrollIntoView({block: 'start'})")
    canvas = page.locator("#tracks canvas")
    seen = set()
    for x in range(10, 960, 6):
        canvas.hover(position={"x": x, "y": RANGES})
        if page.locator("#tooltip").is_visible():
            seen.add(page.locator("#tooltip").inner_text().split("\n")[0])
    assert any(name.startswith("Optimizer.step#SGD.step") for name in seen), seen
    canvas.click(position={"x": x, "y": RANGES})
    assert "of step 6, from" in page.locator("#chain-title").inner_text(), "what ran in the range"
    assert "range" in page.locator("#timeline-legend").inner_text().split()
    assert "range" not in page.locator("#legend").inner_text().split(), "none is drawn there"


def test_names_of_a_trace_are_text(opened, folder: Path) -> None:
    evil = (
        "</script><script>window.pwned = 1; alert(1)</script><img src=x onerror=alert(2)>"
        " # H [l](javascript:alert(3)) `x` |y| <b>b</b> \x1b[31m\u202e\n\n<details open ontoggle=alert(4)>"
    )
    path = hostile.write(folder / "evil.trace", evil)
    page = opened(written(folder / "evil.html", Reading(load(path), evil)))
    assert page.evaluate("window.pwned") is None
    assert page.locator("img, b:not(#tooltip b, .facts b), h1 *").count() == 0
    assert page.evaluate("document.title").startswith("</script><script>window.pwned = 1")
    for grouping in ("module", "line", "op", "key"):
        choose(page, "grouping", grouping)
        for level in range(4):
            click_bar(page, level)
    choose(page, "grouping", "line")
    seen = ""
    for x in (20, 200, 500, 900):
        click_bar(page, 1, x)
        seen += page.locator("#chain").inner_text()
    assert "called from " in seen  # the stack
    text = page.locator("#chain").inner_text()
    assert "<script>window.pwned = 1; alert(1)</script><img src=x onerror=alert(2)>" in text
    assert "\\x1b[31m" in text
    for row in page.locator("tr.leads").all():
        row.evaluate("row => row.click()")
    page.fill("#search", "<script>")
    assert "bar" in page.locator("#found").inner_text()
    shown = page.locator("body").inner_text()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e]", shown)
    assert page.evaluate("window.pwned") is None


@pytest.mark.parametrize("only", [None, "cuda", "kernels"])
def test_any_trace_opens(opened, folder: Path, only: str | None) -> None:
    traces = {
        "gpu": load(gpu_trace.PATH),
        "cpu": test_report.training(),
        "none": TraceBuilder().trace(),
    }
    for name, trace in traces.items():
        page = opened(written(folder / f"{name}.html", Reading(trace, name, only=only)))
        assert page.locator("#failure").is_hidden()


def test_without_javascript_the_tables_are_there(chromium, resnet: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(resnet.as_uri())
    assert "which is off" in page.locator("noscript").inner_text()
    assert page.locator("#ops tbody tr").count() > 10
    context.close()
