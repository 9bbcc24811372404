"""A script that owns a terminal owns it under gdb too: pdb, input(), Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from launching import Launcher

pytestmark = pytest.mark.gdb

SCRIPT = """
import os, sys, torch
print("terminal", sys.stdin.isatty(), sys.stdout.isatty(), os.tcgetpgrp(0) == os.getpgrp())
def f(x):
    breakpoint()
    return torch.neg(x)
f(torch.ones(2))
print("answer", input("question? "))
# Not in input(): Python sees a Ctrl-C between its prompt and its read only when the read returns.
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # pdb has put one of its own
print("waits", flush=True)
while True:
    time.sleep(0.05)
"""


class Terminal:
    """A process on a pseudo-terminal of its own."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        attributes = termios.tcgetattr(theirs)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
        self._ours = ours
        self.text = ""
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
            preexec_fn=_own_terminal, close_fds=True,
        )  # fmt: skip
        os.close(theirs)

    def expect(self, wanted: str, seconds: float = 900) -> None:
        """Reads until `wanted` has been printed since the last time."""
        deadline = time.monotonic() + seconds
        while wanted not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, f"no {wanted!r} in {self.text[-2000:]!r}"
            if select.select([self._ours], [], [], min(left, 1))[0]:
                try:
                    self.text += os.read(self._ours, 65536).decode("utf-8", "replace")
                except OSError:
                    assert wanted in self.text, f"ended without {wanted!r}: {self.text[-2000:]!r}"
        self.text = self.text[self.text.index(wanted) + len(wanted) :]

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def status(self) -> int:
        while self.process.poll() is None:
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._ours, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        return self.process.wait(900)


def _own_terminal() -> None:
    import fcntl

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def under_gdb(launcher: Launcher, script: str) -> Terminal:
    launcher.write(script)
    command = [str(launcher.tracer), "gdb", "script.py", "--break", "aten::neg [CPU]", "-o", "stops.md"]
    return Terminal(command, launcher.folder, launcher.environment)


def test_pdb_input_and_ctrl_c_are_the_scripts(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    command = [str(launcher.tracer), "gdb", "script.py", "--break", "aten::neg [CPU]", "-o", "stops.md"]
    terminal = Terminal(command, launcher.folder, launcher.environment)
    terminal.expect("terminal True True True")
    terminal.expect("(Pdb) ")
    terminal.type("p x.shape\n")
    terminal.expect("torch.Size([2])")
    terminal.expect("(Pdb) ")
    terminal.type("c\n")
    terminal.expect("question? ")
    terminal.type("yes\n")
    terminal.expect("answer yes")
    terminal.expect("waits")
    terminal.type("\x03")
    terminal.expect("KeyboardInterrupt")
    terminal.expect("wrote ")
    # Python ends by the signal, as without gdb
    assert terminal.status() == 128 + signal.SIGINT
    text = (launcher.folder / "stops.md").read_text()
    assert re.search(r"py   .*script.py:6  f\n", text)


STOPS = """
import torch
x = torch.ones(2, 5)
torch.neg(x)
breakpoint()
torch.neg(x)
print('went on')
raise SystemExit(3)
"""


def test_the_terminal_is_handed_to_gdb_at_a_stop(launcher: Launcher) -> None:
    """And between two stops to pdb."""
    launcher.write(STOPS)
    command = [str(launcher.tracer), "gdb", "--interactive", "-b", "aten::neg [CPU]", "script.py"]
    terminal = Terminal(command, launcher.folder, launcher.environment)
    terminal.expect("(tracer) ")
    terminal.type("tensor self\n")
    terminal.expect("[2, 5]")
    terminal.expect("(tracer) ")
    terminal.type("dispatch-bt\n")
    terminal.expect("at::_ops::neg::call")
    terminal.expect("(tracer) ")
    terminal.type("continue\n")
    terminal.expect("(Pdb) ")
    terminal.type("p x.shape\n")
    terminal.expect("torch.Size([2, 5])")
    terminal.expect("(Pdb) ")
    terminal.type("c\n")
    terminal.expect("(tracer) ")  # the next stop of gdb
    terminal.type("tensor self\n")
    terminal.expect("[2, 5]")
    terminal.expect("(tracer) ")
    terminal.type("continue\n")
    terminal.expect("went on")
    terminal.expect("# tracer gdb")  # the script's end is the session's
    assert terminal.status() == 3
