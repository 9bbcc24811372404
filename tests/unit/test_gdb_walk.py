"""Session scripts that raise, and moves where there is no stop: no gdb runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracer.base import package
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.walk import SessionError, Walk, run_script, session_scripts

SCRIPT = """
def inner(shape):
    return 1 // (shape - 1)

def walk(gdb):
    gdb.go()
    inner(1)
"""


def raised(path: Path, text: str, **moves: Any) -> SessionError:
    path.write_text(text)
    with pytest.raises(SessionError) as caught:
        run_script(path, SimpleNamespace(go=lambda: None, **moves))  # type: ignore[arg-type]
    return caught.value


def test_the_traceback_begins_at_the_session_script(tmp_path: Path) -> None:
    error = raised(tmp_path / "own.py", SCRIPT)
    assert str(error).startswith("own.py:3 raised ZeroDivisionError: ")
    assert [(frame.name, frame.lineno) for frame in error.traceback.stack] == [("walk", 7), ("inner", 3)]


def test_an_error_of_tracers_own_ends_at_the_session_script(tmp_path: Path) -> None:
    def step() -> None:
        raise DebuggerError("there is no stop")

    error = raised(tmp_path / "own.py", "def walk(gdb):\n    gdb.step()\n", step=step)
    assert [(frame.name, frame.lineno) for frame in error.traceback.stack] == [("walk", 2)]


def test_a_session_script_may_end_by_exit(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import sys\ndef walk(gdb):\n    sys.exit()\n")
    run_script(tmp_path / "own.py", SimpleNamespace())  # type: ignore[arg-type]
    assert "SystemExit: no stop" in str(
        raised(tmp_path / "own.py", "def walk(gdb):\n    raise SystemExit('no stop')\n")
    )


@pytest.mark.parametrize("move", ["step", "next_hop", "finish_op"])
def test_a_move_needs_a_stop(move: str) -> None:
    walk = Walk(SimpleNamespace())  # type: ignore[arg-type]
    walk._session = SimpleNamespace(torch_imported=False)  # type: ignore[assignment]
    with pytest.raises(DebuggerError, match=rf"{move}\(\) needs a stop, but the program has not started"):
        getattr(walk, move)()
    walk._ended = True
    with pytest.raises(DebuggerError, match=rf"{move}\(\) needs a stop, but the program has ended"):
        getattr(walk, move)()


@pytest.mark.parametrize("place", ["tracer/gdb", "gdb"])
def test_sessions_are_found_also_beside_the_package(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip install -e .` leaves both folders as they are in the source."""
    monkeypatch.setattr(package, "FOLDER", str(tmp_path / "tracer"))
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "mm.py").write_text("")
    assert session_scripts() == {"mm": tmp_path / place / "mm.py"}
