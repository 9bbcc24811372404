"""The folder for temporary files is full: one line says so, and no recording goes on that nobody knows of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attaching import ON, WORKS, attach, running_job
from launching import TIMEOUT, Launcher

import tracer

pytestmark = pytest.mark.gdb

JOB = f"""\
import threading, time, torch
reads = threading.Thread(target=input); reads.start()
{ON}
{WORKS}"""


@pytest.fixture(scope="module")
def unrecorded() -> Iterator[int]:
    """The number of a job that no test asks to record."""
    with running_job("-c", JOB) as process:
        yield process.pid
        process.communicate("\n", timeout=TIMEOUT)
        assert process.returncode == 0


@pytest.fixture
def small(launcher: Launcher, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system with so many inodes, its root included, and 256 KiB."""
    folder = launcher.folder / "small"
    folder.mkdir()
    size = f"nr_inodes={request.param},size=256k"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("small", [2], indirect=True)
def test_nothing_can_be_asked(launcher: Launcher, small: Path, unrecorded: int) -> None:
    done = attach(launcher, unrecorded, "-o", "t.trace", extra={"TMPDIR": str(small)})
    assert done.status == 2
    assert done.err.startswith(f"tracer: the request cannot be written to {small}: No space left")
    assert done.err.endswith("; set TMPDIR to another folder\n")
    assert done.err.count("\n") == 1
    assert not (launcher.folder / "t.trace").exists()
    assert list(small.iterdir()) == []


@pytest.mark.skipif(hasattr(sys, "remote_exec"), reason="gdb needs more files than Python's own way in")
@pytest.mark.parametrize("small", [3, 4, 5], indirect=True)
def test_gdb_cannot_be_told(launcher: Launcher, small: Path, unrecorded: int) -> None:
    done = attach(launcher, unrecorded, "-o", "t.trace", extra={"TMPDIR": str(small)})
    assert done.status == 2
    assert done.err.startswith(
        f"tracer: process {unrecorded} was not asked to record: [Errno 28] No space left"
    )
    assert done.err.endswith("; set TMPDIR to a folder with space\n")
    assert done.err.count("\n") == 1
    assert not (launcher.folder / "t.trace").exists()
    assert list(small.iterdir()) == []


@pytest.mark.skipif(hasattr(sys, "remote_exec"), reason="gdb needs more files than Python's own way in")
@pytest.mark.parametrize("small", [7], indirect=True)
def test_the_end_cannot_be_asked_for(launcher: Launcher, small: Path) -> None:
    with running_job("-c", JOB) as process:
        options = ("-o", "t.trace", "--seconds", "0.1")
        done = attach(launcher, process.pid, *options, extra={"TMPDIR": str(small)})
        assert done.status == 1
        first, last = done.err.splitlines()
        assert first.startswith(f"tracer: recording process {process.pid} to t.trace for 0.1 s")
        assert last.startswith(
            f"tracer: process {process.pid} was not asked to end its recording: [Errno 28] "
        )
        assert last.endswith(f"; to end its recording: tracer detach {process.pid}")
        ended = launcher.run([str(launcher.tracer), "detach", str(process.pid)])
        assert ended.status == 0, ended.err
        process.communicate("\n", timeout=TIMEOUT)
    assert tracer.load(launcher.folder / "t.trace").certificate["complete"]
