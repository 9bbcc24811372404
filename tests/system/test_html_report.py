"""`tracer report --html`: where it writes, what it refuses, and what it does to a name."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import gpu_trace
import hostile
import pytest
from synthetic import TraceWriter

from tracer.report.kernel_tables import KernelTables
from tracer.report.reading import Reading
from tracer.report.roofline import rooflines
from tracer.trace import load

ROOT = Path(__file__).parents[2]
LARGEST_SAMPLE = 1 << 20


def report(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracer.cli.app", "report", *map(str, arguments)],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        cwd=cwd,
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            "run.trace",
            marks=pytest.mark.promise("report", "docs/report.md#the-html-page-tracer-report---html"),
        ),
        "run.trace.xz",
        "run",
    ],
)
def test_the_page_is_written_beside_the_trace(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / name).symlink_to(gpu_trace.PATH)
    done = report(f"traces/{name}", "--html", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    said = done.stderr.splitlines()  # and, where the recorded script is, that its lines are not read
    assert said[0] == "tracer: wrote traces/run.html"
    assert all("--source-from" in line for line in said[1:])
    assert (folder / "run.html").read_text().startswith("<!doctype html>")
    again = report(f"traces/{name}", "--html", cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert report(f"traces/{name}", "--html", "--force", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted([name, "run.html"])


@pytest.mark.parametrize("name", ["x.html", "x.HTM"])
def test_an_output_that_ends_in_html_is_a_page(tmp_path: Path, name: str) -> None:
    assert report(gpu_trace.PATH, "-o", name, cwd=tmp_path).returncode == 0
    assert (tmp_path / name).read_text().startswith("<!doctype html>")


def test_markdown_and_html_at_once_are_refused(tmp_path: Path) -> None:
    done = report(gpu_trace.PATH, "--html", "-o", "x.md", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "tracer: x.md: --html writes HTML; give a file that ends in .html, or remove --html\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_report_without_the_option_is_markdown(tmp_path: Path) -> None:
    assert report(gpu_trace.PATH, cwd=tmp_path).stdout.startswith("# Dispatch report")


def test_no_name_is_raw(tmp_path: Path) -> None:
    path = hostile.write(tmp_path / "evil.trace")
    assert report(path, "--html", cwd=tmp_path).returncode == 0
    page = (tmp_path / "evil.html").read_text()
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_the_sample_is_small_and_offline() -> None:
    (path,) = (ROOT / "reports" / "html").glob("*.html")
    page = path.read_text()
    assert len(page) <= LARGEST_SAMPLE
    assert "complete: " in page
    assert str(ROOT) not in page
    assert f"reports/html/{path.name}" in (ROOT / "reports" / "README.md").read_text()


def test_points_of_the_roofline_are_below_their_roofs() -> None:
    reading = Reading(load(ROOT / "reports/traces/resnet34.trace.xz"), "t")
    (drawn,) = rooflines(KernelTables.of(reading))
    assert drawn.device == "NVIDIA H200"
    assert {point.bound for point in drawn.points} == {"memory", "compute", "floor"}
    for point in drawn.points:
        assert drawn.left <= point.x <= drawn.right
        assert drawn.top <= point.y <= drawn.bottom
    flat = [roof for roof in drawn.roofs if roof.y1 == roof.y2]
    assert all(point.y > min(roof.y1 for roof in flat) for point in drawn.points if point.bound == "compute")


def test_many_hops_are_a_small_page(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    for number in range(20):
        writer.hop(number, f"aten::op{number}")
    lane = writer.lane()
    for number in range(10):
        lane.define_source(number + 1, f"file{number}.py", 3)
    for number in range(20_000):
        for level in range(5):
            lane.enter((number + level) % 20, source=number % 10 + 1)
        for _ in range(5):
            lane.exit()
    path = writer.write(tmp_path / "many.trace")
    begin = time.monotonic()
    assert report(path, "--html", cwd=tmp_path).returncode == 0
    assert time.monotonic() - begin < 60
    assert (tmp_path / "many.html").stat().st_size < 1 << 20
