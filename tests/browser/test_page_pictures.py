"""The pictures of the HTML page: colours of phases, what bars say."""

from __future__ import annotations

import re
from pathlib import Path

import gpu_trace
import polars as pl
import pytest
from frames import TraceBuilder, hop
from made_pages import drawing, written

from tracer.report.reading import Reading
from tracer.trace import load

# How many pixels of a picture have each of some colours.
PIXELS = """([id, colours]) => {
  const canvas = document.querySelector("#" + id + " canvas");
  const whole = new OffscreenCanvas(canvas.width, canvas.height);
  const copy = whole.getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const found = Object.fromEntries(colours.map(colour => [colour, 0]));
  for (let place = 0; place < data.length; place += 4) {
    const colour = `rgb(${data[place]}, ${data[place + 1]}, ${data[place + 2]})`;
    if (colour in found) found[colour] += 1;
  }
  return colours.map(colour => found[colour]);
}"""
# Keeps what is written on canvases from now on, in which colour and on which.
WRITTEN = """() => {
  window.written = [];
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    pixel.drawImage(this.canvas, x - 2, y - 4, 1, 1, 0, 0, 1, 1);
    const back = [...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3);
    const ink = [1, 3, 5].map(place => parseInt(this.fillStyle.slice(place, place + 2), 16));
    window.written.push([text, ink, back]);
    return write.call(this, text, x, y);
  };
}"""


def colours_of_steps(page) -> dict[str, str]:
    """Of each part in the bar of a step's parts."""
    return dict(
        page.locator("#step-parts .phases span").evaluate_all(
            "all => all.map(each => [each.className.slice(6), getComputedStyle(each).backgroundColor])"
        )
    )


def choose(page, name: str, value: str) -> None:
    page.locator(f"#{name} label", has_text=re.compile(f"^{value}$")).click()


def written_on(page, choice: tuple[str, str]) -> list:
    """What is written on the flame graph after a choice: texts, with their colours and those below."""
    page.evaluate(WRITTEN)
    choose(page, *choice)
    drawing(page, "icicle")
    return page.evaluate("window.written")


def test_calls_have_the_colours_of_the_phases_of_a_step(opened, resnet: Path) -> None:
    for scheme in ("light", "dark"):
        page = opened(resnet, scheme=scheme)
        phases = colours_of_steps(page)
        wanted = [phases[name] for name in ("forward", "backward", "optimizer")]
        before = {}
        for picture in ("icicle", "tracks"):
            drawing(page, picture)
            before[picture] = page.evaluate(PIXELS, [picture, wanted])
            assert min(before[picture]) > 100, picture
        (outside,) = page.evaluate(PIXELS, ["icicle", [phases["outside"]]])
        assert outside > 100
        legend = page.locator("#legend").inner_text()
        assert all(name in legend for name in ("forward", "backward", "optimizer", "outside ops"))
        choose(page, "colouring", "kind")
        drawing(page, "icicle")
        assert page.evaluate(PIXELS, ["icicle", wanted]) == [0, 0, 0]
        drawing(page, "tracks")
        of_parts_alone = page.evaluate(PIXELS, ["tracks", wanted])
        assert all(now < then / 1.2 for now, then in zip(of_parts_alone, before["tracks"], strict=True))
        assert "autograd" in page.locator("#legend").inner_text()
        assert "optimizer" not in page.locator("#legend").inner_text()


def test_nothing_is_black_after_the_page_was_narrowed(opened, folder: Path) -> None:
    page = opened(written(folder / "gpu.html", Reading(load(gpu_trace.PATH), "gpu")), 390)
    for width in (390, 700, 391):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(200)  # it draws 100 ms after the last resize
        drawing(page, "tracks")
        assert page.evaluate(PIXELS, ["tracks", ["rgb(0, 0, 0)"]]) == [0], width


def test_by_line_a_bar_has_its_number_and_the_text_that_it_has_room_for(opened, folder: Path) -> None:
    calls = [hop(f"aten::op{line}", "CPU", source=f"/x/a.py:{line}", self_ns=100) for line in (1, 2)]
    trace = TraceBuilder().calls(*calls, times=9).trace()
    said = {"/x/a.py:1": "c = a @ b" + " + 0" * 60, "/x/a.py:2": "d = c + b"}
    rows = [{"source": source, "text": text} for source, text in said.items()]
    trace.source_lines = pl.DataFrame(rows, trace.source_lines.schema)
    page = opened(written(folder / "said.html", Reading(trace, "said")))
    choose(page, "grouping", "op")
    texts = [text for text, *_ in written_on(page, ("grouping", "line"))]
    assert "a.py:2  d = c + b" in texts
    (long,) = [text for text in texts if text.startswith("a.py:1  ")]
    assert long.endswith("\u2026")
    assert f"a.py:1  {said['/x/a.py:1']}".startswith(long[:-1])
    assert [text for text in texts if text.startswith("a.py:2 -> a.py:1  d = c")], texts


def test_a_bar_too_narrow_for_a_name_has_the_number_of_its_line(opened, resnet: Path) -> None:
    texts = [text for text, *_ in written_on(opened(resnet, 400), ("grouping", "line"))]
    assert [text for text in texts if re.fullmatch(r":\d+", text)]
    assert not [text for text in texts if re.fullmatch(r"re\w*…", text)]


def luminance(colour: list[int]) -> float:
    values = [each / 255 for each in colour]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("colouring", ["phase", "kind"])
def test_what_bars_say_can_be_read_on_every_colour(opened, resnet: Path, scheme: str, colouring: str) -> None:
    page = opened(resnet, scheme=scheme)
    choose(page, "colouring", colouring)
    backs = set()
    for text, ink, back in written_on(page, ("grouping", "op")):
        dark, light = sorted((luminance(ink), luminance(back)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, text
        backs.add(tuple(back))
    assert len(backs) >= 3, "bars of several colours"
