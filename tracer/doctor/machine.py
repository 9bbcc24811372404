"""The tools and the disk space of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tracer.debugger import program
from tracer.debugger.debugger_errors import DebuggerError
from tracer.doctor.finding import Finding

_HOP_BYTES = 56
_LEAST, _LITTLE = 16 << 20, 1 << 30
"""A recording starts with a few MiB; one of a training run takes hundreds"""


def check_gdb() -> Finding:
    """Only `tracer gdb` needs gdb."""
    try:
        gdb = program.find()
    except DebuggerError as error:
        return Finding("note", "gdb", "tracer gdb needs one", str(error))
    return Finding("ok", "gdb", f"{gdb.version}, {gdb.path}")


def check_compiler() -> Finding:
    """A compiler is needed to build tracer again, and for overlays."""
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    needed = "to rebuild tracer after a change of torch, and for tracer gdb --overlay"
    if path is None:
        return Finding("note", "compiler", f"no {name}; it is needed {needed}", "install g++")
    version = _first_line([path, "--version"])
    if not _compiles(path):
        return Finding(
            "note",
            "compiler",
            f"{version} does not support C++20, which is needed {needed}",
            "install g++ 11",
        )
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return Finding("note", "compiler", f"{version}; Python.h is missing", "install python3-dev")
    return Finding("ok", "compiler", f"{version}, {path}")


def check_disk() -> Iterator[Finding]:
    """Free space for traces (this folder) and for temporary files."""
    for folder in dict.fromkeys((os.getcwd(), tempfile.gettempdir())):
        yield check_folder(folder, shutil.disk_usage(folder).free, os.access(folder, os.W_OK))


def check_folder(folder: str, free: int, writable: bool) -> Finding:
    room = f"{free / (1 << 30):.1f} GiB free in {folder}, room for {_millions(free // _HOP_BYTES)} hops"
    if not writable:
        return Finding(
            "problem", "disk", f"cannot write to {folder}", "use another folder, or: tracer record -o FILE"
        )
    if free < _LEAST:
        return Finding("problem", "disk", room, "free some space, or write elsewhere: tracer record -o FILE")
    if free < _LITTLE:
        return Finding("note", "disk", room, "a recording stops early if the disk is full")
    return Finding("ok", "disk", room)


def _millions(count: int) -> str:
    return f"{count / 1e6:,.0f} million" if count >= 1e6 else f"{count:,}"


def _compiles(compiler: str) -> bool:
    command = [compiler, "-std=c++20", "-x", "c++", "-fsyntax-only", "-"]
    try:
        done = subprocess.run(command, input=b"int main() {}", capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return os.path.basename(command[0])
    line = (done.stdout.splitlines() or [os.path.basename(command[0])])[0]
    return re.sub(r"\s+", " ", line)
