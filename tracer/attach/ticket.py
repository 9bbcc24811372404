"""A request to another process, and its answers: a folder of small files, which both can read.

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

from tracer.base.package import FOLDER

_PAUSE = 0.01  # seconds between two looks at the folder
STARTED, ENDED, FAILED, ENDS = "started", "ended", "failed", "ends"


class Ticket:
    """One request. The folder is removed at the end of `with`."""

    def __init__(self, request: dict[str, object], user: int) -> None:
        """`user`: who owns the process that must be able to read it."""
        self.folder = Path(tempfile.mkdtemp(prefix="tracer-attach-"))
        known = {"python": list(sys.version_info[:2]), "package": FOLDER}
        self._request = self.folder / "request.json"
        self._request.write_text(json.dumps(request | known), encoding="utf-8")
        self._user = user
        self._is_left = False
        self.give(self._request)
        self.give(self.folder)

    def give(self, path: Path) -> None:
        """Make the process's user the owner of a file in the folder, or of the folder."""
        if self._user != os.getuid():
            os.chown(path, self._user, -1)

    def script(self, process: int) -> str:
        """The Python text that this process has to run; it raises nothing and leaves no names."""
        inside = Path(FOLDER, "attach", "inside.py").read_text(encoding="utf-8")
        text = f"{inside}\n\ntake({str(self.folder)!r}, {process})\n"
        return f"try:\n exec({text!r}, {{}})\nexcept:\n pass\n"  # a Python that ends has no BaseException

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
