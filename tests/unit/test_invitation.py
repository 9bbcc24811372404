"""Which recordings still run, by what they left in the environment."""

from __future__ import annotations

import builtins
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tracer.recording.children import JoinedRecording
from tracer.recording.invitation import NAME, lives, program, running, this_process
from tracer.trace.bytes import format as fmt


def header(path: Path, **fields: int) -> None:
    start = {"magic": fmt.MAGIC, "version": fmt.FORMAT_VERSION, "header_bytes": fmt.HEADER_BYTES}
    values = start | {"state": fmt.RECORDING, "session": 1 << 63} | fields
    words = [values.get(name, 0) for name in fmt.FileHeader._fields]
    path.write_bytes(fmt.FILE_HEADER.pack(*words).ljust(fmt.HEADER_BYTES, b"\0"))


def invitation(given: Path, **fields: Any) -> str:
    return json.dumps({"path": str(given), "session": 1 << 63, "process": this_process()} | fields)


@pytest.mark.parametrize(
    ("fields", "state", "expected"),
    [
        ({}, {}, True),
        ({}, {"state": fmt.CLOSED}, False),
        ({}, {"state": fmt.OUT_OF_SPACE}, False),
        ({}, {"session": 5}, False),
        ({"session": -1}, {}, False),
        ({"session": None}, {}, False),
        ({"process": [os.getpid(), 1, this_process()[2]]}, {}, False),
        ({"process": [os.getpid()]}, {}, False),
        ({"process": "me"}, {}, False),
        ({"process": [-1, 0, this_process()[2]]}, {}, False),
        ({"path": 3}, {}, False),
        ({"path": "/nowhere/at.all"}, {}, False),
    ],
)
def test_running(tmp_path: Path, fields: dict[str, Any], state: dict[str, int], expected: bool) -> None:
    path = tmp_path / "run.trace"
    header(path, **state)
    assert running(invitation(path, **fields)) == (str(path) if expected else None)


def test_a_recording_that_waits_for_torch_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    path.touch()
    assert running(invitation(path)) == str(path)
    path.write_text("the trace that --force will replace")
    assert running(invitation(path)) is None


def test_what_an_emulator_shows_a_process_of_itself_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """qemu makes up these files for the process that it runs, and compares the beginning of the path."""
    path, real = tmp_path / "run.trace", open
    header(path)
    invited = invitation(path, program=program(os.getpid()))

    def emulated(file: Any, *arguments: Any, **named: Any) -> Any:
        made_up = str(file).startswith(("/proc/self/", f"/proc/{os.getpid()}/"))
        return real(os.devnull if made_up else file, *arguments, **named)

    monkeypatch.setattr(builtins, "open", emulated)
    assert running(invited) == str(path)
    assert program(os.getpid()) != 0


@pytest.mark.parametrize("text", ["", "garbage", "[]", "3", "{}", '{"path": "/dev/zero"}'])
def test_what_is_no_invitation(text: str) -> None:
    assert running(text) is None


def test_a_process_in_another_container_lives_as_long_as_its_file_is_open(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    path.touch()
    elsewhere = [1, 1, 1]
    with path.open("r+b"):
        assert lives(elsewhere, str(path))
    assert not lives(elsewhere, str(path))
    assert not lives(elsewhere, "/nowhere/at.all")


def test_what_an_invitation_names_is_opened_as_a_regular_file_only(tmp_path: Path) -> None:
    """A job chooses the path, and `tracer attach` may be root's: to open a device can be to use it."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    opened = threading.Thread(target=lambda: os.close(os.open(path, os.O_WRONLY)), daemon=True)
    opened.start()  # until somebody opens the other end
    for _ in range(20):
        assert not lives([1, 1, 1], str(path))
        opened.join(0.01)
        assert opened.is_alive()
    assert running(invitation(path)) is None
    assert opened.is_alive()
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    opened.join()


@pytest.mark.parametrize("session", [-1, 1 << 64, "1", None])
def test_a_session_that_is_no_number_of_a_recording_is_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: object
) -> None:
    request = {"path": str(tmp_path / "x.trace"), "session": session, "process": this_process()}
    monkeypatch.setenv(NAME, json.dumps(request))
    (tmp_path / "x.trace").write_bytes(b"x")
    assert JoinedRecording.join(request) is None
    assert NAME not in os.environ
