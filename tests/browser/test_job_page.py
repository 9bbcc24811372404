"""The page of a job: its ranks below each other on one clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_pages import drawing
from test_message_waits import RECEIVES, SENDS, Peer
from test_page_by_keyboard import FOCUSED, SENT, TAKEN, VISIBLE, violations
from test_ranks_side_by_side import straggler

from tracer.analysis.job.folder import load_job
from tracer.report.html.job import render_job

HOLDER = "ranks-chart"
REASON = "/work/train.py:1 -> /work/train.py:3 took 4.0 ms longer than on the other ranks"


def written(folder: Path) -> Path:
    path = folder.with_name(f"{folder.name}.html")
    path.write_text(render_job(load_job(folder), folder.name))
    return path


@pytest.fixture(scope="module")
def late(folder: Path) -> Path:
    """Rank 1 comes 3 ms after the others in each of four steps of 10 ms."""
    return written(straggler(folder / "late"))


def pressed(page, *keys: str) -> list[str]:
    """What the tooltip says after each of the keys."""
    titles = []
    for key in keys:
        page.keyboard.press(key)
        drawing(page, HOLDER)
        titles.append(page.locator("#tooltip").inner_text().replace("\n", " "))
    return titles


def test_arrows_go_through_the_ranks_and_enter_says_who_was_last_and_why(opened, late: Path) -> None:
    page = opened(late)
    page.focus(f"#{HOLDER}")
    keys = ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowDown", "ArrowUp")
    titles = pressed(page, *keys)
    assert [title.split(":")[0] for title in titles] == [
        *("step 0 rank 0", "forward rank 0", "c10d", "c10d", "step 1 rank 1", "c10d")
    ]
    assert "rank 0, step 0: 3.0 ms waited" in titles[2]
    assert REASON in titles[2]
    assert "rank 0, step 1: 3.0 ms waited" in titles[3]
    assert titles[5] == titles[3]
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "chain"
    assert page.locator("#chain-title").inner_text() == "c10d::allreduce_"
    rows = page.locator("#chain .links > li").all_inner_texts()
    assert [" ".join(row.split("\n")[:2]) for row in rows] == [
        "line /work/train.py:2",
        "op c10d::allreduce_",
        "last rank 1",
        "rank 0 came first",
        "rank 2 came 0.00 us later",
        "rank 1 came 3.0 ms later",
    ]
    assert REASON in rows[2]
    assert violations(page) == []
    page.locator("#chain .links button", has_text="3.0 ms later").press("Enter")
    assert page.locator("#chain .here").inner_text().startswith("rank 1")
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUSED) == HOLDER
    assert page.locator("#chain").is_hidden()


def test_the_picture_takes_its_keys_and_no_other(opened, late: Path) -> None:
    page = opened(late)
    page.focus(f"#{HOLDER}")
    taken = {key: page.evaluate(SENT, [HOLDER, key]) for key in [*TAKEN, "Tab", "PageDown", "Control+f"]}
    assert [key for key, prevented in taken.items() if prevented] == TAKEN
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.focus("body")
    for _ in range(200):
        page.keyboard.press("Tab")
        place = page.evaluate(FOCUSED)
        if place == "BODY":
            break
        assert page.evaluate(VISIBLE), place
    assert place == "BODY"


def test_a_click_opens_the_chain_and_a_step_is_chosen(opened, late: Path) -> None:
    page = opened(late)
    page.select_option("#step", "2")
    drawing(page, HOLDER)
    canvas = page.locator(f"#{HOLDER} canvas")
    box = canvas.bounding_box()
    rank, level = 30 + 24 + 19, 19  # the strip, the axis and a title; a bar
    canvas.click(position={"x": box["width"] * 0.2, "y": rank + 2.5 * level})
    assert page.locator("#chain-title").inner_text() == "c10d::allreduce_"
    assert "step 2" in page.locator("#chain .facts").inner_text()
    canvas.click(position={"x": box["width"] * 0.2, "y": rank + 0.5 * level})
    assert page.locator("#chain-title").inner_text() == "step 2"
    assert "c10d::allreduce_" in page.locator("#chain-body").inner_text()


def test_search_marks_bars_and_enter_goes_to_the_longest(opened, late: Path) -> None:
    page = opened(late)
    before = drawing(page, HOLDER)
    page.fill("#search", "allreduce")
    assert page.locator("#found").inner_text() == "12 bars. Enter: zoom to the longest."
    assert drawing(page, HOLDER) != before
    page.press("#search", "Enter")
    assert page.locator("#chain-title").inner_text() == "c10d::allreduce_"
    page.fill("#search", "nothing like it")
    assert page.locator("#found").inner_text() == "No bar matches."
    page.press("#search", "Escape")
    assert page.locator("#found").inner_text() == ""


def test_rows_lead_to_the_longest_wait_they_are_about(opened, late: Path) -> None:
    page = opened(late)
    page.locator("#collectives tbody tr").first.press("Enter")
    assert page.locator("#chain-title").inner_text() == "c10d::allreduce_"
    assert page.evaluate(FOCUSED) == "chain"
    assert page.locator("#ops tr.leads").count() == 1, "of an op that computes there is no bar"


def test_messages_lead_to_the_line_that_sent_them_late(opened, folder: Path) -> None:
    Peer(0).at(1, 0).at(9, SENDS, peer=1, line=3).write(folder / "pipe")
    Peer(1).at(1, 0).at(2, RECEIVES, peer=0, line=2).write(folder / "pipe")
    page = opened(written(folder / "pipe"))
    page.locator("#messages-between-ranks tbody tr.leads").first.click()
    assert page.locator("#chain-title").inner_text() == "receive from rank 0"
    said = page.locator("#chain-body").inner_text()
    assert "/work/pipe.py:3" in said
    assert "7.0 ms waited" in said


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_nobody_is_kept_out(opened, late: Path, width: int, scheme: str) -> None:
    page = opened(late, width, scheme)
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
