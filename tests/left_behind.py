"""What a test leaves behind: processes, files outside its folder, a changed environment or current folder.

A test that does so fails by itself, and variables and the folder are put back, so that the next one does
not. What others write into the repository meanwhile looks like the test's. What a fixture of a module has set
up stays for the tests of that module; at the end of the session nothing of it may be left.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TICK = 1 / os.sysconf("SC_CLK_TCK")  # the kernel notes when a process began in whole ones
# What a test starts has this mark in its environment, with the number of the pytest process: so it is found
# when its parents have ended. A worker of pytest-xdist has one that begins with its parent's.
_MARK = "STARTED_BY_TESTS"
os.environ[_MARK] = _OURS = f"{os.environ.get(_MARK, '')}{os.getpid()}-{time.time_ns()}/"
_GRACE = 2.0  # seconds in which a process may end
# pytest sets the first; torch, its compiler and polars set the others when they are first used, for good.
_FREE = ("PYTEST_CURRENT_TEST", "_TORCHINDUCTOR", "KMP_", "TRITON_", "_RJEM_MALLOC_CONF")
# In the folder for temporary files: pytest's, caches of torch's compiler, what torchrun never removes, and
# what CUDA makes in a process under gdb (also a folder that is named by a number).
# A browser that serves many tests has files for moments.
_MAY_STAY = ("pytest-of-", "torchinductor_", "torchelastic_", "cuda-dbg", ".org.chromium.")

session_folder = tempfile.gettempdir()  # for temporary files; conftest.py makes one


@dataclass(frozen=True)
class Place:
    """The environment, the current folder, and the names in the folders where a test has no business."""

    environment: dict[str, str]
    folder: str
    names: frozenset[str]

    @classmethod
    def now(cls) -> Place:
        names = {name: text for name, text in os.environ.items() if not name.startswith(_FREE)}
        return cls(names, _folder(), frozenset(_names()))

    def put_back(self) -> None:
        """Variables and the folder, for the next test."""
        for name in Place.now().environment.keys() - self.environment.keys():
            del os.environ[name]
        os.environ.update(self.environment)
        if os.path.isdir(self.folder):
            os.chdir(self.folder)


def changed(*earlier: Place) -> list[str]:
    """What differs now from each of these, a line each.

    For a test: when the session began, before its fixtures, and when it began itself (the last).
    """
    now, begun = Place.now(), earlier[-1]
    lines = []
    names = set(now.environment).union(*(place.environment for place in earlier))
    for name in sorted(names):
        text = now.environment.get(name)
        if text not in [place.environment.get(name) for place in earlier]:
            lines.append(f"the environment variable {name} is {text!r}")
    if now.folder not in [place.folder for place in earlier]:
        lines.append(f"the current folder is {now.folder}")
    lines += [f"the file {name}" for name in sorted(now.names - begun.names)]
    return lines


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "one that is gone"


def _names() -> Iterator[str]:
    """Paths in the repository's folders, and in this session's own folder for temporary files."""
    for folder in (ROOT, ROOT / "tests", ROOT / "tests/cpu", ROOT / "examples"):
        found = [each.path for each in os.scandir(folder)]
        yield from (
            name for name in found if not name.endswith(("__pycache__", "_cache", ".hypothesis", "/build"))
        )
    for each in os.scandir(session_folder):
        if not each.name.startswith(_MAY_STAY) and not each.name.isdigit():
            yield each.path


def running_since(begin: float) -> list[tuple[int, str]]:
    """Processes of tests that began after `begin`, seconds since boot, and do not end: number and command."""
    until = time.monotonic() + _GRACE
    seen: set[tuple[int, float]] = set()  # one that was seen has ended when its number says so
    while True:
        seen = {each for each in seen if _start(each[0]) == each[1]}
        seen |= set(started(begin))
        if not seen or time.monotonic() > until:
            return [(number, _command(number)) for number, _ in sorted(seen)]
        time.sleep(0.02)


def started(begin: float) -> Iterator[tuple[int, float]]:
    """Processes of tests that began after `begin` and have not ended: number, and start since boot (s)."""
    mark = f"{_MARK}={_OURS}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        number = int(folder.name)
        start = _start(number)
        if number == os.getpid() or start is None or start < begin - TICK or is_the_server(number):
            continue
        try:
            forked = int(_fields(number)[1]) == os.getpid()  # by the test itself: it has pytest's environment
            if forked or any(each.startswith(mark) for each in _environment(number).split(b"\0")):
                yield number, start
        except OSError:  # it has ended, or belongs to another user
            continue


def _environment(number: int) -> bytes:
    """A process's environment; while it executes another program it has none for a moment."""
    for _ in range(20):
        if text := Path(f"/proc/{number}/environ").read_bytes():
            return text
        time.sleep(0.001)
    return b""


def _fields(number: int) -> list[str]:
    """What /proc/NUMBER/stat has behind the name: state, parent and so on."""
    return Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _start(number: int) -> float | None:
    """When a process that runs began, in seconds since boot."""
    try:
        fields = _fields(number)
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19]) * TICK


def is_the_server(number: int) -> bool:
    """Whether this is the fork server, which ends with the session."""
    forked = sys.modules.get("forked")
    return forked is not None and forked.is_the_server(number)


def _command(number: int) -> str:
    try:
        return (
            Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
        )
    except OSError:
        return "ended"
