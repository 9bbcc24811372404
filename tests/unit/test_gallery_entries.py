"""The list of the gallery is whole: each entry has its script and its line in the index."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import gallery  # noqa: E402
import gallery_entries  # noqa: E402

from tracer.report.sections import NAMED  # noqa: E402
from tracer.trace.certificate.verdict import COMPILED_CODE  # noqa: E402

ENTRIES = gallery.read_entries()
NEEDS = {"gpu", "compiler", "gdb", "tokenizers", "sklearn", "numba", "triton"}


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
    assert {path.stem for path in gallery_entries.SCRIPTS.glob("*.py")} == {entry.name for entry in ENTRIES}


def test_report_is_of_this_entry(entry: gallery.Entry) -> None:
    """It was made on a GPU, and may be older than its script."""
    path = gallery.report_of(entry, on_gpu=True)
    if not path.exists():
        return
    text = path.read_text()
    assert entry.uses_gpu
    assert text.startswith("# ")
    assert f"examples/gallery/{entry.name}.py\n" in text
    assert "**complete: " in text or f" hops; {COMPILED_CODE}**" in text


def test_a_report_of_a_cpu_is_not_kept() -> None:
    for entry in ENTRIES:
        made = gallery.report_of(entry, on_gpu=False)
        assert made == ROOT / "build" / "gallery" / f"{entry.name}.md"
        assert entry.uses_gpu or gallery.AGAIN in gallery.index_table([entry])


@pytest.mark.parametrize("path", sorted(gallery.REPORTS.glob("*.md")), ids=lambda path: path.name)
def test_report_says_once_how_it_was_made_and_what_was_printed(path: Path) -> None:
    text = path.read_text()
    assert text.count("\nMade by\n") == 1
    assert text.count(". The script printed\n") == 1


def test_reports_are_short_and_of_entries() -> None:
    lengths = {path.name: path.read_text().count("\n") for path in gallery.REPORTS.glob("*.md")}
    known = {gallery.report_of(entry, on_gpu=True).name for entry in ENTRIES if entry.uses_gpu}
    assert set(lengths) <= known
    assert {name: length for name, length in lengths.items() if length > gallery.LONGEST} == {}


def test_index_is_the_one_of_the_entries() -> None:
    again = "write it again: python benchmarks/gallery.py --index"
    assert gallery.TABLE[0] + gallery.index_table(ENTRIES) + gallery.TABLE[1] in gallery.INDEX.read_text(), (
        again
    )


def test_line_of_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery_entries, "SCRIPTS", tmp_path)
    entry = gallery.Entry("some", "", "", "")
    entry.script.write_text("x = f(1)\ny = f(2)\nz = 2\n")
    assert gallery.tree_options(entry, {"options": ["--source", "some.py:{f(2)}", "--depth", "1"]}) == [
        *("--source", "some.py:2"),
        *("--depth", "1"),
    ]
    with pytest.raises(gallery.GalleryError, match=r"2 lines of some\.py hold 'f\('"):
        gallery.tree_options(entry, {"options": ["some.py:{f(}"]})


SOME = {
    "report": ["--op", "mm", "--paths", "5", "--rows", "20"],
    "trees": [{"title": "On a CPU", "options": ["--op", "mm"]}],
    "gpu": True,
}


def sections(names: tuple[str, ...]) -> list[str]:
    return ["--details", "1", *(word for name in names for word in ("--section", name))]


def test_a_gpu_has_its_own_options() -> None:
    every = sections(gallery_entries.SECTIONS)
    few = sections(tuple(name for name in gallery_entries.SECTIONS if name != "paths"))
    plain = gallery.Entry("some", "", "", "", **SOME)
    assert plain.report_options(on_gpu=False) == [*SOME["report"], *every]
    assert plain.report_options(on_gpu=True) == ["--op", "mm", "--paths", "1", "--rows", "10", *few]
    assert plain.shown_trees(on_gpu=True) == SOME["trees"]
    own = gallery.Entry(
        "some", "", "", "", **SOME, gpu_report=["--paths", "3"], gpu_trees=[{"title": "On a GPU"}]
    )
    assert own.report_options(on_gpu=False) == [*SOME["report"], *every]
    assert own.shown_trees(on_gpu=False) == SOME["trees"]
    assert own.report_options(on_gpu=True) == ["--paths", "3", *every]
    assert own.shown_trees(on_gpu=True) == [{"title": "On a GPU"}]
    needs = gallery.Entry("some", "", "", "", needs=["gpu"], report=["--paths", "5"])
    assert needs.report_options(on_gpu=True) == ["--paths", "5", *every], "it was written for a GPU"


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_report_is_made_with_the_options_of_its_device(
    on_gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def tell(*arguments: str) -> str:
        told.append(arguments)
        made = "# Report\n\n## Ops\n\na table\n\n## Certificate\n\nwhole\n"
        return made if arguments[0] == "report" else "a tree\n"

    monkeypatch.setattr(gallery_entries, "SCRIPTS", tmp_path)
    monkeypatch.setattr(gallery, "ROOT", tmp_path)
    monkeypatch.setattr(gallery, "_told", tell)
    entry = gallery.Entry(
        *("some", "Some", "It teaches.", ""),
        **SOME,
        gpu_report=["--paths", "3"],
        gpu_trees=[{"title": "On a GPU", "options": ["--op", "bmm"]}],
        gpu_says="On a GPU it is so.",
    )
    entry.script.write_text('"""Some.\n\nLook.\n"""\n')
    text = gallery.report(entry, gallery.Recorded("", 1, on_gpu, "a machine"))
    report = entry.report_options(on_gpu)
    assert told == [
        ("tree", "some.trace", "--op", "bmm" if on_gpu else "mm"),
        ("report", "some.trace", *report),
    ]
    assert f"    tracer report some.trace {' '.join(report)}\n" in text
    assert ("\n## On a GPU\n" in text, "\n## On a CPU\n" in text) == (on_gpu, not on_gpu)
    assert ("On a GPU it is so." in text) == on_gpu
    assert gallery.TIMES in text.replace("\n", " ")
    assert (gallery.GPU_TIMES in text.replace("\n", " ")) == on_gpu
    assert "\n### Ops\n\na table\n\n### Certificate\n\nwhole\n" in text
    assert text.endswith("\nThe whole report: `tracer report some.trace`.\n")


def test_prose_is_wrapped_at_no_hyphen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery_entries, "SCRIPTS", tmp_path)
    teaches = "word " * 20 + "first-and-second third."  # column 110 is within the hyphens
    entry = gallery.Entry("some", "Some", teaches, "")
    entry.script.write_text('"""Some.\n\n    a command\n\nLook here,\nand there.\n"""\n')
    prose = f"{'word ' * 19}word\nfirst-and-second third."
    assert gallery.head(entry) == f"# Some\n\n{prose}\n\nLook here,\nand there."


def test_sections_that_are_shown_are_known(entry: gallery.Entry) -> None:
    assert {*entry.shows, *entry.sections, *gallery_entries.SECTIONS} <= set(NAMED)
    assert not (entry.shows and entry.sections), "sections say all"
    assert entry.uses_gpu or not (entry.shows or entry.gpu_report or entry.gpu_trees or entry.gpu_says)
    for tree in entry.shown_trees(on_gpu=True):
        gallery.tree_options(entry, tree)  # each text is in one line


def test_options_of_a_report_name_its_sections() -> None:
    shows = gallery.Entry("a", "A", "t", "s", report=["--rows", "4"], shows=["idle"])
    assert shows.report_options(on_gpu=False) == [
        "--rows",
        "4",
        *sections((*gallery_entries.SECTIONS, "idle")),
    ]
    alone = gallery.Entry("a", "A", "t", "s", report=["--details", "3"], sections=["ops"])
    assert alone.report_options(on_gpu=False) == ["--details", "3", "--section", "ops"]


def test_headings_of_a_report_are_one_level_lower() -> None:
    report = "# Report\n\n## First\n\n```text\n# a comment\n```\n\n### Below\n"
    assert gallery.demoted(report) == "## Report\n\n### First\n\n```text\n# a comment\n```\n\n#### Below\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("f (/opt/v/lib/python3.12/site-packages/torch/a.py:3)", "f (torch/a.py:3)"),
        ("`/opt/v/bin/python3 -B x.py`", "`python3 -B x.py`"),
        ("/usr/lib/python3.12/contextlib.py:81", "contextlib.py:81"),
        ("/tmp/torchinductor_some/7r/c7.py:1", "torchinductor/7r/c7.py:1"),
        ("at /home/some/.cache/torch_extensions/py312/main.cpp", "at torch_extensions/py312/main.cpp"),
        (".venv/lib/python3.11/site-packages/torch/a.py", ".venv/lib/python3.11/site-packages/torch/a.py"),
        (f"f ({ROOT}/.venv/lib/python3.11/site-packages/torch/a.py:3)", "f (torch/a.py:3)"),
        (f"`{ROOT}/.venv/bin/python -B {ROOT}/examples/x.py`", "`python -B examples/x.py`"),
        ("2 / 3 of it", "2 / 3 of it"),
    ],
)
def test_a_report_names_no_folder_of_a_machine(text: str, shown: str) -> None:
    assert gallery.of_no_machine(text) == shown


def test_what_a_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gallery.missing([], has_gpu=False) == []
    assert gallery.missing(["gpu", "no_such_module"], has_gpu=False) == [
        "a GPU",
        "no_such_module (pip install 'dispatch-tracer[gallery]')",
    ]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert gallery.missing(["compiler"], has_gpu=False) == ["a C++ compiler (apt-get install g++)"]


def test_a_device_of_two_processes_is_one() -> None:
    rows = pl.DataFrame({"process": [0, 1, 1], "device": [0, 0, 1], "name": ["H200", "H200", "H100"]})
    assert gallery.names_of(rows) == ["H200", "H100"]
    assert gallery.names_of(rows.clear()) == []


def test_the_last_line_is_the_script_s() -> None:
    said = "Traceback:\nValueError: no\ntracer: x.trace\n  3 op calls\n  next: tracer tree\n"
    assert gallery._last_line(said) == "ValueError: no"
    assert gallery._last_line("tracer: there is no such file\n") == "tracer: there is no such file"


@pytest.mark.parametrize("path", sorted(gallery.REPORTS.glob("*.md")), ids=lambda path: path.name)
def test_a_report_says_what_its_script_printed(path: Path) -> None:
    """`--again` takes it from there, because a trace does not have it."""
    text = path.read_text()
    made_on, out = gallery.as_said(text)
    assert f"on {made_on}. The script printed\n\n```text\n{out}\n```\n" in text
    assert "torch" in made_on


def test_a_page_that_is_no_report_says_nothing() -> None:
    with pytest.raises(gallery.GalleryError, match="does not say what the script printed"):
        gallery.as_said("# A page\n\non a machine.\n")


def test_a_report_of_few_paths_has_them_in_one_table() -> None:
    few = gallery.Entry("a", "A", "t", "s", report=["--paths", "2"])
    assert "paths" not in few.report_options(on_gpu=False)
    assert "paths" in gallery.Entry("a", "A", "t", "s", report=["--paths", "3"]).report_options(on_gpu=False)
