"""A command makes and loads what it needs, and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from towers import towers

from tracer.cli import app as module

LOADS = """
import sys
import typer.main
from tracer.cli import app as module
make, made = typer.main.get_command_from_info, []
typer.main.get_command_from_info = lambda *given, **named: made.append(1) or make(*given, **named)
try:
    module.main()
finally:
    loaded = [name for name in ("elftools", "polars", "torch") if name in sys.modules]
    print(len(made), *loaded)
"""


def loaded_by(*words: str) -> str:
    run = subprocess.run([sys.executable, "-c", LOADS, *words], capture_output=True, text=True, check=False)
    return run.stdout.splitlines()[-1]


def test_a_small_trace_loads_no_reader_of_libraries(tmp_path: Path) -> None:
    trace = towers(3).write(tmp_path / "t.trace")
    assert loaded_by("certificate", str(trace)) == "1 polars"
    assert loaded_by("--no-pager", "certificate", str(trace)) == "1 polars"


def test_help_loads_no_tables() -> None:
    assert loaded_by("top", "--help") == "1"


@pytest.mark.parametrize("words", [("--help",), ("nosuch",), ("--help", "top"), ()])
def test_what_is_no_command_knows_all(words: tuple[str, ...]) -> None:
    assert loaded_by(*words) == str(len(module.app.registered_commands))


def test_each_command_is_found_by_its_name() -> None:
    from typer.main import get_command

    every = list(vars(get_command(module.app))["commands"])
    assert every == [one.callback.__name__ for one in module.app.registered_commands if one.callback]
