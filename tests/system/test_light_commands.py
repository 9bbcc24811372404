"""What every command costs before it does its own work."""

from __future__ import annotations

import subprocess
import sys


def test_a_command_line_is_read_without_polars() -> None:
    """Each command would take its 0.1 s; and its threads, which a fork does not survive."""
    made = "import sys, tracer.cli.app, typer.main; typer.main.get_command(tracer.cli.app.app)"
    text = f"{made}; print(sorted({{'polars', 'numpy', 'torch'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
