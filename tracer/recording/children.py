"""The other processes of a recording: forked ones, and newly started ones that join it."""

from __future__ import annotations

import _thread
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

from tracer.base import extension
from tracer.base.errors import FileLostError, RecordingError
from tracer.base.interrupts import is_of_the_program
from tracer.base.say import say, say_not_ended
from tracer.base.this_torch import this_torch
from tracer.recording import cuda, invitation, overrides, process_groups, setups, steps
from tracer.recording.compiled import following as compiled
from tracer.recording.documents import compressed, write_document
from tracer.recording.options import Options
from tracer.recording.source_texts import source_texts
from tracer.recording.summary import Summary, summary_of

_groups: process_groups.ProcessGroups | None = None  # of this process's recording
_names: dict[str, object] = {}  # of torch's numbers, as this process wrote them into its recording


class Stoppable(Protocol):
    def stop(self) -> object: ...


class JoinedRecording:
    """The part of a newly started child (spawn, torchrun, subprocess) in its parent's recording.

    Or of the program that the recording process has become (exec): that one ends the recording.
    """

    def __init__(self, native: ModuleType, shown: str | None, ops: Sequence[str]) -> None:
        self._native = native
        self._began = time.time()
        self._running = True
        self._pid = os.getpid()
        self._shown = shown  # for the summary; None: another process prints it
        self._ops = ops

    @classmethod
    def join(cls, request: dict) -> JoinedRecording | None:
        """Join; None if the recording has ended or has not begun."""
        path = request["path"]
        session = request["session"]
        is_one = isinstance(session, int) and 0 <= session < 1 << 64
        if not is_one or not invitation.lives(request["process"], path, request.get("program")):
            invitation.withdraw()
            return None
        try:
            if os.stat(path).st_size == 0:
                return None
        except OSError:
            return None
        native = extension.load()
        closes = request["process"] == invitation.this_process()
        if not native.join(path, session, closes):
            invitation.withdraw()
            return None
        options = Options.of({**request, "cuda": "off" if request.get("cuda") == "off" else "auto"})
        native.arm(options.ops)
        write_document(native, "libraries", native.libraries())
        write_names(native)
        cuda.begin(native, options, request.get("cupti_unusable", ""))
        follow_python(native, options)
        joined = cls(native, request.get("shown") if closes else None, options.ops)
        _begin_overrides(options)
        close_with_multiprocessing(joined)
        native.keep_dumps(options.max_dumps)
        native.start()
        if options.is_ring:
            native.dump_on_signal()
        steps.begin(native, options)
        return joined

    def stop(self, *, at_exit: bool = True) -> Summary | None:
        """Close this process's part; the summary, if this ends a recording with one. Safe to call twice."""
        if not self._running:
            return None
        self._running = False
        invitation.withdraw()
        closed, certificate, were_on = close_part(self._native, self._began, at_exit)
        if self._shown is None or self._pid != os.getpid() or closed["damaged"] or closed["gone"]:
            return None
        return summary_of(self._shown, closed, certificate, were_on, ops=self._ops)


def close_part(native: ModuleType, began: float, at_exit: bool) -> tuple[dict, dict, list[dict]]:
    """Close a child's part of the recording. Its table entries stay hooked: the process mostly ends.

    Returns what the file holds, the certificate of this process, and its overrides.
    """
    native.end_cuda()
    native.stop()
    were_on = overrides.end()
    certificate = _write_certificate(native, began)
    return native.close(at_exit), certificate, were_on


def _begin_overrides(options: Options) -> None:
    try:
        overrides.begin(options)
    except RecordingError as error:
        say(f"overrides are not enabled in process {os.getpid()}: {error}")


