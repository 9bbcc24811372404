"""What is longer than the screen goes through a pager, on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest
import test_cli_processes
from terminals import read_terminal

folder = test_cli_processes.folder
MARK = "sed s/^/paged:/"


class Screen:
    """A terminal of 80 columns on which a command runs."""

    def __init__(self, *words: str, rows: int = 3, **variables: str) -> None:
        arguments, environment = test_cli_processes.command(*words)
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, 80, 0, 0))
        for name in ("PAGER", "TRACER_PAGER", "LESS", "LINES"):
            environment.pop(name, None)
        self.command = subprocess.Popen(
            arguments, env={**environment, **variables}, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)

    def text(self) -> str:
        text = read_terminal(self.ours).decode().replace("\r\n", "\n")
        return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)


@pytest.mark.parametrize(
    ("words", "rows", "paged"),
    [
        (["tree", "run.trace"], 3, True),
        (["tree", "run.trace"], 60, False),
        (["--no-pager", "tree", "run.trace"], 3, False),
        (["tree", "run.trace", "--json"], 3, False),
    ],
)
def test_when_there_is_a_pager(folder: Path, words: list[str], rows: int, paged: bool) -> None:
    screen = Screen(*words, rows=rows, PAGER=MARK)
    lines = screen.text().splitlines()
    assert screen.command.wait() == 0, lines
    assert len(lines) > 3
    assert {line.startswith("paged:") for line in lines} == {paged}, lines


def test_less_shows_colours_and_is_left(folder: Path) -> None:
    screen = Screen("tree", "run.trace")
    os.write(screen.ours, b"q")
    assert "ESC" not in screen.text(), "less without -R"
    assert screen.command.wait() == 0


def test_a_pager_that_is_left_early_is_no_error(folder: Path) -> None:
    screen = Screen("tree", "run.trace", PAGER="head -n 1")
    assert len(screen.text().splitlines()) == 1
    assert screen.command.wait() == 0


def test_the_status_is_that_of_the_command(folder: Path) -> None:
    screen = Screen("tree", "run.trace", PAGER="sh -c 'cat; exit 7'")
    assert "aten::matmul" in screen.text()
    assert screen.command.wait() == 0


def test_ctrl_c_is_the_pagers(folder: Path) -> None:
    waits = "cat > /dev/null; echo reading; while [ ! -e go ]; do sleep 0.1; done; echo left"
    screen = Screen("tree", "run.trace", PAGER=f"sh -c '{waits}'")
    while b"reading" not in os.read(screen.ours, 1 << 12):
        pass
    screen.command.send_signal(signal.SIGINT)
    (folder / "go").touch()
    assert screen.text().strip() == "left"
    assert screen.command.wait() == 0


def test_in_a_pipe_there_is_none(folder: Path) -> None:
    arguments, environment = test_cli_processes.command("tree", "run.trace")
    environment |= {"PAGER": MARK, "LINES": "3"}
    ours, theirs = pty.openpty()
    done = subprocess.run(arguments, env=environment, stdin=theirs, stdout=subprocess.PIPE, check=True)
    os.close(ours)
    os.close(theirs)
    assert b"paged:" not in done.stdout
    assert len(done.stdout.splitlines()) > 3


@pytest.mark.parametrize(
    ("variables", "on_terminal", "coloured"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({}, False, False),
        ({"FORCE_COLOR": "1"}, False, True),
    ],
)
def test_colours(folder: Path, variables: dict[str, str], on_terminal: bool, coloured: bool) -> None:
    """Of FORCE_COLOR in a pipe no line is cut."""
    if on_terminal:
        screen = Screen("tree", "run.trace", rows=60, **variables)
        text = read_terminal(screen.ours).decode()
        screen.command.wait()
    else:
        arguments, environment = test_cli_processes.command("tree", "run.trace")
        text = subprocess.check_output(arguments, env=environment | variables, text=True)
        assert "..." not in text
    assert (re.search(r"\x1b\[(\d+;)*3\d", text) is not None) == coloured, text
