"""The readers of csrc, which count and trim a trace when its recording ends, in a program with sanitizers."""

from __future__ import annotations

import json
import resource
import select
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

TRACE = Path(__file__).parents[2] / "csrc" / "trace"
COMPILER = shutil.which("g++")
PROGRAM = "trace_readers"
_PARTS = ("bus_error", "chunk_reader", "descriptor", "ring", "totals", "trace_file", "unnamed_file")
_WRAPPED = "-Wl,--wrap=pread,--wrap=close,--wrap=mmap"
_SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
_PATIENCE = 60
"""Seconds for one file"""


class ReadersFailedError(Exception):
    """They ended, or take too long."""


def build(folder: Path) -> Path:
    """The program; without sanitizers where the compiler has none."""
    program = folder / PROGRAM
    sources = [Path(__file__).with_name(f"{PROGRAM}.cpp"), *(TRACE / f"{part}.cpp" for part in _PARTS)]
    command = [COMPILER or "g++", "-std=c++20", "-O1", "-g1", _WRAPPED, "-o", program, *sources, "-lpthread"]
    sanitized = subprocess.run([*command, *_SANITIZED], capture_output=True, check=False)
    if sanitized.returncode != 0:
        subprocess.run(command, check=True)
    return program


def _no_limit() -> None:
    """Of address space: sanitizers take terabytes of it."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)


class Readers:
    """The program, as it runs; begun again after a failure."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def read(self, file: Path, cut_before: int = 0, size: int = 0) -> list[dict[str, Any]]:
        """What was counted before and after the file was trimmed; it is changed by that.

        `cut_before`: the number of a system call before which another process cuts it to `size`.
        """
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                [str(self._program)], stdin=pipe, stdout=pipe, stderr=pipe, text=True, preexec_fn=_no_limit
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(f"{file} {cut_before} {size}\n")
            process.stdin.flush()
        answered, _, _ = select.select([process.stdout], [], [], _PATIENCE)
        line = process.stdout.readline() if answered else ""
        if not line.endswith("]\n"):
            raise ReadersFailedError(self.end() if answered else f"more than {_PATIENCE} s ({self.end()})")
        counted: list[dict[str, Any]] = json.loads(line)
        return counted

    def fault_of(self, file: Path) -> str:
        """What does not hold for a damaged file."""
        copy = file.with_suffix(".copy")
        shutil.copy(file, copy)
        try:
            before, after = self.read(copy)
        except ReadersFailedError as error:
            return f"the readers of csrc: {error}"
        finally:
            copy.unlink()
        is_ring = file.read_bytes()[120:124].strip(b"\0")  # of which the program takes slots again
        if before["damaged_chunks"] or is_ring or before == after:
            return ""
        return f"the readers of csrc counted {before}, and {after} once it was trimmed"

    def end(self) -> str:
        """Ends the program; how it ended, and what it said."""
        process, self._process = self._process, None
        if process is None:
            return ""
        try:
            _, said = process.communicate(timeout=5)  # its stdin ends
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        first = next((line for line in said.splitlines() if "ERROR" in line or "runtime error" in line), "")
        return f"status {process.returncode} {first}".rstrip()
