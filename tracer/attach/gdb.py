"""Has a stopped process call a function: gdb attaches, adds a pending call to its Python, and detaches."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tracer.attach.process import Process, not_permitted
from tracer.base.errors import RecordingError

_INSTALL = "apt-get install gdb (dnf install gdb)"
_PATIENCE = 30.0  # seconds until gdb is interrupted; it needs less than one
_ADDED = "tracer-added"
# A signal of the process must not stop it for gdb, which nobody would answer. A call of ours that cannot go
# on is undone. Symbols of torch's libraries would take seconds to read, while the process is stopped.
_COMMANDS = """\
set confirm off
set unwindonsignal on
handle all nostop noprint pass
handle SIGINT nostop noprint pass
attach {pid}
set $page = ((long (*)(long, long, long, long, long, long)) {mmap:#x})(0, {size}, 3, 0x22, -1, 0)
restore {text} binary $page
set $added = ((int (*)(long, long)) {add_pending_call:#x})({run_string:#x}, $page)
printf "{word} %d\\n", $added
detach
"""


def find() -> str:
    """The gdb on the PATH. Raises RecordingError with what to install."""
    path = shutil.which("gdb") or shutil.which("cuda-gdb")
    if path is None:
        raise RecordingError(f"tracer attach needs gdb, which is missing: {_INSTALL}")
    return path


def inject(process: Process, gdb: str, script: str) -> None:
    """Have the process run the Python text on its main thread, soon. It is stopped for some 20 ms.

    Raises RecordingError if gdb cannot attach, or if the call could not be added.
    """
    entrances = process.entrances()
    with tempfile.TemporaryDirectory(prefix="tracer-gdb-") as folder:
        text = Path(folder, "text")
        text.write_bytes(script.encode() + b"\0")
        commands = Path(folder, "commands")
        commands.write_text(
            _COMMANDS.format(
                pid=process.pid,
                size=text.stat().st_size,
                text=text,
                word=_ADDED,
                **vars(entrances),
            )
        )
        said = _run(
            [
                gdb,
                "-nx",
                "-batch",
                "-iex",
                "set auto-solib-add off",
                "-iex",
                "set auto-load off",
                "-x",
                str(commands),
            ]
        )
    if f"{_ADDED} 0" in said:
        return
    if "not permitted" in said:
        raise not_permitted(process.pid)
    if not process.is_running():
        raise RecordingError(f"process {process.pid} ended before tracer could attach")
    if f"{_ADDED} -1" in said:
        raise RecordingError(
            f"Python in process {process.pid} has no place for another call now; attach again"
        )
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
    raise RecordingError(f"gdb could not attach to process {process.pid}: {last[:200]}")


def _run(command: list[str]) -> str:
    """What gdb says. In a session of its own, so that Ctrl-C does not end it in the middle."""
    environment = {name: text for name, text in os.environ.items() if name != "DEBUGINFOD_URLS"}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment | {"LC_ALL": "C"},
        start_new_session=True,
    ) as gdb:
        for seconds, number in ((_PATIENCE, signal.SIGINT), (_PATIENCE, signal.SIGKILL)):
            try:
                return gdb.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                gdb.send_signal(number)
        return gdb.communicate()[0]
