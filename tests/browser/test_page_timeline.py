"""The timeline of the HTML page: its tracks, the minimap, and what ran in a span."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from made_pages import RESNET, drawing

from tracer.analysis.step_times import step_times
from tracer.report.text import duration
from tracer.trace import Trace, load

MEMORY = 150  # pixels from the top of the timeline, without a GPU
AXIS = 40  # pixels from the top of the timeline
WRITTEN = """() => {
  window.written = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.written.push(text);
    return write.call(this, text, ...place);
  };
}"""


@pytest.fixture(scope="module")
def trace() -> Trace:
    return load(RESNET)


@pytest.fixture
def page(opened, resnet: Path):
    page = opened(resnet)
    page.evaluate("document.getElementById('timeline').scrollIntoView({block: 'start'})")
    return page


def written(page, act) -> list[str]:
    page.evaluate(WRITTEN)
    act()
    drawing(page, "tracks")
    return page.evaluate("window.written")


def drag(page, y: int, start: float, end: float, key: str = "") -> None:
    """From one share of the timeline's width to another."""
    box = page.locator("#tracks canvas").bounding_box()
    if key:
        page.keyboard.down(key)
    page.mouse.move(box["x"] + start * box["width"], box["y"] + y)
    page.mouse.down()
    page.mouse.move(box["x"] + (start + end) / 2 * box["width"], box["y"] + y)
    page.mouse.move(box["x"] + end * box["width"], box["y"] + y)
    page.mouse.up()
    if key:
        page.keyboard.up(key)


def facts(page) -> dict[str, str]:
    """Of the panel: name and value."""
    found = page.locator("#chain-body .facts > span").evaluate_all(
        "all => all.map(each => [each.firstChild.textContent.trim(), each.querySelector('b').textContent])"
    )
    return dict(found)


def rows(page, title: str) -> dict[str, str]:
    """Of a list of the panel: name and cost."""
    list_ = page.locator(f"#chain-body h3:text-is('{title}') + ol > li")
    return {
        row.locator(".name button").inner_text(): row.locator(".cost").inner_text() for row in list_.all()
    }


def test_the_step_its_parts_waits_and_busy_gpu_have_tracks(page, trace: Trace) -> None:
    row = step_times(trace).filter(pl.col("name") == "6").row(0, named=True)
    texts = written(page, lambda: page.select_option("#step", "1"))
    busy = 100 * row["gpu_busy_ns"] / row["wall_ns"]
    for text in ("steps and their parts", "step 6", "forward", "backward", "optimizer"):
        assert text in texts
    assert "host waits for the GPU" in texts
    assert f"GPU busy: {busy:.1f} % of the step" in texts


def test_the_memory_of_a_step_has_a_curve(opened, with_memory: Path) -> None:
    page = opened(with_memory)
    texts = written(page, lambda: page.click("#timeline-in"))
    assert "memory of cpu: at most 4.0 KiB" in texts
    page.click("#timeline-reset")
    page.locator("#tracks canvas").hover(position={"x": 990 - 60, "y": MEMORY})
    assert page.locator("#tooltip").inner_text() == "4.0 KiB"
    page.locator("#tracks canvas").hover(position={"x": 5, "y": MEMORY})
    assert page.locator("#tooltip").inner_text() == "0 B"
    page.locator("#tracks canvas").hover(position={"x": 5, "y": AXIS})
    assert page.locator("#tooltip").is_hidden()


def test_the_minimap_shows_what_it_is_dragged_over(page) -> None:
    whole = drawing(page, "tracks")
    texts = written(page, lambda: drag(page, 15, 0.5, 0.6))
    times = [float(text.split()[0]) for text in texts if re.fullmatch(r"[\d.]+ ms", text)]
    assert min(times) >= 0.5 * 23.2 - 0.1
    assert max(times) <= 0.6 * 23.2 + 0.1
    zoomed = drawing(page, "tracks")
    assert page.locator("#chain").is_hidden()
    box = page.locator("#tracks canvas").bounding_box()
    page.mouse.click(box["x"] + 0.1 * box["width"], box["y"] + 15)
    page.mouse.move(1, 1)
    assert drawing(page, "tracks") not in (zoomed, whole), "a click goes there"
    page.click("#timeline-reset")
    page.mouse.move(1, 1)
    assert drawing(page, "tracks") == whole


def test_a_whole_step_measured_has_the_figures_of_its_row(page, trace: Trace) -> None:
    drag(page, 300, 0, 1, "Shift")
    row = step_times(trace).filter(pl.col("name") == "6").row(0, named=True)
    assert page.locator("#chain-title").inner_text().startswith(f"{duration(row['wall_ns'])} of step 6")
    said = facts(page)
    for part in ("forward", "backward", "optimizer"):
        share = 100 * row[f"{part}_ns"] / row["wall_ns"]
        assert said[part] == f"{duration(row[f'{part}_ns'])} ({share:.1f} %)"
    assert said["elsewhere"].startswith(duration(row["outside_ns"]))
    hops = trace.hops.filter((pl.col("step") == 6) & pl.col("parent").is_null())
    by_op = hops.group_by(pl.col("op").cast(str), pl.col("key").cast(str)).agg(
        calls=pl.len(), ns=(pl.col("end_ns") - pl.col("start_ns")).sum()
    )
    expected = {f"{op} [{key}]": (calls, ns) for op, key, calls, ns in by_op.rows()}
    found = rows(page, "By op")
    assert len(found) >= 5
    for name, cost in found.items():
        calls, ns = expected[name]
        assert cost.startswith(f"{duration(ns)} ("), name
        assert cost.endswith(f", {calls:,} x"), name
    lines = set(rows(page, "By line"))
    assert {name.split(":")[0] for name in lines} == {"resnet34.py", "no Python line"}
    assert rows(page, "By kernel")


def test_a_span_says_what_ran_in_it_alone(page, trace: Trace) -> None:
    row = step_times(trace).filter(pl.col("name") == "6").row(0, named=True)
    drag(page, AXIS, 0.2, 0.3)
    assert set(facts(page)) <= {"forward", "elsewhere"}, "along the axis, in the forward pass"
    length, unit = page.locator("#chain-title").inner_text().split()[:2]
    assert unit == "ms"
    assert float(length) == pytest.approx(row["wall_ns"] / 1e7, abs=0.1)
    assert not [name for name in rows(page, "By op") if "backward" in name]
    page.keyboard.press("Escape")
    drag(page, 300, 0.2, 0.3)
    assert page.locator("#chain").is_hidden(), "a drag moves"
    page.click("#timeline-measure")
    assert page.locator("#timeline-measure").get_attribute("aria-pressed") == "true"
    drag(page, 300, 0.6, 0.7)
    assert set(facts(page)) <= {"backward", "elsewhere"}
    page.locator("#chain-body .name button").first.click()
    assert page.locator("#chain-body .here").is_visible(), "a row has its chain"
