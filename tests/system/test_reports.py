"""The committed reports and traces: short enough to read, complete, and named where people look for them."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest

from tracer.trace import load

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
TRACES = sorted((REPORTS / "traces").glob("*.trace.xz"))
MOST_LINES = 6_000
LARGEST = 300 * 1024
FOLDER = re.compile(rb"/(?:home|root|opt|tmp|work|mnt|var|Users)/[^\0\n\"`]*")


def test_all_reports_together_are_bounded() -> None:
    lines = {path: path.read_text().count("\n") for path in REPORTS.rglob("*.md")}
    assert sum(lines.values()) <= MOST_LINES, sorted(lines.items(), key=lambda item: -item[1])[:10]


def test_four_gpu_traces_are_there() -> None:
    names = [path.name.split(".")[0] for path in TRACES]
    assert names == ["gru", "mm", "resnet34", "translation"]
    page = (REPORTS / "README.md").read_text()
    assert all(f"reports/traces/{path.name}" in page for path in TRACES)
    assert "reports/traces/" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_a_trace_is_small_and_complete(path: Path) -> None:
    assert path.stat().st_size <= LARGEST
    trace = load(path)
    assert trace.certificate["complete"], trace.certificate["verdict"]
    kernels = trace.gpu_activities.filter(trace.gpu_activities["kind"].cast(str) == "kernel")
    assert len(kernels) > 30
    assert kernels["hop"].null_count() < len(kernels) / 10
    assert "H200" in trace.devices["name"][0]


@pytest.mark.parametrize(
    "path", [*TRACES, *(ROOT / "tests" / "data").glob("*.xz")], ids=lambda path: path.name
)
def test_a_trace_has_nobodys_folders(path: Path) -> None:
    """It went through `tracer pack --redact`."""
    found = FOLDER.findall(lzma.decompress(path.read_bytes()))
    assert not found, found[:5]
    private = {"argv", "command", "cwd", "host", "platform", "started_at", "cpu", "cores"}
    assert not private & load(path).environment.keys()


def test_a_report_has_nobodys_folders() -> None:
    pages = [path for path in REPORTS.rglob("*") if path.suffix in (".md", ".html", ".svg")]
    found = {path.name: FOLDER.findall(path.read_bytes())[:3] for path in pages}
    assert not {name: folders for name, folders in found.items() if folders}
