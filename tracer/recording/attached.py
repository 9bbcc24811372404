"""The recording that `tracer attach` begins in this process, which was started without tracer.

`begin` and `end` run on a thread of their own (`tracer.attach.inside`). They print nothing: the program's
output stays its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from tracer.base import extension, locks, say
from tracer.base.errors import RecordingError
from tracer.recording import cuda
from tracer.recording.options import Options
from tracer.recording.recording import Recording
from tracer.recording.summary import Summary

Answer = Callable[[str, dict[str, Any]], bool]
_NO_ANSWER = "it cannot write its answer, so nothing is recorded; attach with TMPDIR on a disk with space"
_GIVEN_UP = "tracer attach has ended meanwhile, so nothing is recorded"
_current: Recording | None = None


def begin(request: Mapping[str, Any], answer: Answer) -> None:
    """Begin the recording that the request describes. Raises RecordingError; then nothing has changed.

    If whoever asked has gone, nothing is recorded any more. Else answers "started" with the path, and "ended"
    as `end` does whenever the recording ends.
    """
    global _current
    with locks.recording:  # several may be asked at once, each on a thread of its own
        outer = extension.load().recording()
        if outer is not None:
            raise RecordingError(f"it is already being recorded, to {outer}; end that recording first")
        if _is_left(request):
            raise RecordingError(_GIVEN_UP)
        _current = _begun(request, answer)
        if _is_left(request):
            _current.stop()
            raise RecordingError(_GIVEN_UP)
        if not answer("started", {"path": _current.path, "no_cuda": cuda.why_not(extension.load())}):
            _current.stop()  # nobody would know of it
            raise RecordingError(_NO_ANSWER)


def _begun(request: Mapping[str, Any], answer: Answer) -> Recording:
    def ended(summary: Summary) -> None:
        global _current
        _current = None
        say.quiet(False)
        answer("ended", _facts(summary))

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


def _is_left(request: Mapping[str, Any]) -> bool:
    return os.path.exists(os.path.join(request["folder"], "left.json"))


def end(request: Mapping[str, Any], answer: Answer) -> None:
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
        if wanted and recording.path != wanted:
            raise RecordingError(
                f"its recording to {wanted} has ended; now it is recorded to {recording.path}"
            )
        summary = recording.stop()
    if summary is not None:
        answer("ended", _facts(summary))


def at_exit() -> None:
    """End the recording, if there is one, because the process ends."""
    if _current is not None:
        _current.stop_at_exit()


def _facts(summary: Summary) -> dict[str, Any]:
    return {"path": summary.path, "complete": summary.complete, "text": summary.text()}
