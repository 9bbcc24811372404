"""A gdb that tracer drives by its machine interface, and that can take the user's terminal."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import tty
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tracer.base.package import gdb_folder
from tracer.debugger.mi import MachineInterface

_INSIDE = Path(gdb_folder(), "inside")


class Console(MachineInterface):
    """gdb's command line is on the terminal, but set aside until `type` tells it to take that terminal.

    The machine interface is a second one, on a pseudo-terminal, which is what gdb can open for it.
    """

    def type(self, line: str) -> None:
        """What the command line reads while it is set aside."""
        os.write(self._typing, f"{line}\n".encode())

    def close(self) -> None:
        os.close(self._typing)
        self.requests.close()
        super().close()

    def _start(
        self, command: Sequence[str], inherited: Sequence[int], environment: dict[str, str]
    ) -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]:
        ours, machine = pty.openpty()
        tty.setraw(machine)
        typed, self._typing = os.pipe()
        self.requests, inside = socket.socketpair()  # gdb's side asks
        terminal = os.open(os.ttyname(0), os.O_RDWR | os.O_NOCTTY)
        numbers = f"{machine}, {typed}, {inside.fileno()}"
        setting = f"import console; console.set_aside({os.ttyname(machine)!r}, {numbers})"
        try:
            process = subprocess.Popen(
                [*command, "-iex", f"python import sys; sys.path.insert(0, {str(_INSIDE)!r}); {setting}"],
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                pass_fds=(*inherited, machine, typed, inside.fileno()),
                env=environment,
                preexec_fn=os.setpgrp,
            )
        finally:
            for number in (machine, typed, terminal):
                os.close(number)
            inside.close()
        stream = os.fdopen(ours, "r+b", buffering=0)
        return process, stream, stream
