"""The recording that `tracer attach` begins in this process, which was started without tracer.

`begin` and `end` run on a thread of their own (`tracer.attach.inside`). They print nothing: the program's
output stays its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tracer.base import extension, locks, say
from tracer.base.errors import RecordingError
from tracer.recording import cuda
from tracer.recording.options import Options
from tracer.recording.recording import Recording
from tracer.recording.summary import Summary

_GIVEN_UP = "tracer attach has ended meanwhile, so nothing is recorded"
_current: Recording | None = None
_asked = ""  # the path that its request named: it goes to another if that is being written


class Asker(Protocol):
    """Whoever asked: see `tracer.attach.inside`."""

    def has_gone(self) -> bool: ...
    def answer(self, kind: str, text: str) -> bool: ...


def begin(request: Mapping[str, Any], asker: Asker) -> None:
    """Begin the recording that the request describes. Raises RecordingError; then nothing has changed.

    If whoever asked has gone, nothing is recorded any more. Else answers "started" with why CUDA is not
    recorded, and "ended" as `end` does whenever the recording ends.
    """
    global _current, _asked
    with locks.recording:  # several may be asked at once, each on a thread of its own
        outer = extension.load().recording()
        if outer is not None:
            raise RecordingError(f"it is already being recorded, to {outer}; end that recording first")
        if asker.has_gone():
            raise RecordingError(_GIVEN_UP)
        _current, _asked = _begun(request, asker), request["path"]
        if asker.has_gone() or not asker.answer("started", cuda.why_not(extension.load()) or ""):
            _current.stop()  # nobody would know of it
            raise RecordingError(_GIVEN_UP)


def _begun(request: Mapping[str, Any], asker: Asker) -> Recording:
    def ended(summary: Summary) -> None:
        global _current
        _current = None
        say.quiet(False)
        asker.answer("ended", summary.text())

    say.quiet(True)
    recording = Recording(
        request["path"],
        options=Options.of(request["options"]),
        force=request["force"],
        reserved=request["reserved"],
        shown=request["shown"],
        attached=ended,
    )
    try:
        return recording.start()
    except BaseException:
        say.quiet(False)
        raise


def end(request: Mapping[str, Any], asker: Asker) -> None:
    """End the recording, and answer "ended" with its summary. Raises RecordingError if there is none.

    Where the request has a path, only the recording to that file is ended.
    """
    with locks.recording:
        recording, wanted = _current, request.get("path")
        if recording is None:
            outer = extension.load().recording()
            if outer is None:
                raise RecordingError("it is not being recorded; begin with: tracer attach")
            raise RecordingError(
                f"tracer attach did not begin its recording, to {outer}; end that where it began"
            )
        if wanted and _asked != wanted:
            raise RecordingError(
                f"its recording to {wanted} has ended; now it is recorded to {recording.path}"
            )
        summary = recording.stop()
    if summary is not None:
        asker.answer("ended", summary.text())


def at_exit() -> None:
    """End the recording, if there is one, because the process ends."""
    if _current is not None:
        _current.stop_at_exit()
