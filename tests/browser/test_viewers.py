"""What `tracer export` writes, opened in speedscope's and in Perfetto's own page."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tracer
from tracer.export.formats import FORMATS
from tracer.trace import Trace

sys.path.insert(0, str(Path(__file__).parent))
import viewers

SECONDS = 1000  # playwright counts milliseconds
GPU = Path(__file__).parents[1] / "data" / "gpu.trace.xz"
# Perfetto's page says these without a file too: it looks for a trace on port 9001, and for updates.
OF_ITS_OWN = "Failed to (fetch|load resource)|Access to fetch|Unrecognized Content-Security-Policy|LiveReload"


@pytest.fixture(scope="module")
def gpu() -> Trace:
    return tracer.load(GPU)


@pytest.fixture
def page(chromium) -> Iterator:
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(60 * SECONDS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    yield page
    context.close()
    assert [error for error in errors if not re.match(OF_ITS_OWN, error)] == []


def fetched(viewer: Callable[[], Path]) -> Path:
    try:
        return viewer()
    except viewers.NotThereError as error:
        pytest.skip(str(error))


def outermost(file: Path, *, shown: bool = False) -> set[str]:
    """The names of the outermost frames of all profiles, or of the one that is shown."""
    document = json.loads(file.read_text())
    profiles = [document["profiles"][document["activeProfileIndex"]]] if shown else document["profiles"]
    frames = document["shared"]["frames"]
    names, depth = set(), 0
    for event in (event for profile in profiles for event in profile["events"]):
        depth -= event["type"] == "C"
        if depth == 0 and event["type"] == "O":
            names.add(frames[event["frame"]]["name"])
        depth += event["type"] == "O"
    return names


@pytest.mark.parametrize("by", ["line", "module"])
def test_speedscope(page, gpu: Trace, tmp_path: Path, by: str) -> None:
    folder, file = fetched(viewers.speedscope), tmp_path / "run.speedscope.json"
    FORMATS["speedscope"].write(gpu, file, by=by)
    assert outermost(file) == {"forward", "backward", "optimizer", "other"}
    with viewers.served(folder) as address:
        page.goto(f"{address}/index.html")
        page.locator("input[type=file]").first.set_input_files(file)
        page.get_by_text("Sandwich").click()
        page.get_by_text("Symbol Name").wait_for()
        page.get_by_text("Total", exact=True).click()  # the table has the first rows only
        for name in outermost(file, shown=True):
            page.get_by_text(name, exact=True).first.wait_for(state="attached")
        assert "Something went wrong" not in page.inner_text("body")


def open_in_perfetto(page, address: str, file: Path) -> None:
    page.goto(f"{address}/index.html")
    page.get_by_text("went wrong").wait_for()
    page.get_by_role("button", name="close").click()
    page.get_by_text("went wrong").wait_for(state="detached")
    page.locator("input[type=file]").first.set_input_files(file)


def names_of(gpu: Trace) -> list[str]:
    """Steps, modules and ranges, threads, streams: the order that docs/export.md says."""
    threads = [f"{name} {thread}" for name, thread in gpu.threads.select("name", "thread").rows()]
    streams = [f"GPU 0 stream {stream}" for stream in sorted(gpu.gpu_activities["stream"].unique())]
    return ["steps", "modules of", "ranges of", *threads, *streams]


def test_perfetto(page, gpu: Trace, tmp_path: Path) -> None:
    pytest.importorskip("perfetto", reason="needs perfetto: pip install perfetto")
    folder, file = fetched(viewers.perfetto), tmp_path / "run.pftrace"
    FORMATS["perfetto"].write(gpu, file)
    with viewers.served(folder) as address:
        open_in_perfetto(page, address, file)
        names = names_of(gpu)
        for name in names:
            page.get_by_text(name).first.wait_for(state="attached")
        text = page.inner_text("body")
        assert "went wrong" not in text
        assert gpu.certificate["verdict"].partition(":")[0] in text
        shown = " ".join(text.split())
        places = [shown.index(f" {name}") for name in names]
        assert places == sorted(places), dict(zip(names, places, strict=True))


def test_chrome(page, gpu: Trace, tmp_path: Path) -> None:
    """In Perfetto's page too: chrome's own viewer, about:tracing, is its former one."""
    folder, file = fetched(viewers.perfetto), tmp_path / "run.chrome.json"
    FORMATS["chrome"].write(gpu, file)
    with viewers.served(folder) as address:
        open_in_perfetto(page, address, file)
        for name in names_of(gpu):
            page.get_by_text(name).first.wait_for(state="attached")
        assert "went wrong" not in page.inner_text("body")
