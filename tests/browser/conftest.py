"""A real browser: the system's chromium, driven by playwright. Without either the tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
import test_report
from made_pages import RESNET, written

from tracer.report.reading import Reading
from tracer.trace import load

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 1000  # playwright counts milliseconds


def pytest_itemcollected(item: pytest.Item) -> None:
    """pytest asks for tests of this folder only."""
    item.add_marker("browser")


# Until it ends, playwright's event loop runs in this thread; tests of other folders have loops of their own.
@pytest.fixture(scope="module")
def chromium() -> Iterator:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("needs chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def resnet(folder: Path) -> Path:
    return written(folder / "resnet.html", Reading(load(RESNET), "resnet34.trace"))


@pytest.fixture(scope="module")
def training(folder: Path) -> Path:
    return written(folder / "training.html", Reading(test_report.training(), "training.trace"))


@pytest.fixture(scope="module")
def with_memory(folder: Path) -> Path:
    """Of a recording in which 4 KiB were given out."""
    trace = test_report.training()
    row = {
        "id": 0,
        "process": 0,
        "thread": 1,
        "time_ns": 50_000,
        "device": "cpu",
        "address": 1,
        "bytes": 4096,
    }
    trace.memory = pl.DataFrame([row], trace.memory.schema)
    return written(folder / "memory.html", Reading(trace, "memory.trace"))


@pytest.fixture
def opened(chromium) -> Iterator[Callable]:
    """Opens a page; at the end of the test nothing may have been fetched, said on the console or raised.

    `first`: JavaScript that runs before the page's.
    """
    contexts, said, fetched = [], [], []

    def open_page(path: Path, width: int = 1000, scheme: str = "light", first: str = ""):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(first)
        page.set_default_timeout(10 * SECONDS)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=60 * SECONDS)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert len(fetched) == len(contexts)
