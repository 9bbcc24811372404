"""No space for the trace."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from case import Case, assert_honest
from rows import SkippedError, row

CALLS = 150_000  # more than a small disk holds
SCRIPT = f"""
import torch
x = torch.ones(2)
for _ in range({CALLS}): torch.neg(x)
print('done')
"""


@contextmanager
def small_disk(folder: Path, size: str = "8M") -> Iterator[Path]:
    """A file system of its own. Raises SkippedError."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tracer-faults", str(folder)]
    if os.getuid() != 0:
        raise SkippedError("a small disk needs root")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SkippedError(f"a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    with (disk / "fill").open("wb", buffering=0) as file:
        try:
            for _ in range(16 * 16):  # not without end: the disk might be another one
                file.write(bytes(1 << 16))
        except OSError:
            pass


@contextmanager
def filled_after(disk: Path, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, fill, [disk])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@row(
    "disk full",
    "The script runs as without tracer. What was written until then is read; the trace says that it stopped.",
    ("at the begin", "while it runs", "outgrown", "outgrown, in a ring", "outgrown, with children"),
)
def disk_full(case: Case, variant: str) -> None:
    with small_disk(case.folder / "disk") as disk:
        script = SCRIPT if variant != "outgrown, with children" else "import os\nos.fork()\n" + SCRIPT
        case.write(script)
        if variant == "at the begin":
            fill(disk)
        options = ("--max-size", "16M") if "ring" in variant else ()
        meanwhile = filled_after(disk, case.draw.uniform(1, 6)) if "runs" in variant else nullcontext()
        with meanwhile:
            traced = case.record("-o", "disk/run.trace", *options, "script.py")
        lines = 2 if "children" in variant else 1
        if variant == "at the begin" and traced.status != 0:
            assert "No space left" in traced.err, traced.err  # it refuses before it runs the script
            return
        assert (traced.status, traced.out) == (0, "done\n" * lines), traced.err
        path = disk / "run.trace"
        if path.exists() and path.stat().st_size:
            assert_honest(case.trace("disk/run.trace"), CALLS * lines, traced.said)


OUTPUTS = {
    "/dev/full": "import os; os.symlink('/dev/full', 'run.trace')",
    "/dev/null": "import os; os.symlink('/dev/null', 'run.trace')",
    "a pipe": "import os; os.mkfifo('run.trace')",
    "a folder": "import os; os.mkdir('run.trace')",
    "a link to nothing": "import os; os.symlink('elsewhere.trace', 'run.trace')",
    "a link to a file": "import os; open('other', 'w').write('x'); os.symlink('other', 'run.trace')",
}


@row("outputs that are no plain file", "It refuses with one line, or records; what was there stays.", OUTPUTS)
def special_output(case: Case, make: str) -> None:
    case.write(SCRIPT)
    assert case.python("-c", make).status == 0
    before = (case.folder / "run.trace").lstat()
    traced = case.record("-o", "run.trace", "script.py")
    assert "Traceback" not in traced.err, traced.err
    after = (case.folder / "run.trace").lstat()
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino), "it was replaced"
    if traced.status == 0:
        assert traced.out == "done\n", traced.err
    else:
        assert traced.said.count("\n") == 1, traced.err


LIMITS = {
    "a largest file size": "resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))",
    "a largest file size, with its signal": (
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))"
    ),
}


@row("limits of file sizes", "The script runs as without tracer; the trace says what it lacks.", LIMITS)
def limited(case: Case, limit: str) -> None:
    case.write(f"import resource, signal\n{limit}\n{SCRIPT}")
    plain, traced = case.python("script.py"), case.record("-o", "run.trace", "script.py")
    assert (traced.status, traced.out) == (plain.status, plain.out), traced.err
    assert_honest(case.trace(), CALLS, traced.said)
