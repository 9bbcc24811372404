"""A request to another process, and its answers: a folder of small files, which both can read.

inside.py      what the process has to run
request.json   what is wanted; the process renames it to taken.json when it begins, and whoever asked removes
               it to withdraw. One of the two happens.
started.json   the recording runs
ended.json     the recording has ended, in whatever way
failed.json    why nothing was done
ends.json      nothing was done: the process is ending
left.json      whoever asked has gone: the process begins no recording any more, and removes the folder
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from tracer.base.errors import RecordingError
from tracer.base.package import FOLDER

_PAUSE = 0.01  # seconds between two looks at the folder
STARTED, ENDED, FAILED, ENDS = "started", "ended", "failed", "ends"

# Executes inside.py, as often as it takes: until then it has only defined functions. What was raised
# meanwhile, by handlers of signals, is for the program.
_FIRST = """\
import sys
def run(raised):
    names = {{}}
    for _ in range(20):
        try:
            with open({inside!r}, encoding="utf-8") as file:
                exec(compile(file.read(), "<tracer attach>", "exec"), names)
            break
        except FileNotFoundError:
            break
        except BaseException as error:
            raised = error
    try:
        if "take" in names:
            names["take"]({folder!r}, {process})
    except BaseException as error:
        raised = error
    if raised is not None and "raise_later" in names and not names["is_own"](raised):
        names["raise_later"](raised)
run({raised})
"""


class Ticket:
    """One request. The folder is removed at the end of `with`."""

    def __init__(self, request: dict[str, object], user: int) -> None:
        """`user`: who owns the process that must be able to read it.

        Raises RecordingError if the files cannot be written.
        """
        self._user = user
        self._is_left = False
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="tracer-attach-"))
        except OSError as error:
            raise _not_written(error) from None
        try:
            self._write(request)
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise _not_written(error) from None

    def _write(self, request: dict[str, object]) -> None:
        known = {"python": list(sys.version_info[:2]), "package": FOLDER}
        self._request = self.folder / "request.json"
        self._request.write_text(json.dumps(request | known), encoding="utf-8")
        self._inside = self.folder / "inside.py"  # the process may not be allowed to read the package
        self._inside.write_bytes(Path(FOLDER, "attach", "inside.py").read_bytes())
        self.give(self._request)
        self.give(self._inside)
        self.give(self.folder)

    def give(self, path: Path) -> None:
        """Make the process's user the owner of a file in the folder, or of the folder."""
        if self._user != os.getuid():
            os.chown(path, self._user, -1)

    def script(self, process: int) -> str:
        """The Python text that this process has to run; it raises nothing and leaves no names.

        It runs in `__main__`, which may have names such as exec of its own, and any handler of a signal may
        run and raise between two instructions. Until it has come to what handles that, it is tried again.
        """
        name = "_tracer_attach_exec"

        def run(raised: str) -> str:
            facts = {"inside": str(self._inside), "folder": str(self.folder), "process": process}
            return f"{name}({_FIRST.format(raised=raised, **facts)!r}, {{}})"

        # Only in the second one is it what a handler raised: the program may be handling an exception itself.
        first, second = run("None"), run("sys.exc_info()[1]")
        again = f"try:\n  {second}\n except:\n  pass"  # a Python that ends has no BaseException
        remove = f"try:\n del {name}\nexcept:\n pass"
        return f"try:\n from builtins import exec as {name}\n {first}\nexcept:\n {again}\n{remove}\n"

    def taken(self) -> bool:
        return not self._request.exists()

    def withdraw(self) -> bool:
        """Take the request back; False if the process has already begun."""
        try:
            self._request.unlink()
        except FileNotFoundError:
            return False
        return True

    def leave(self) -> None:
        """Leave the request to a process that may take it or finish it later, when nobody waits any more."""
        left = self.folder / "left.json"
        left.touch()
        self.give(left)
        self._is_left = True

    def answer(self, *kinds: str) -> tuple[str, dict] | None:
        """The first answer of these kinds that is there, with its facts."""
        for kind in kinds:
            try:
                return kind, json.loads((self.folder / f"{kind}.json").read_text(encoding="utf-8"))
            except FileNotFoundError:
                pass
        return None

    def wait(
        self, kinds: Sequence[str], seconds: float | None, lives: Callable[[], bool]
    ) -> tuple[str, dict] | None:
        """The first answer of these kinds; None after `seconds`, or once `lives()` is false."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            alive = lives()
            if found := self.answer(*kinds):
                return found
            if not alive or (end is not None and time.monotonic() > end):
                return None
            time.sleep(_PAUSE)

    def __enter__(self) -> Ticket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_left or self.answer(STARTED, ENDED, FAILED, ENDS):
            shutil.rmtree(self.folder, ignore_errors=True)


def _not_written(error: OSError) -> RecordingError:
    folder = tempfile.tempdir or "a temporary folder"
    return RecordingError(
        f"the request cannot be written to {folder}: {error.strerror}; set TMPDIR to another folder"
    )
