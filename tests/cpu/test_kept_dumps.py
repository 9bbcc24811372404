"""How many dumps stay: of each process its first one and the newest ones, and whatever is not its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from launching import TIMEOUT, Launcher

import tracer


def dumps(folder: Path) -> list[int]:
    """Their numbers; no other file may be beside the recording."""
    names = {path.name for path in folder.iterdir()} - {"run.trace"}
    assert all(name.startswith("run.dump") and name.endswith(".trace") for name in names), names
    return sorted(int(name[len("run.dump") : -len(".trace")]) for name in names)


def removed(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("tracer: removed ")]


@pytest.mark.parametrize(
    ("kept", "left", "words"),
    [
        (None, [1, 5, 6, 7, 8], "its first dump and the newest 4 (--max-dumps 5)"),
        pytest.param(
            3,
            [1, 7, 8],
            "its first dump and the newest 2 (--max-dumps 3)",
            marks=pytest.mark.promise("tracer.record", "docs/record.md#a-flight-recorder"),
        ),
        (2, [1, 8], "its first dump and the newest (--max-dumps 2)"),
        (1, [8], "its newest dump (--max-dumps 1)"),
        (0, list(range(1, 9)), ""),
    ],
)
def test_the_first_and_the_newest_are_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kept: int | None, left: list[int], words: str
) -> None:
    options = {} if kept is None else {"max_dumps": kept}
    with tracer.record(tmp_path / "run.trace", max_size="16M", **options):
        paths = [tracer.dump() for _ in range(8)]
    assert dumps(tmp_path) == left
    assert paths[-1] == str(tmp_path / "run.dump0008.trace")
    gone = [number for number in range(1, 9) if number not in left]
    lines = removed(capfd.readouterr().err)
    assert lines == [
        f"tracer: removed {tmp_path}/run.dump{number:04d}.trace: a process keeps {words}. "
        "It removes older dumps without a message from now on"
        for number in gone[:1]
    ]
    for number in left:
        assert len(tracer.load(tmp_path / f"run.dump{number:04d}.trace").processes) == 1


def test_dumps_with_a_path_are_never_removed_and_count_as_none(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    with tracer.record(tmp_path / "run.trace", max_dumps=2):
        for number in range(4):
            tracer.dump()
            tracer.dump(mine / f"run.dump{number}.trace")
    assert dumps(mine) == [0, 1, 2, 3]
    shutil.rmtree(mine)
    assert dumps(tmp_path) == [1, 4]


def test_what_was_moved_changed_or_is_of_another_process_stays(tmp_path: Path) -> None:
    (tmp_path / "run.dump0007.trace").write_bytes(b"of another process")
    away = tmp_path / "away"
    away.mkdir()
    with tracer.record(tmp_path / "run.trace", max_dumps=2):
        made = [Path(tracer.dump()) for _ in range(2)]
        assert [path.name for path in made] == ["run.dump0008.trace", "run.dump0009.trace"]
        shutil.move(made[0], away)
        made[1].write_bytes(b"of somebody else")
        for _ in range(3):
            tracer.dump()
    names = {path.name for path in away.iterdir()}
    shutil.rmtree(away)
    assert names == {"run.dump0008.trace"}
    assert dumps(tmp_path) == [7, 9, 10, 12]
    assert made[1].read_bytes() == b"of somebody else"


def test_a_forked_process_has_dumps_of_its_own(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "run.trace", max_size="16M", max_dumps=2):
        for _ in range(3):
            tracer.dump()
        child = os.fork()
        if child == 0:
            for _ in range(4):
                tracer.dump()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert dumps(tmp_path) == [1, 3, 4, 7]


def test_a_second_recording_leaves_dumps_of_the_first_one(tmp_path: Path) -> None:
    for _ in range(2):
        with tracer.record(tmp_path / "run.trace", max_dumps=1, force=True):
            tracer.dump()
            tracer.dump()
    assert dumps(tmp_path) == [2, 4]


def test_a_name_with_the_number_of_five_digits_comes_next(tmp_path: Path) -> None:
    (tmp_path / "run.dump9999.trace").touch()
    (tmp_path / "run.dump12x.trace").mkdir()
    with tracer.record(tmp_path / "run.trace"):
        assert tracer.dump() == str(tmp_path / "run.dump10000.trace")


@pytest.mark.parametrize("given", [-1, 1001, True, "5"])
def test_what_is_no_number_of_dumps(tmp_path: Path, given: object) -> None:
    with pytest.raises(tracer.RecordingError, match="give a number from 1 to 1000, or 0 for all"):
        tracer.record(tmp_path / "run.trace", max_dumps=given)  # type: ignore[arg-type]


WATCHED = """
import os, torch
torch.ones(2).sin()
open("ready", "w").close()
while not os.path.exists("go"):
    torch.ones(100).cos()