def close_with_multiprocessing(recording: Stoppable) -> None:
    """Stop `recording` also at the end of multiprocessing's children, which forget or skip atexit functions.

    multiprocessing refers to `recording` weakly: the caller keeps it.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return
    util.register_after_fork(recording, lambda recording: stop_last(recording.stop))
    if util.process.parent_process() is not None:  # in a child that has begun its work already
        stop_last(recording.stop)


def stop_last(stop: Callable[[], object]) -> Any:
    """Call `stop` at the end of this process, when multiprocessing has joined its children: after atexit.

    Returns multiprocessing's Finalize object; None if multiprocessing is not in use.
    """
    util = sys.modules.get("multiprocessing.util")
    of = f" of process {os.getpid()}"
    return None if util is None else util.Finalize(None, _finalize, (util, stop, of), exitpriority=-(1 << 30))


def _finalize(util: Any, stop: Callable[[], object], process: str) -> None:
    """multiprocessing has called all other finalizers. In a child of its own, threads may still run ops.

    No frame is looked at: an audit hook of the program may refuse that.
    """
    if util.process.parent_process() is None:
        stop_or_say(stop, process)
    elif not _is_forked(util.process.current_process()):
        pass  # Python ends as usual: what atexit has stops it
    elif sys.version_info < (3, 13):
        _stop_after_the_threads(util, stop, process)
    else:  # finalizers come behind the threads and what atexit has
        stop_or_say(stop, process)


def _is_forked(process: Any) -> bool:
    """Whether a process of multiprocessing is no interpreter of its own: it ends by os._exit."""
    method = getattr(process, "_start_method", None)
    package = sys.modules.get("multiprocessing")
    if method is None and package is not None:  # it is of the default context
        method = package.get_start_method()
    return method in ("fork", "forkserver")


def _stop_after_the_threads(util: Any, stop: Callable[[], object], process: str) -> None:
    """Call `stop` when multiprocessing has waited for the threads, and flushes the streams as its last act.

    If it never comes to that, the trace says that the process ended without a stop.
    """
    flush_streams, this = util._flush_std_streams, (os.getpid(), _thread.get_ident())

    def flush() -> None:
        try:
            flush_streams()
        finally:
            if this == (os.getpid(), _thread.get_ident()):  # else a thread starts a process
                stop_or_say(stop, process)

    util._flush_std_streams = flush


def stop_or_say(stop: Callable[[], object], process: str = "") -> None:
    """Call `stop`, and say what went wrong: nobody else would, or with a traceback."""
    try:
        stop()
    except FileLostError:
        pass  # the user was told already
    except Exception as error:
        if is_of_the_program(error):
            raise
        say_not_ended(error, process)


def follow_python(native: ModuleType, options: Options) -> None:
    """Set what is recorded beside hops; begin to follow modules, allocators, compiled code and children."""
    import _posixsubprocess

    native.follow_starts([os.path.basename(getattr(_posixsubprocess, "__file__", ""))])
    native.set_stack_lines(options.stack, options.torch_frames)
    native.follow_modules(this_torch().nn.Module if options.modules else None)
    native.follow_allocations(options.memory)
    global _groups
    _groups = process_groups.ProcessGroups(functools.partial(write_document, native, "rank"))
    loaders = setups.Loaders(functools.partial(write_document, native, "loaders"))
    compiled.begin(
        native,
        functools.partial(write_document, native),
        compressed({"called": True}),
        [(*process_groups.PLACE, _groups.wrap), (*setups.LOADERS, loaders.wrap)],
    )


def write_names(native: ModuleType) -> None:
    """Put the names of torch's keys, dtypes and devices into the trace."""
    global _names
    _names = native.enums()
    write_document(native, "enums", _names)


def write_changed_names(native: ModuleType) -> None:
    """The same at the end, if the program has renamed a device (rename_privateuse1_backend)."""
    if native.enums() != _names:
        write_names(native)


def write_process_groups() -> None:
    """This process's place in a job and its groups, all of them; a forked child has not written any."""
    if _groups is not None:
        _groups.end()


def write_source_texts(native: ModuleType, began: float) -> None:
    """Put the texts of the lines that this process named into the trace. OSError: the disk is full."""
    if texts := source_texts([*native.seen_lines(), *compiled.lines()], began):
        write_document(native, "source_lines", texts)


def _write_certificate(native: ModuleType, began: float) -> dict:
    certificate: dict = {}
    try:
        of_compiled = compiled.end()
        write_process_groups()
        write_source_texts(native, began)
        write_not_joined(native)
        write_changed_names(native)
        certificate = {**cuda.certificate(native), "steps": steps.end(), "compiled": of_compiled}
        add_own_cost(native, certificate)
        certificate["outlived"] = invitation.has_ended(str(native.recording()))
        write_document(native, "certificate", certificate)
    except OSError:
        pass  # the disk is full: the header of the file says so
    return certificate


def add_own_cost(native: ModuleType, certificate: dict) -> None:
    """What recording cost: as timed, and the least that a hop costs."""
    certificate["own_cost"] = own_cost = native.own_cost()
    if least := min(kind["ns"] for kind in own_cost["loop"].values()):  # 0: no memory to measure in
        certificate["ns_per_hop"] = least


def write_not_joined(native: ModuleType) -> None:
    """Put into the trace that Pythons were started which could not join. OSError: the disk is full."""
    if count := native.starts_not_joined():
        write_document(native, "not_joined", {"count": count})
