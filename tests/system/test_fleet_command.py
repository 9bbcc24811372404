"""`tracer fleet` as a user types it, and the processes that it starts."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl
import pytest
from rank_traces import write_rank
from terminals import read_terminal

from tracer.analysis.fleet.merge import merge
from tracer.base.interpreter import ask, bare_helper, helper
from tracer.fleet.gather import gather
from tracer.fleet.parts import Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.fleet.work import Part, Task
from tracer.report.fleet_page import fleet_page

ROOT = Path(__file__).parents[2]
RUN = "import sys; from tracer.cli.app import main; sys.argv[0] = 'tracer'; main()"


def fleet(folder: Path, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the command in `folder`; `before` is Python that runs first."""
    path = ":".join([str(ROOT), *(entry for entry in sys.path if entry.endswith("site-packages"))])
    return subprocess.run(
        [sys.executable, "-c", f"{before}\n{RUN}", "fleet", *arguments],
        cwd=folder,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rank in range(3):
        write_rank(
            tmp_path / "job" / f"rank{rank}.trace", rank, 4, late=4_000 * (rank == 1), ops=1 + rank % 2
        )
    return tmp_path


def on_a_terminal(folder: Path, columns: int, *arguments: str) -> list[str]:
    """The lines of a command whose stdout is a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    path = ":".join([str(ROOT), *(entry for entry in sys.path if entry.endswith("site-packages"))])
    shown = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        cwd=folder,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    text = read_terminal(ours)
    assert shown.wait() == 0, text
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode()).splitlines()  # without its colours


def tables(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in out.glob("*.parquet")}


@pytest.mark.promise("fleet", "docs/jobs.md#fleets-of-many-ranks-tracer-fleet")
def test_the_report_says_who_was_last_and_what_differs(folder: Path) -> None:
    (folder / "job" / "rank3.trace").write_bytes(b"no trace, and more than a few bytes of it")
    run = fleet(folder, "job", "-j", "2")
    assert run.returncode == 1, run.stderr
    assert run.stdout.splitlines() == [
        "3 ranks of 1 job on 1 host, 1 trace not read",
        "No trace here is of rank 3.",
        "Rank 1 was last in 2 of 2 collectives, by 100.0 us in the median (200.1 us in all): "
        "/work/train.py:1 -> /work/train.py:2 took 80.0 us longer than on the other ranks.",
    ]
    first, second, third = run.stderr.splitlines()
    assert first.startswith(f"tracer: {folder}/job/rank3.trace: is not a trace; give a file")
    assert second == "tracer: 3 traces read, 1 could not be read"
    assert third == "tracer: wrote fleet/report.md and 15 tables beside it"
    report = (folder / "fleet" / "report.md").read_text()
    assert re.findall("^## (.*)$", report, flags=re.M) == [
        *("Not read", "Ranks", "Who came last", "What differs between ranks", "Collectives", "Ops", "Jobs")
    ]
    differs = report.partition("## What differs between ranks")[2].partition("##")[0].splitlines()
    assert [" ".join(cell.split()) for cell in differs[4].split("|")[1:-1]] == [
        *("3 of 3", "3", "6", "`aten::mm` [CPU]", "1")
    ]


def test_incomplete_ranks_come_first(folder: Path) -> None:
    path = folder / "job" / "rank2.trace"
    path.write_bytes(path.read_bytes()[:-200])
    run = fleet(folder, "job")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[1] == "1 rank of 3 is incomplete."
    report = (folder / "fleet" / "report.md").read_text()
    assert report.index("## Incomplete") < report.index("## Who came last")
    row = next(line for line in report.splitlines() if "| 2    |" in line)
    assert "| a " in row


@pytest.mark.parametrize("columns", [60, 80])
def test_on_a_terminal_nothing_is_wider(folder: Path, columns: int) -> None:
    trace = "job/rank1.trace"
    for command in (["report", "job"], ["report", trace], ["tree", "job", "--rank", "1"], ["fleet", "job"]):
        lines = on_a_terminal(folder, columns, *command)
        assert max(map(len, lines)) <= columns, command
        assert len(lines) > 3, command
    lines = on_a_terminal(folder, columns, "report", "job")
    assert "/work/train.py:1 -> /work/train.py:2" in " ".join(lines)
    report = fleet(folder, "job", "-o", "again")
    assert max(map(len, report.stdout.splitlines())) > columns, "a pipe gets whole lines"


def test_however_many_processes_the_tables_have_the_same_bytes(folder: Path) -> None:
    for number in ("1", "3"):
        assert fleet(folder, "job", "-o", f"by{number}", "-j", number).returncode == 0
    one, three = tables(folder / "by1"), tables(folder / "by3")
    assert len(one) == 15
    assert one == three
    assert (folder / "by1" / "report.md").read_text() == (folder / "by3" / "report.md").read_text()
    assert pl.read_parquet(folder / "by1" / "ranks.parquet")["rank"].to_list() == [0, 1, 2]


def test_a_second_run_reads_only_what_is_new(folder: Path) -> None:
    first = fleet(folder, "job/rank0.trace")
    assert (first.returncode, first.stderr.splitlines()[0]) == (
        0,
        "tracer: 1 trace read, 0 could not be read",
    )
    run = fleet(folder, "job")
    assert run.stderr.splitlines()[0] == "tracer: 2 traces read, 1 read before, 0 could not be read"
    before = tables(folder / "fleet")
    for trace in (folder / "job").iterdir():
        trace.unlink()
    (folder / "fleet" / "ops.parquet").unlink()
    run = fleet(folder)
    assert run.returncode == 0, run.stderr
    assert tables(folder / "fleet") == before


def test_what_is_wrong_is_one_line(folder: Path) -> None:
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.txt").touch()
    (folder / "file").touch()
    lines = {
        ("job", "--engine", "spark"): "--engine spark: choose processes or ray",
        ("job", "--scratch", "none"): "--scratch none is not a folder; create it first",
        ("job", "-o", "notes"): "notes holds other files; give a new folder with -o",
        ("job", "-o", "file"): "file is a file; give a folder with -o",
        ("job", "-o", "no/where"): "folder no does not exist; create it first",
        ("job", "-o", "s3://bucket/out"): "-o s3:/bucket/out: tables are written to this machine; "
        "give a local folder",
        (): "fleet has no parts; give traces, or folders of traces: tracer fleet PATH...",
        ("none",): "none does not exist; give traces, folders of traces, or URLs",
        ("notes",): "notes has no *.trace; record one a rank into it: tracer record -o DIR/ SCRIPT",
        (
            "job",
            "--engine",
            "ray",
            "-j",
            "2",
        ): "-j applies to --engine processes; a Ray cluster has as many as its processors",
    }
    for arguments, line in lines.items():
        run = fleet(folder, *arguments)
        assert (run.returncode, run.stderr) == (2, f"tracer: {line}\n"), arguments
    assert not (folder / "fleet").exists()


def test_what_is_not_installed_is_named(folder: Path) -> None:
    run = fleet(folder, "job", "--engine", "ray", before="import sys; sys.modules['ray'] = None")
    needs = "tracer: --engine ray needs the package ray; install it: pip install ray\n"
    assert (run.returncode, run.stderr) == (2, needs)
    run = fleet(folder, "s3://b/x", before="import sys; sys.modules['fsspec.core'] = None")
    needs = "tracer: s3://b/x needs the package fsspec; install it: pip install fsspec\n"
    assert (run.returncode, run.stderr) == (2, needs)


def test_help_has_examples() -> None:
    run = fleet(ROOT, "--help-all")
    assert "tracer fleet job/" in run.stdout
    assert "OUT/part/job=J/host=H/rank=R/TABLE.parquet" in run.stdout


def strange(folder: Path) -> Path:
    """A folder in which every module that Python or tracer may import is a stranger's."""
    for name in (*sys.stdlib_module_names, "polars", "numpy"):
        (folder / f"{name}.py").write_text("raise SystemExit('PWNED')")
    (folder / "tracer").mkdir()
    (folder / "tracer" / "__init__.py").write_text("raise SystemExit('PWNED')")
    return folder


def test_modules_of_the_current_folder_are_not_imported(folder: Path) -> None:
    program = folder / "bin" / "tracer"
    program.parent.mkdir()
    program.write_text(RUN)
    path = ":".join([str(ROOT), *(entry for entry in sys.path if entry.endswith("site-packages"))])
    run = subprocess.run(
        [sys.executable, str(program), "fleet", "job", "-o", "fleet", "-j", "2"],
        cwd=strange(folder),
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, "PWNED" in run.stdout + run.stderr) == (0, False), run.stderr
    assert "unread" not in run.stdout


@pytest.mark.parametrize(
    "command", [helper("print(sys.path[:1], sys.orig_argv[1])"), bare_helper("print(7)")]
)
def test_no_helper_imports_from_the_current_folder(tmp_path: Path, command: list[str]) -> None:
    run = subprocess.run(command, cwd=strange(tmp_path), capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert str(tmp_path) not in run.stdout
    assert "-P" not in run.stdout, "tracer record hands on the options that it finds"


def test_another_python_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(strange(tmp_path))
    assert ask(sys.executable, "import json, pickle; print(json.dumps(1))").stdout == "1\n"


def test_a_process_that_dies_takes_one_trace_along(folder: Path) -> None:
    traces = find([str(folder / "job")])
    tasks = [Task(traces[0]), Killed(traces[1]), Task(traces[2]), Ended(traces[2])]
    found = [(type(task), part.error) for task, (part,) in Processes(2).run(tasks)]
    killed = "the process that read it was killed, perhaps for its memory; use fewer processes: -j 1"
    ended = "the process that read it ended with status 3; its error: tracer report FILE"
    assert sorted(found, key=str) == sorted(
        [(Task, None), (Task, None), (Killed, killed), (Ended, ended)], key=str
    )


def test_a_worker_that_dies_in_the_middle_is_named_and_its_trace_is_not_read(folder: Path) -> None:
    class Dying(Processes):
        def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, list[Part]]]:
            return super().run(Killed(task.trace) if "rank1" in task.trace.path else task for task in tasks)

    parts = Parts(folder / "fleet")
    said: list[str] = []
    found = gather(parts, find([str(folder / "job")]), Dying(2), say=said.append)
    (path,) = found.errors
    assert (Path(path).name, found.read) == ("rank1.trace", 2)
    assert said == [f"{path}: {found.errors[path]}"]
    page = fleet_page(merge(parts.all()))
    assert "2 ranks of 1 job on 1 host, 1 trace not read" in page
    listed = page.partition("## Not read\n\n")[2].split("\n\n")[0]
    assert f"`{path}`: the process that read it was killed" in " ".join(listed.split())
    assert "No trace here is of ranks 1, 3" in page


