"""What pages of large traces take to open: from the address to all pictures drawn and tables in use."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from made_pages import drawing, written
from synthetic import TraceWriter

from tracer.report.reading import Reading
from tracer.trace import Trace, load

HOPS_IN_A_CALL = 5
TRIES = 3
SECONDS = 3


def large(path: Path, calls: int) -> Trace:
    """2,000 lines and 300 ops, in each call four hops whose order is another one from call to call."""
    writer = TraceWriter()
    writer.process()
    for number in range(300):
        writer.hop(number, f"aten::op{number}")
    lane = writer.lane()
    for number in range(2000):
        lane.define_source(number + 1, f"file{number % 50}.py", number)
    for number in range(calls):
        lane.enter(number % 299, source=number % 2000 + 1)
        for _ in range(2):
            for level in range(2):
                lane.enter((number * (level + 2)) // 7 % 300)
            for _level in range(2):
                lane.exit()
        lane.exit()
    return load(writer.write(path))


def cpu_seconds(page) -> float:
    """Of the process that shows the page: other work on this machine does not count."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "ProcessTime")


@pytest.fixture(scope="module")
def many(folder: Path) -> Path:
    """A page of 100,000 calls."""
    return written(folder / "many.html", Reading(large(folder / "many.trace", 20_000), "many.trace"))


def test_a_hundred_thousand_distinct_calls_open_quickly(opened, many: Path) -> None:
    begin = time.monotonic()
    page = opened(many)
    assert time.monotonic() - begin < 15
    page.locator("#measure label", has_text=re.compile("^calls$")).click()
    drawing(page, "icicle")
    assert "All 100,000 calls " in page.locator("#icicle-note").inner_text()


def test_bars_too_narrow_to_be_seen_are_made_when_the_page_is_idle(opened, many: Path) -> None:
    """To make all bars took half of the time until the page could be used."""
    page = opened(many, first="window.requestIdleCallback = (work) => { window.idle = work; }")
    frames = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(frames)
    picture = "() => document.querySelector('#icicle canvas').toDataURL()"
    few = page.evaluate(picture)
    page.evaluate("window.idle()")
    page.evaluate(frames)
    assert page.evaluate(picture) != few


def test_a_browser_without_idle_callbacks_makes_them_too(opened, many: Path) -> None:
    """Safari has none."""
    picture = "() => document.querySelector('#icicle canvas').toDataURL()"
    whole = opened(many, first="window.requestIdleCallback = (work) => work()")
    whole.wait_for_timeout(500)
    page = opened(many, first="window.requestIdleCallback = undefined")
    page.wait_for_function(f"(whole) => ({picture})() === whole", arg=whole.evaluate(picture))


def test_bars_too_narrow_to_be_seen_are_found(opened, many: Path) -> None:
    said = []
    for idle in ("() => 0", "(work) => work()"):
        page = opened(many, first=f"window.requestIdleCallback = {idle}")
        page.locator("#search").fill("op7 ")
        said.append(page.locator("#found").inner_text())
    assert said[0] == said[1]
    assert int(said[0].split(" bars: ")[0].replace(",", "")) > 100


@pytest.mark.slow
def test_a_page_of_a_million_hops_opens_within_three_seconds(opened, folder: Path) -> None:
    trace = large(folder / "million.trace", 200_000)
    assert len(trace.hops) == 200_000 * HOPS_IN_A_CALL
    path = written(folder / "million.html", Reading(trace, "million.trace"))
    taken = [cpu_seconds(opened(path)) for _ in range(TRIES)]
    print(f"{path.stat().st_size / 1e6:.1f} MB, opened in {min(taken):.1f} s of CPU")
    assert min(taken) <= SECONDS, taken