print("end")
"""


def test_a_watchdog_that_signals_again_and_again(launcher: Launcher) -> None:
    launcher.write(WATCHED)
    folder = launcher.folder / "job"
    folder.mkdir()
    command = [str(launcher.tracer), "record", "--max-size", "16M", "--max-dumps", "3", "-o", "job/run.trace"]
    process = launcher.start(*command, "script.py")
    wait_until(launcher.folder / "ready")
    for number in range(1, 13):
        process.send_signal(signal.SIGUSR2)
        wait_until(folder / f"run.dump{number:04d}.trace")
    (launcher.folder / "go").touch()
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "end\n"), err
    assert dumps(folder) == [1, 11, 12]
    assert len(removed(err)) == 1
    for number in dumps(folder):
        trace = tracer.load(folder / f"run.dump{number:04d}.trace")
        assert "aten::cos" in set(trace.hops["op"].cast(pl.String)) or number == 1


def wait_until(path: Path) -> None:
    end = time.monotonic() + TIMEOUT
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.005)


KILLED = """
import os, sys, threading, time, torch, tracer
folder = sys.argv[1]
tracer.start(f"{folder}/run.trace", max_size="64M")
ones = torch.ones(2)
for _ in range(400_000):
    ones.neg()
print("ready", flush=True)
while True:
    tracer.dump()
"""


def test_a_process_that_is_killed_while_it_dumps_leaves_no_part(launcher: Launcher, tmp_path: Path) -> None:
    """Each file that is there is whole: the copy has no name until it is complete."""
    launcher.write(KILLED)
    for trial in range(3):
        folder = tmp_path / str(trial)
        folder.mkdir()
        process = launcher.start(sys.executable, "script.py", str(folder))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_until(folder / "run.dump0001.trace")
        time.sleep(0.02 * (trial + 1))
        process.kill()
        process.communicate()
        for number in dumps(folder):
            trace = tracer.load(folder / f"run.dump{number:04d}.trace")
            assert len(trace.hops) > 1000


NO_UNNAMED = """
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
typedef int (*open_t)(const char*, int, ...);
static int as(const char* name, const char* path, int flags, int mode) {
  if ((flags & O_TMPFILE) == O_TMPFILE && getenv("NO_UNNAMED")[0] == 'o') return errno = EOPNOTSUPP, -1;
  return ((open_t)dlsym(RTLD_NEXT, name))(path, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest);
  return as("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest);
  return as("open64", path, flags, mode);
}
int linkat(int a, const char* from, int b, const char* to, int flags) { return errno = ENOENT, -1; }
"""
DUMPS = """
import torch, tracer
with tracer.record("job/run.trace", max_size="16M", max_dumps=2):
    torch.ones(2).sin()
    for _ in range(4):
        print(tracer.dump())
"""


@pytest.mark.compiler
@pytest.mark.parametrize("lacks", ["open", "link"])
def test_where_every_file_has_a_name_dumps_are_the_same(launcher: Launcher, lacks: str) -> None:
    """As on NFS, which has no files without a name, or where /proc is missing."""
    source = launcher.write("#define _GNU_SOURCE\n" + NO_UNNAMED, "named.c")
    library = launcher.folder / "named.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    launcher.write(DUMPS)
    folder = launcher.folder / "job"
    folder.mkdir()
    (folder / "run.dump0001.trace").touch()
    extra = {"LD_PRELOAD": str(library), "NO_UNNAMED": lacks}
    run = launcher.run([sys.executable, "script.py"], extra=extra)
    assert run.status == 0, run.err
    assert [Path(path).name for path in run.out.split()] == [f"run.dump000{n}.trace" for n in range(2, 6)]
    assert dumps(folder) == [1, 2, 5]
    assert "aten::sin" in set(tracer.load(folder / "run.dump0005.trace").hops["op"].cast(pl.String))
