"""tracer_startup.pth calls this when the interpreter starts and TRACER_RECORD, TRACER_JOIN or TRACER is set.

TRACER_RECORD (of `tracer record`) makes this process the root of a recording. TRACER_JOIN, which
the root leaves to its children, makes them join it. Both are JSON objects:

    {"path": absolute path, "session": int, "process": tracer.recording.invitation.this_process(),
     "cupti_unusable": why tracer must not call CUPTI, or "",
     "quiet": whether tracer attached to the root, whose stderr stays its own (TRACER_JOIN only),
     "program": its program, if tracer attached to it: the next one does not join (TRACER_JOIN only),
     and the fields of tracer.recording.options.Options}

and TRACER_RECORD has also "shown" (the path as the user gave it), "force" and "reserved"
(the launcher made the empty file).

TRACER=run.trace is set by the user: every Python that imports torch, and is not part of a recording yet, then
records to that file, or to a numbered one beside it if it exists. Another value of TRACER is not ours.

A Python that ignores the environment (-I, -E) ignores all three: it gets here only with `-Xtracer`, which
`tracer record` adds if it was itself run so.

Until torch is imported only modules that the interpreter has
loaded by itself are used here: the script must find `json` and the like as without tracer.
"""

from __future__ import annotations

import atexit
import os
import sys

from tracer.base.say import is_terminal, quiet, say, say_not_ended, write
from tracer.recording import invitation
from tracer.recording.import_hook import TorchImportHook
from tracer.recording.naming import remove_if_empty

TYPE_CHECKING = False  # `typing` is not loaded yet when the interpreter starts
if TYPE_CHECKING:
    from typing import Any

    from tracer.recording.children import JoinedRecording
    from tracer.recording.recording import Recording

SWITCH = "TRACER"
# Held here too: a child that multiprocessing forks forgets what was registered to run at its end.
_process: _Root | _Child | _Switched | None = None


def install() -> None:
    """Take the request out of the environment and wait for torch."""
    global _process
    if _process is not None:  # `site` reads the .pth files of a virtual environment twice
        return
    if sys._xoptions.pop(invitation.FLAG, None) and f"-X{invitation.FLAG}" in sys.orig_argv:
        sys.orig_argv.remove(f"-X{invitation.FLAG}")
    request = os.environ.pop("TRACER_RECORD", None)
    if request is not None:
        os.environ[invitation.NAME] = request
        _process = _Root(request)
    elif invitation.NAME in os.environ:
        _process = _Child(os.environ[invitation.NAME])
    else:
        _process = _Switched(os.environ[SWITCH])
    atexit.register(_process.at_exit)  # registered first, so it runs last
    TorchImportHook(_process.torch_imported).install()


def forget_the_switch() -> None:
    """This process is a command of tracer, not a program to record; nor are those that it starts."""
    os.environ.pop(SWITCH, None)
    if isinstance(_process, _Switched):
        _process.forget()


