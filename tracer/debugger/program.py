"""Finds a gdb that is new enough and has Python."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from tracer.debugger.debugger_errors import DebuggerError

OLDEST = (12, 0)
_INSTALL = "apt-get install gdb (dnf install gdb), or give one with --gdb"
_ASK = "python import sys; print('python', *sys.version_info[:2])"


@dataclass(frozen=True)
class Gdb:
    """A usable gdb; `version` as it names itself."""

    path: str
    version: str
    number: tuple[int, int]


def find(wanted: str | None = None) -> Gdb:
    """The given gdb, else gdb or cuda-gdb on the PATH. Raises DebuggerError with what to install."""
    names = [wanted] if wanted else ["gdb", "cuda-gdb"]
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        verb = "is" if len(names) == 1 else "are"
        raise DebuggerError(f"{' and '.join(names)} {verb} missing: {_INSTALL}")
    try:
        done = subprocess.run(
            [path, "--nx", "--batch", "-ex", "show version", "-ex", _ASK],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DebuggerError(f"{path} does not run: {error}") from None
    lines = done.stdout.splitlines()
    based = [line for line in lines if re.search(r"GNU gdb|cuda-gdb", line)]
    # cuda-gdb tells the version that it is based on in a line of its own
    numbers = [match for line in reversed(based) if (match := re.search(r"(\d+)\.(\d+)(?!.*\d\.\d)", line))]
    if not numbers:
        raise DebuggerError(f"{path} does not answer like gdb; {_INSTALL}")
    number = (int(numbers[0][1]), int(numbers[0][2]))
    if number < OLDEST:
        raise DebuggerError(
            f"{path} is version {number[0]}.{number[1]}, but tracer needs 12 or newer: {_INSTALL}"
        )
    if not any(line.startswith("python ") for line in lines):
        raise DebuggerError(f"{path} was built without Python; {_INSTALL}")
    return Gdb(path, based[0].strip(), number)
