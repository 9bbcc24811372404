"""`tracer export` as a user types it: names, errors, and what happens to files that are there."""

from __future__ import annotations

import json
import lzma
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from synthetic import TraceWriter

ROOT = Path(__file__).parents[2]
RUN = "import sys; from tracer.cli.app import main; sys.argv[0] = 'tracer'; main()"
SUFFIXES = {
    "perfetto": ".pftrace",
    "chrome": ".chrome.json",
    "parquet": ".parquet",
    "speedscope": ".speedscope.json",
}
FORMATS = [
    pytest.param(
        to,
        marks=pytest.mark.skipif(
            to == "perfetto" and not find_spec("perfetto"), reason="the package perfetto is not installed"
        ),
    )
    for to in SUFFIXES
]


def export(
    folder: Path, *arguments: str, before: str = "", bytes_a_file: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command in `folder`; `before` is Python that runs first."""

    def limit() -> None:
        if bytes_a_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_a_file, bytes_a_file))

    path = ":".join([str(ROOT), *(entry for entry in sys.path if entry.endswith("site-packages"))])
    return subprocess.run(
        [sys.executable, "-c", f"{before}\n{RUN}", "export", *arguments],
        cwd=folder,
        # A file of bytecode that was cut at the limit would stay, and break every later import.
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = TraceWriter()
    writer.process()
    writer.json(0, "environment", {"started_at": "2026-11-21T12:00:00+00:00"})
    writer.hop(0, "aten::mm")
    lane = writer.lane()
    for _ in range(200):
        lane.enter(0)
        lane.exit()
    writer.write(tmp_path / "run.trace")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("to", FORMATS)
def test_the_output_stands_beside_the_trace(folder: Path, to: str) -> None:
    done = export(folder, "--to", to)
    assert (done.returncode, done.stdout) == (0, "")
    said = "; time 0 is the start of the recording, 2026-11-21T12:00:00+00:00"
    if to == "speedscope":
        said = " by self time"
    assert done.stderr == (
        "tracer: reading run.trace, the newest trace here\n"
        f"tracer: run.trace -> run{SUFFIXES[to]}: 200 hops{said}\n"
    )
    assert names(folder) == sorted(["run.trace", f"run{SUFFIXES[to]}"])


def test_a_packed_trace_has_the_same_name(folder: Path) -> None:
    (folder / "run.trace.xz").write_bytes(lzma.compress((folder / "run.trace").read_bytes()))
    assert export(folder, "run.trace.xz", "--to", "chrome").returncode == 0
    assert (folder / "run.chrome.json").exists()


@pytest.mark.parametrize("to", FORMATS)
def test_nothing_is_overwritten_unless_forced(folder: Path, to: str) -> None:
    output = folder / f"run{SUFFIXES[to]}"
    if to == "parquet":
        output.mkdir()
        (output / "hops.parquet").write_text("precious")
    else:
        output.write_text("precious")
    before = (output / "hops.parquet" if to == "parquet" else output).read_bytes()
    done = export(folder, "run.trace", "--to", to)
    assert done.returncode == 2
    assert f"run{SUFFIXES[to]} exists; overwrite it with --force" in done.stderr
    assert (output / "hops.parquet" if to == "parquet" else output).read_bytes() == before
    assert export(folder, "run.trace", "--to", to, "--force").returncode == 0
    assert (output / "hops.parquet" if to == "parquet" else output).read_bytes() != before
    assert names(folder) == sorted(["run.trace", output.name])


def test_a_folder_with_other_files_is_never_replaced(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.tex").write_text("precious")
    done = export(folder, "run.trace", "--to", "parquet", "-o", "mine", "--force")
    assert done.returncode == 2
    assert "mine holds other files, which would be lost" in done.stderr
    assert (folder / "mine" / "thesis.tex").read_text() == "precious"
    assert names(folder / "mine") == ["thesis.tex"]


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_leaves_what_was_there(folder: Path, to: str, there: bool) -> None:
    output = folder / "out"
    if there:
        assert export(folder, "run.trace", "--to", to, "-o", "out").returncode == 0
    before = names(folder)
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = export(folder, "run.trace", "--to", to, "-o", "out", "--force", bytes_a_file=100)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot write out: File too large" in done.stderr
    assert names(folder) == before
    assert output.exists() == there
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == content


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run.trace"], 2, "--to is missing: choose perfetto, chrome, parquet, speedscope or svg, e.g. "),
        (["run.trace", "--to", "pdf"], 2, "--to pdf: choose perfetto, chrome, parquet, speedscope or svg"),
        (["absent.trace", "--to", "chrome"], 2, "absent.trace does not exist"),
        (
            ["run.trace", "--to", "chrome", "-o", "nowhere/x"],
            2,
            "folder nowhere does not exist; create it first",
        ),
        (["run.trace", "--to", "chrome", "-o", "."], 2, ". is a folder"),
        (["run.trace", "--to", "chrome", "-o", "run.trace", "--force"], 2, "is the trace itself"),
        (["run.trace", "--to", "parquet", "-o", "run.trace", "--force"], 2, "is the trace itself"),
        (["run.trace", "--to", "parquet", "-o", "text", "--force"], 2, "text is a file"),
        (["text", "--to", "chrome"], 2, "is not a trace"),
    ],
)
def test_wrong_usage_is_one_line(folder: Path, arguments: list[str], code: int, message: str) -> None:
    (folder / "text").write_text("hello, this is a text")
    before = names(folder)
    done = export(folder, *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(folder) == before


def test_without_the_package_perfetto_one_line_says_what_to_install(folder: Path) -> None:
    done = export(
        folder, "run.trace", "--to", "perfetto", before="import sys; sys.modules['perfetto'] = None"
    )
    assert done.returncode == 1
    assert done.stderr == (
        "tracer: --to perfetto needs the package perfetto, "
        "the extra dispatch-tracer[perfetto]: pip install perfetto\n"
    )
    assert names(folder) == ["run.trace"]


def test_what_was_dropped_is_said(folder: Path) -> None:
    trace = (folder / "run.trace").read_bytes()
    (folder / "cut.trace").write_bytes(trace[:-1500])
    done = export(folder, "cut.trace", "--to", "chrome")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    said = json.loads((folder / "cut.chrome.json").read_text())["otherData"]["certificate"]
    assert lines[1] == f"tracer: {said}"


def test_exporters_import_no_torch() -> None:
    modules = "chrome parquet perfetto speedscope formats timeline".split()
    code = (
        f"import sys, {', '.join(f'tracer.export.{name}' for name in modules)}; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_help_has_examples(folder: Path) -> None:
    done = export(folder, "--help")
    assert done.returncode == 0
    assert "tracer export run.trace --to chrome -o run.json.gz" in done.stdout
    assert all(f"  {to} " in done.stdout for to in SUFFIXES)