class _Switched:
    """A process that began with TRACER=run.trace."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._folder = ""
        if not os.path.isabs(shown):
            try:
                self._folder = os.getcwd()  # before the script changes it
            except OSError:
                pass  # the folder is gone: that the trace cannot be written is said when it begins
        self._wanted = True
        self._recording: Recording | None = None

    def forget(self) -> None:
        self._wanted = False

    def torch_imported(self) -> None:
        try:
            if not self._wanted or os.environ.pop(SWITCH, None) is None:  # each child would begin one
                return
            from tracer.recording import naming, output
            from tracer.recording.recording import Recording

            wanted = output.filled(self._shown)
            path = naming.reserve_free(os.path.join(self._folder, wanted))
            shown = os.path.join(os.path.dirname(wanted), os.path.basename(path))
            self._recording = Recording(path, reserved=True, shown=shown, launched=True)
            self._recording.start()
            if shown != wanted:
                say(f"{wanted} exists; this recording goes to {shown}")
        except Exception as error:
            self._recording = None
            say(f"nothing is recorded: {error}")

    def at_exit(self) -> None:
        try:
            if self._recording is not None:
                _stop_and_say(self._recording)
        except Exception as error:
            if type(error).__name__ != "FileLostError":  # the user was told already
                say_not_ended(error)


class _Child:
    """A process that may join the recording of another one, or was forked before its root imported torch."""

    def __init__(self, request: str) -> None:
        self._request = request
        self._joined: JoinedRecording | None = None
        self._root: _Root | None = None
        if '"quiet": true' in request and _names_this_process(request):
            invitation.withdraw()  # tracer attached to the program that began this one

    def torch_imported(self) -> None:
        self._root = _Root(self._request) if self._is_root() else None
        if self._root is not None:
            self._root.torch_imported()
            return
        try:
            from tracer.recording.children import JoinedRecording

            request = _parse(self._request)
            quiet(bool(request.get("quiet")))
            self._joined = JoinedRecording.join(request)
        except Exception as error:
            say(f"process {os.getpid()} is not recorded: {error}")

    def at_exit(self) -> None:
        if self._root is None and self._joined is None and self._is_root():
            self._root = _Root(self._request)
        if self._root is not None:
            self._root.at_exit()
            return
        try:
            if self._joined is not None:
                _stop_and_say(self._joined)
        except Exception as error:
            say_not_ended(error, f" of process {os.getpid()}")

    def _is_root(self) -> bool:
        """Whether this process should begin the recording, and has become another program before that."""
        try:
            if not _names_this_process(self._request):
                return False
            request = _request_to_record(self._request)
            return not invitation.has_begun(request["path"], request["session"])
        except Exception:  # the file is gone, another's request, or an audit hook of the program
            return False


def _names_this_process(request: str) -> bool:
    return f'"process": {invitation.this_process()}' in request  # no JSON in every child for this


class _Root:
    """The process that `tracer record` became."""

    def __init__(self, request: str) -> None:
        self._request = request
        self._pid = os.getpid()
        self._recording: Recording | None = None
        self._failed = False
        self._child = _Child(request)

    def torch_imported(self) -> None:
        if os.getpid() != self._pid:  # forked before torch was imported
            self._child.torch_imported()
            return
        request: dict[str, Any] = {}
        try:
            from tracer.recording.options import Options
            from tracer.recording.recording import Recording

            request = _request_to_record(self._request)
            self._recording = Recording(
                request["path"],
                options=Options.of(request),
                force=request["force"],
                reserved=request["reserved"],
                session=request["session"],
                shown=request["shown"],
                unusable=request["cupti_unusable"],
                launched=True,
            )
            self._recording.start()
        except Exception as error:
            self._recording = None
            self._failed = True
            say(f"nothing is recorded: {error}")
            _give_up(request)
            if request.get("override"):
                sys.exit(2)  # without its overrides the script would be another program

    def at_exit(self) -> None:
        try:
            if self._recording is not None:
                _stop_and_say(self._recording)
            elif os.getpid() != self._pid:
                self._child.at_exit()
            elif not self._failed:
                self._torch_was_not_imported()
        except Exception as error:
            if type(error).__name__ != "FileLostError":  # the user was told already
                say_not_ended(error)

    def _torch_was_not_imported(self) -> None:
        try:
            request = _request_to_record(self._request)
        except ValueError:
            return
        _give_up(request)
        say(
            "nothing was recorded: the script did not import torch; "
            "if its child processes do, run it with TRACER=run.trace instead of tracer record"
        )


def _request_to_record(text: str) -> dict[str, Any]:
    """What `tracer record` asked this process to do. Raises ValueError if another program set it."""
    stale = ValueError("TRACER_RECORD was not set by `tracer record` for this process; unset it")
    try:
        request = _parse(text)
    except ValueError:
        raise stale from None
    kinds = (
        ("path", str),
        ("shown", str),
        ("session", int),
        ("reserved", bool),
        ("force", bool),
        ("cupti_unusable", str),
    )
    if not isinstance(request, dict) or request.get("process") != invitation.this_process():
        raise stale
    if not all(isinstance(request.get(name), kind) for name, kind in kinds):
        raise stale
    return request


def _stop_and_say(recording: Recording | JoinedRecording) -> None:
    from tracer.base import interrupts

    with interrupts.waiting(then_raised=False):  # Ctrl-C waits until everything is printed
        summary = recording.stop(at_exit=True)
        if summary is not None:
            write(summary.text(colour=is_terminal()))


def _give_up(request: dict[str, Any]) -> None:
    try:
        invitation.withdraw()
        if request.get("reserved"):
            remove_if_empty(request["path"])
    except Exception:  # an audit hook of the program refuses: the empty file stays
        pass


def _parse(request: str) -> dict[str, Any]:
    # The standard library first: `json` may be the name of a file beside the script.
    sys.path.insert(0, os.path.dirname(os.__file__))
    try:
        import json
    finally:
        del sys.path[0]
    return json.loads(request)
