"""`%load_ext tracer`: the cell magic `%%tracer`."""

from __future__ import annotations

import os
import shlex
import tempfile
from typing import Any

from tracer.interactive.trace import Trace, load
from tracer.recording.recording import record

USAGE = "give one file at most: %%tracer run.trace"


def load_ipython_extension(shell: Any) -> None:
    """IPython calls this for `%load_ext tracer`."""

    def tracer(line: str, cell: str) -> Trace | None:
        """Run the cell, record it, and return the trace: %%tracer [FILE.trace]. FILE is overwritten."""
        return _record(shell, line, cell)

    shell.register_magic_function(tracer, "cell", "tracer")


def _record(shell: Any, line: str, cell: str) -> Trace | None:
    words = shlex.split(line)
    if len(words) > 1:
        print(f"tracer: {USAGE}")
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = words[0] if words else os.path.join(folder, "cell.trace")
        with record(path, force=True):
            result = shell.run_cell(cell)
        trace = load(path)
    return trace if result.success else None  # IPython has shown the error
