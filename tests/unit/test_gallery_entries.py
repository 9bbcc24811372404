"""The list of the gallery is whole: each entry has its script, its report and its line in the index."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import gallery  # noqa: E402

ENTRIES = gallery.read_entries()
NEEDS = {"gpu", "compiler", "gdb", "tokenizers", "sklearn", "numba", "triton"}
TOGETHER = 1 << 20  # bytes of all reports


@pytest.fixture(params=ENTRIES, ids=lambda entry: entry.name)
def entry(request: pytest.FixtureRequest) -> gallery.Entry:
    return request.param


def test_fields(entry: gallery.Entry) -> None:
    assert entry.title
    assert not entry.title.endswith(".")
    assert entry.teaches.endswith(".")
    assert "|" not in entry.teaches, "it stands in a table"
    assert set(entry.needs) <= NEEDS
    assert not (entry.gpu and "gpu" in entry.needs), "gpu = true is for those that can do without"


def test_script_says_what_to_look_at(entry: gallery.Entry) -> None:
    text = ast.get_docstring(ast.parse(entry.script.read_text()))
    assert text is not None
    assert f"python examples/gallery/{entry.name}.py" in text
    assert f"tracer record examples/gallery/{entry.name}.py" in text or entry.record
    assert gallery.explanation(entry.script), "a paragraph besides its first line and its commands"


def test_every_script_has_an_entry() -> None:
    assert {path.stem for path in gallery.SCRIPTS.glob("*.py")} == {entry.name for entry in ENTRIES}


def test_report_is_of_this_entry(entry: gallery.Entry) -> None:
    """One that a GPU has to make may be missing, and may be older than its script."""
    path = gallery.reports_of(entry).get("CPU")
    if path is None:
        return
    again = f"make it again: python benchmarks/gallery.py --only {entry.name}"
    assert path.exists(), again
    text = path.read_text()
    assert text.startswith(f"# {entry.title}\n\n{entry.teaches}\n\n{gallery.explanation(entry.script)}\n"), (
        again
    )
    assert all(f"\n    {command}\n" in text for command in gallery.commands(entry)), again
    assert "**complete: " in text


def test_reports_are_short_and_of_entries() -> None:
    sizes = {path.name: path.stat().st_size for path in gallery.REPORTS.glob("*.md")}
    known = {path.name for entry in ENTRIES for path in gallery.reports_of(entry).values()}
    assert set(sizes) <= known
    assert max(sizes.values()) <= gallery.LARGEST
    assert sum(sizes.values()) <= TOGETHER


def test_index_is_the_one_of_the_entries() -> None:
    again = "write it again: python benchmarks/gallery.py --index"
    assert gallery.TABLE[0] + gallery.index_table(ENTRIES) + gallery.TABLE[1] in gallery.INDEX.read_text(), (
        again
    )


def test_line_of_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "SCRIPTS", tmp_path)
    entry = gallery.Entry("some", "", "", "")
    entry.script.write_text("x = f(1)\ny = f(2)\nz = 2\n")
    assert gallery.tree_options(entry, {"options": ["--source", "some.py:{f(2)}", "--depth", "1"]}) == [
        *("--source", "some.py:2"),
        *("--depth", "1"),
    ]
    with pytest.raises(gallery.GalleryError, match=r"2 lines of some\.py hold 'f\('"):
        gallery.tree_options(entry, {"options": ["some.py:{f(}"]})


def test_what_a_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gallery.missing([], has_gpu=False) == []
    assert gallery.missing(["gpu", "no_such_module"], has_gpu=False) == [
        "a GPU",
        "no_such_module (pip install 'tracer[gallery]')",
    ]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert gallery.missing(["compiler"], has_gpu=False) == ["a C++ compiler (apt-get install g++)"]


def test_the_last_line_is_the_script_s() -> None:
    said = "Traceback:\nValueError: no\ntracer: x.trace\n  3 op calls\n  next: tracer tree\n"
    assert gallery._last_line(said) == "ValueError: no"
    assert gallery._last_line("tracer: there is no such file\n") == "tracer: there is no such file"
