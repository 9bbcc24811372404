"""A request to another process, and its answers.

The process gets a script that has the request in it. The script connects to a socket in a folder of whoever
asks, and sends one packet for each answer: a list, in JSON, of its kind and a text.

started   the recording runs; why CUDA is not recorded
ended     the recording has ended, in whatever way; its summary
failed    nothing was done; why
ends      nothing was done, because the process is ending

The system says which process is at the other end. When the socket closes, whoever asked has gone: the process
begins no recording any more. It may be another user's: what it sends is checked, and its control characters
are escaped. Nothing is written to the folder once others may enter it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tracer.base.errors import RecordingError
from tracer.base.package import FOLDER
from tracer.base.visible import LONGEST, visible_lines

STARTED, ENDED, FAILED, ENDS = "started", "ended", "failed", "ends"
_PAUSE = 0.02  # seconds between two looks at whether the process lives
_LONGEST = 1 << 16  # bytes of an answer; the rest of a longer one is lost
_NONSENSE = "its answer is not one of this version of tracer"

# The program may have names such as exec of its own, and any handler of a signal may run and raise between
# two instructions. Until the text has come to what handles that, it is tried again. A Python that ends has no
# BaseException.
_SCRIPT = """\
try:
 {name} = [{text!r}, {{}}]
 from builtins import exec as {name}_exec
 {name}_exec({name}[0], {name}[1])
except:
 try:
  {name}[1]["again"] = True
  {name}_exec({name}[0], {name}[1])
 except:
  pass
try:
 del {name}, {name}_exec
except:
 pass
"""


class Ticket:
    """One request. The folder is removed at the end of `with`."""

    def __init__(self, request: Mapping[str, object], pid: int, user: int, *, as_file: bool = False) -> None:
        """`pid`: the process that is asked, of this `user`. `as_file`: it reads the script from a file.

        Raises RecordingError if the folder cannot be made.
        """
        self.pid, self._user = pid, user
        self.is_taken = False
        """Whether the process has begun to do what is asked for"""
        known = {"later": False, "python": list(sys.version_info[:2]), "package": FOLDER}
        self.request = known | dict(request)
        self._peer: socket.socket | None = None
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="tracer-attach-", dir=_place(user)))
        except OSError as error:
            raise _not_written(error) from None
        # The process may not be allowed to read the package.
        text = Path(FOLDER, "attach", "inside.py").read_text(encoding="utf-8")
        text += f"\nrun({str(self.folder)!r}, {pid}, {self.request!r})\n"
        self.script = _SCRIPT.format(name="_tracer_attach", text=text)
        """The Python text that the process has to run; it raises nothing and leaves no names"""
        self.file = self.folder / "script.py" if as_file else None
        try:
            self._open()
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise _not_written(error) from None

    def _open(self) -> None:
        """Listen in the folder, and then let the process enter that."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._socket.bind(f"/proc/self/fd/{folder}/socket")  # a path of at most 108 bytes
            os.chmod("socket", 0o600, dir_fd=folder)
            if self.file is not None:
                with self.file.open("x", encoding="utf-8") as file:
                    file.write(self.script)
                    os.fchmod(file.fileno(), 0o444)
            if self._user != os.getuid():
                os.chown("socket", self._user, -1, dir_fd=folder, follow_symlinks=False)
                os.fchmod(folder, 0o711)
            self._socket.listen()
            self._socket.setblocking(False)
        finally:
            os.close(folder)

    def withdraw(self) -> bool:
        """Take the request back; False if the process has already begun."""
        self._accept()
        if not self.is_taken:
            self._socket.close()
        return not self.is_taken

    def wait(
        self, kinds: Sequence[str], seconds: float | None, lives: Callable[[], bool]
    ) -> tuple[str, str] | None:
        """The first answer of these kinds, with its text; None after `seconds`, or once `lives()` is false.

        A process that has not begun yet gets as much time again when it begins.
        """
        end = None if seconds is None else time.monotonic() + seconds
        was_taken = self.is_taken
        while True:
            alive = lives()
            readable, _, _ = select.select([self._peer or self._socket], [], [], _PAUSE if alive else 0)
            if readable and (found := self._read()) and found[0] in kinds:
                return found
            if self.is_taken and not was_taken and seconds is not None:
                was_taken, end = True, time.monotonic() + seconds
            if not (alive or readable) or (end is not None and time.monotonic() > end):
                return None

    def _read(self) -> tuple[str, str] | None:
        """An answer that is there: the only one of its connection."""
        self._accept()
        try:
            data = self._peer.recv(_LONGEST) if self._peer else b""
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if self._peer:
            self._peer.close()
            self._peer = None
        return _answer(data) if data else None

    def _accept(self) -> None:
        """Take a connection of the process, if there is one. Other processes get none."""
        try:
            peer = self._peer or self._socket.accept()[0]
        except OSError:
            return
        pid, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if (pid, user) == (self.pid, self._user):
            peer.setblocking(False)
            self._peer, self.is_taken = peer, True
        else:
            peer.close()

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        if self._peer:
            self._peer.close()
        self._socket.close()
        if self.file is None or self.is_taken:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:  # the process may come to its script later, and would say that there is none
            (self.folder / "socket").unlink(missing_ok=True)


def _answer(data: bytes) -> tuple[str, str]:
    try:
        kind, text = json.loads(data)
        if kind in (STARTED, ENDED, FAILED, ENDS) and isinstance(text, str):
            return kind, visible_lines(text, LONGEST)
    except (ValueError, TypeError, RecursionError):
        pass
    return FAILED, _NONSENSE


def _place(user: int) -> str:
    """The folder for temporary files. Raises RecordingError if it is not safe to let this user in."""
    place = os.path.realpath(tempfile.gettempdir())
    if user == os.getuid():
        return place
    for folder in (Path(place), *Path(place).parents):
        found = os.stat(folder)
        is_shared = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.getuid()) or is_shared or not found.st_mode & 0o001:
            raise RecordingError(
                f"others may change {folder}, or the job's user may not enter it; "
                "set TMPDIR to another folder, e.g. TMPDIR=/tmp"
            )
    return place


def _not_written(error: OSError) -> RecordingError:
    folder = tempfile.tempdir or "a temporary folder"
    return RecordingError(
        f"the request cannot be written to {folder}: {error.strerror}; set TMPDIR to another folder"
    )
