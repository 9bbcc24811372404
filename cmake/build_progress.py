"""Runs a build and says how far it is: `build_progress.py [--every SECONDS] COMMAND...`.

pip says nothing while it builds, or with --verbose a thousand lines. This shows what the build does and how
many objects are compiled: on a terminal in one line that changes, elsewhere in a line now and then. If the
command fails, its output is printed. The exit status is the command's. It needs only Python's own library.
"""

from __future__ import annotations

import argparse
import queue
import re
import shutil
import subprocess
import sys
import threading
import time

EVERY = 30.0
"""Seconds between two lines, if stdout is not a terminal"""
OBJECT = re.compile(r"\s*(\[\d+/\d+\]) (.+)")
SOURCE = re.compile(r"Building \w+ object \S+?\.dir/(\S+)\.o$")
STAGES = (
    (re.compile(r"Collecting ([\w.-]+)"), r"looking for \1"),
    (re.compile(r"\s*Downloading (\S+)"), r"downloading \1"),
    (re.compile(r"\s*\*\*\* Configuring CMake"), "configuring"),
    (re.compile(r"Installing collected packages"), "installing packages"),
)


def stage(line: str) -> str | None:
    """What a line of pip, CMake or ninja says that the build is at; None if it says something else.

    [17/65] Building CXX object CMakeFiles/_C.dir/csrc/native/elf.cpp.o    ->  [17/65] csrc/native/elf.cpp
    """
    if found := OBJECT.match(line):
        source = SOURCE.match(found[2])
        return f"{found[1]} {source[1] if source else found[2]}"
    for pattern, text in STAGES:
        if found := pattern.match(line):
            return found.expand(text)
    return None


class Display:
    """Shows the stage of a build and the seconds since it began."""

    def __init__(self, every: float) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._every = 1.0 if self._is_terminal else every
        self._began = time.monotonic()
        self._next = self._began
        self._stage = "starting"

    def show(self, stage: str | None) -> None:
        """A terminal shows each new stage at once; both show the present one again when it is time."""
        now = time.monotonic()
        changed = stage is not None and self._is_terminal
        self._stage = stage or self._stage
        if changed or now >= self._next:
            self._next = now + self._every
            self._print(f"   {self._stage} ({now - self._began:.0f} s)")

    def clear(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", flush=True)

    def _print(self, text: str) -> None:
        if self._is_terminal:
            print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
        else:
            print(text, flush=True)


def run(command: list[str], every: float) -> int:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    display = Display(every)
    said = []
    while True:
        display.show(None)
        try:
            line = lines.get(timeout=0.5)
        except queue.Empty:
            continue
        if line is None:
            break
        said.append(line)
        display.show(stage(line))
    display.clear()
    status = process.wait()
    if status:
        sys.stdout.write("".join(line for line in said if not OBJECT.match(line)))
    return status if status >= 0 else 128 - status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float, default=EVERY, metavar="SECONDS")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    try:
        sys.exit(run(given.command, given.every))
    except KeyboardInterrupt:  # the command had it too
        sys.exit(130)


if __name__ == "__main__":
    main()