class Killed(Task):
    """Kills the process that takes it, as the kernel does when memory runs out."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("kill -9 $PPID",)


class Ended(Task):
    """Ends the process that takes it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (3,)


@pytest.mark.parametrize("name", ["about.json", "ops.parquet"])
def test_a_pipe_among_the_parts_does_not_stop_the_command(folder: Path, name: str) -> None:
    """The folder may be a stranger's: a pipe there would wait for a writer."""
    assert fleet(folder, "job").returncode == 0
    (part,) = folder.glob("fleet/part/*/*/rank=2")
    (part / name).unlink()
    os.mkfifo(part / name)
    done = fleet(folder)
    if name == "about.json":
        assert (done.returncode, done.stderr.splitlines()[0]) == (
            0,
            "tracer: 0 traces read, 0 could not be read",
        )
    else:
        assert done.returncode == 1
        assert done.stderr == (
            f"tracer: cannot merge fleet/part: {part.relative_to(folder)}/{name} cannot be read: [Errno 22] "
            "it is not a regular file; delete that part, and give its trace again\n"
        )


def test_a_link_is_written_through_only_if_the_user_named_it(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "fleet").symlink_to("mine")
    refused = fleet(folder, "job", "-j", "1")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "tracer: fleet is a link; name it, or another folder: -o OUT\n"
    assert not any((folder / "mine").iterdir())
    assert fleet(folder, "job", "-j", "1", "-o", "fleet").returncode == 0
    assert (folder / "mine" / "report.md").is_file()
    (folder / "mine" / "part").rename(folder / "part")
    (folder / "mine" / "part").symlink_to(folder / "part")
    refused = fleet(folder, "job", "-j", "1", "-o", "mine")
    assert refused.returncode == 1
    assert "tracer: cannot write mine: part is a link, which is not followed\n" in refused.stderr
