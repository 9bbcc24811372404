"""A recording in this process: begin, end, and the API around it."""

from __future__ import annotations

import _thread
import atexit
import functools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from textwrap import fill
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from tracer.base import extension, interrupts, locks
from tracer.base.errors import FileLostError, RecordingError
from tracer.base.say import say
from tracer.recording import cuda as cuda_part
from tracer.recording import environment, invitation, naming, output, overrides, steps
from tracer.recording.children import (
    add_own_cost,
    close_part,
    close_with_multiprocessing,
    follow_python,
    stop_last,
    stop_or_say,
    write_changed_names,
    write_names,
    write_not_joined,
    write_process_groups,
    write_source_texts,
)
from tracer.recording.compiled import following as compiled
from tracer.recording.documents import write_document
from tracer.recording.options import Options, options_of
from tracer.recording.settings import settings
from tracer.recording.summary import Summary, summary_of, summary_of_nothing

P = ParamSpec("P")
R = TypeVar("R")

_current: Recording | None = None  # that the script began: `tracer.stop()` ends it
_said_inside = False


class Recording:
    """One recording, from `start` to `stop`, usable with `with`.

    In a process that is already being recorded (by `tracer record`, or because its parent is) it records
    nothing and says so once. Its methods still work, so the script runs as usual.

    path        where the trace goes; None: named after the script and numbered, in this folder
    options     what is recorded; None: the defaults
    force       replace an existing file, at the moment the recording begins
    reserved    the caller made `path`, empty, for this recording
    session     the random number that processes of one recording share; None: drawn
    shown       the path for messages; None: `path`
    unusable    why tracer must not call CUPTI, or ""; None: find out
    launched    `tracer record` begins and ends it; `tracer.stop()` in the script does not
    attached    `tracer attach` began it: what to call with the summary when it has ended, in whatever way.
                `tracer.stop()` in the script does not end it
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        options: Options | None = None,
        force: bool = False,
        reserved: bool = False,
        session: int | None = None,
        shown: str | None = None,
        unusable: str | None = None,
        launched: bool = False,
        attached: Callable[[Summary], object] | None = None,
    ) -> None:
        self._given = None if path is None else os.fspath(path)
        self._options = options or Options()
        self._force = force
        self._reserved = reserved
        self._session = draw_session() if session is None else session
        self._shown = shown or ""
        self._unusable = unusable
        self._launched = launched
        self._attached = attached
        self._native: Any = None  # the extension, once the recording has begun
        self._pid = 0
        self._began = 0.0  # in seconds since 1970
        self._running = False
        self._finalizer: Any = None  # of multiprocessing, which stops it at the end of the process
        self._inside: str | None = None  # the trace of the recording that this one is inside of
        self.path: str | None = None
        self.summary: Summary | None = None

    def start(self) -> Recording:
        """Begin. Raises RecordingError if a recording is running, or if the file cannot be written."""
        try:
            with locks.recording, interrupts.waiting():
                return self._start()
        except BaseException:  # a handler of the program may raise once it has begun, and nobody would end it
            if self._running and not self._launched:
                self.stop()
            raise

    def _start(self) -> Recording:
        global _current
        if _current is not None and _current._pid == os.getpid():
            raise RecordingError(f"a recording to {_current.path} is already running; stop it first")
        if self.summary is not None:
            raise RecordingError(f"the recording to {self._shown} has ended; create a new one")
        native = extension.load()
        outer = native.recording()
        if outer is not None:
            return self._start_inside(outer)
        if self._unusable is None:
            self._unusable = cuda_part.why_unusable(self._options)
        self._reserve()
        self._began = time.time()
        native.forget_lines()
        try:
            self._create(native)
            if not native.arm(self._options.ops)["operators"]:
                say(f"no operator matches {', '.join(self._options.ops)} yet")
            facts = environment.snapshot(self._options.document())
            facts |= {"attached": True} if self._attached is not None else {}
            facts |= {"launched": True} if self._launched else {}
            write_document(native, "environment", facts)
            write_document(native, "libraries", native.libraries())
            write_names(native)
            cuda_part.begin(native, self._options, self._unusable)
            follow_python(native, self._options)
            overrides.begin(self._options)
            native.take_place()
        except BaseException as error:
            self._undo(native)
            if isinstance(error, PermissionError) and self._attached is not None:
                raise RecordingError(
                    f"cannot record to {self._shown}: permission denied; "
                    "give -o a folder that the job's user may write"
                ) from error
            if isinstance(error, (OSError, RuntimeError)):
                raise RecordingError(f"cannot record to {self._shown}: {error}") from error
            raise
        os.environ[invitation.NAME] = self._invitation()
        self._native = native
        self._pid = os.getpid()
        self._running = True
        if not self._launched:
            if self._attached is None:
                _current = self
            self._finalizer = stop_last(self.stop_at_exit)
            atexit.register(self._at_exit)
        close_with_multiprocessing(self)
        native.keep_dumps(self._options.max_dumps)
        native.start(runs_ops=self._attached is None)  # else this thread is tracer's own
        if self._options.is_ring:
            native.dump_on_signal()  # unless the script has claimed SIGUSR2
        steps.begin(native, self._options, None if self._attached is None else self._stop_apart)
        return self

    def stop(self, *, at_exit: bool = False) -> Summary | None:
        """End, and return the summary; None in a forked child, which only closes its own part.

        Does nothing if the recording has ended. Raises RecordingError if it never began.
        """
        global _current
        # Less than a second, and the trace stays whole.
        with locks.recording, interrupts.waiting(then_raised=not at_exit):
            if not self._running:
                if self._native is None and self._inside is None:
                    raise RecordingError("this recording has not begun; call start() first")
                return self.summary
            native = self._native
            self._running = False
            if _current is self:
                _current = None
            if self._inside is not None:
                self.summary = summary_of_nothing(str(self.path), self._shown, self._inside)
                return self.summary
            invitation.withdraw()
            if os.getpid() != self._pid:
                close_part(native, self._began, at_exit)
                return None
            self._forget_the_exit()
            self._close(native, at_exit)
            if self._attached is not None and self.summary is not None:
                self._attached(self.summary)
        return self.summary

    def _stop_apart(self) -> None:
        """Stop on another thread: this one is inside of an optimizer, whose hooks it would change."""
        try:
            _thread.start_new_thread(stop_or_say, (self.stop,))
        except Exception as error:  # the process ends, or an audit hook refuses: it stops at the end
            if interrupts.is_of_the_program(error):
                raise

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: each call of the function is recorded, in a file of its own.

        From the second call on, its name has the number of the call: run.trace, run.0002.trace.
        """
        calls = 0

        @functools.wraps(function)
        def recorded(*arguments: P.args, **named: P.kwargs) -> R:
            nonlocal calls
            calls += 1
            path = self._given if self._given is None or calls == 1 else naming.numbered(self._given, calls)
            with Recording(path, options=self._options, force=self._force):
                return function(*arguments, **named)

        return recorded

    def __repr__(self) -> str:
        if self._inside is not None:
            state = f"not written, inside of {self._inside}"
        else:
            state = "running" if self._running else "ended" if self.summary is not None else "not begun"
        return f"<Recording {self.path or self._given or 'without a name yet'}: {state}>"

    def step(self) -> None:
        """Mark the end of a step of the program (a training step, a batch)."""
        if self._running:
            steps.called()

    def _start_inside(self, outer: str) -> Recording:
        global _current, _said_inside
        self._shown = self._given or naming.stem_of_script(_script()) + naming.SUFFIX
        self.path = naming.absolute(self._shown)
        self._inside = outer
        self._pid = os.getpid()
        self._running = True
        _current = self
        if not _said_inside:
            _said_inside = True
            say(f"{self._shown} will not be written: this process is already being recorded, to {outer}")
        return self

    def _close(self, native: ModuleType, at_exit: bool) -> None:
        native.end_cuda()
        native.stop()
        certificate = cuda_part.certificate(native)  # compares the entries, so before they are restored
        if self._options.source and not certificate["source_lines"]:
            version = sys.version.split()[0]
            say(f"no source lines recorded: tracer does not know the frames of Python {version}")
        certificate["steps"] = steps.end()
        certificate["compiled"] = compiled.end()
        if certificate["cuda"]["state"] == "recorded":
            write_document(native, "libraries", native.libraries())  # CUDA loads some when they are used
        native.restore()
        were_on = overrides.end()
        add_own_cost(native, certificate)
        try:
            write_source_texts(native, self._began)
            write_not_joined(native)
            write_changed_names(native)
            write_process_groups()
            write_document(native, "settings", settings())
            write_document(native, "certificate", certificate)
        except OSError:
            pass  # the disk is full: close() says so
        closed = native.close(at_exit)
        if closed["damaged"]:
            raise FileLostError(f"{self._shown} was cut or overwritten by another process")
        if closed["gone"]:
            raise RecordingError(f"{self._shown} {closed['gone']}")
        self.summary = summary_of(self._shown, closed, certificate, were_on, ops=self._options.ops)

    def _at_exit(self) -> None:
        joins_first = os.getpid() == self._pid and self._finalizer is not None
        if not joins_first or not self._finalizer.still_active():
            self.stop_at_exit()

    def _forget_the_exit(self) -> None:
        atexit.unregister(self._at_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
            self._finalizer = None

    def stop_at_exit(self) -> None:
        """End, because the process does."""
        stop_or_say(functools.partial(self.stop, at_exit=True))

    def __enter__(self) -> Recording:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _reserve(self) -> None:
        if self._given is None:
            self.path = naming.reserve_numbered(naming.absolute(""), output.stem(_script()))
            self._reserved = True
            self._shown = os.path.basename(self.path)
            return
        self.path = naming.absolute(self._given)
        self._shown = self._shown or self._given
        if not self._reserved:
            self._reserved = naming.reserve_trace(self._given, self._force)

    def _create(self, native: ModuleType) -> None:
        """Begin the file; if another recording writes to it, a numbered one beside it."""
        options = self._options
        more = {
            "why": options.why,
            "values": options.values in ("hash", "all"),
            "scalars": options.values in ("scalars", "all"),
        }
        request = (self._session, options.shapes, options.source, options.max_size or 0, options.is_ring)
        try:
            native.create(self.path, *request, replace=not self._reserved, **more)
        except BlockingIOError:
            taken, path = self._shown, str(self.path)
            stem = os.path.basename(path).removesuffix(naming.SUFFIX)
            self.path = naming.reserve_numbered(os.path.dirname(path), stem)
            self._shown = os.path.join(os.path.dirname(taken), os.path.basename(self.path))
            self._reserved = True
            native.create(self.path, *request, **more)
            say(f"another recording is writing {taken}; this one goes to {self._shown}")

    def _undo(self, native: ModuleType) -> None:
        if native.recording() is not None:
            compiled.end()
            native.end_cuda()
            native.restore()
            native.close()
        if self._reserved:
            try:
                os.unlink(str(self.path))
            except OSError:
                pass

    def _invitation(self) -> str:
        return json.dumps(
            {
                "path": self.path,
                "shown": self._shown if self._launched else None,
                "session": self._session,
                "process": invitation.this_process(),
                "cupti_unusable": self._unusable,
                "quiet": self._attached is not None,
                "program": None if self._attached is None else invitation.program(os.getpid()),
                **self._options.document(),
            }
        )


def _script() -> str:
    return sys.argv[0] if getattr(sys, "argv", None) else ""


def record(
    path: str | os.PathLike[str] | None = None,
    *,
    shapes: bool = True,
    source: bool = True,
    stack: int = 1,
    torch_frames: bool = False,
    modules: bool = True,
    memory: bool = False,
    why: bool = False,
    values: str = "none",
    cuda: str = "auto",
    driver: str = "launches",
    queries: str = "all",
    ops: Iterable[str] = (),
    steps: str | None = None,
    max_size: int | str | None = None,
    then_stop: bool = False,
    max_dumps: int = 5,
    force: bool = False,
) -> Recording:
    """Record a block of code: `with` begins the recording on entry and ends it on exit.

    Example::

        with tracer.record("run.trace") as recording:
            model(batch)
        print(recording.summary.text())

    `force` replaces an existing file. Raises RecordingError. The options:
    """
    given = locals()
    return Recording(path, options=Options.of(given), force=force)


record.__doc__ = f"{record.__doc__ or ''}\n" + "\n".join(
    fill(f"{option.name:<13} {option.text}", 100, initial_indent="    ", subsequent_indent=" " * 18)
    for option in options_of("python")
)


def start(path: str | os.PathLike[str] | None = None, **options: Any) -> Recording:
    """Begin a recording; `stop()` or the end of the process ends it. The options are those of `record`."""
    return record(path, **options).start()


def stop() -> Summary | None:
    """End the recording of this process. Raises RecordingError if none is running."""
    if _current is None:
        raise RecordingError("no recording is running; begin one with tracer.start()")
    return _current.stop()


def step() -> None:
    """Mark the end of a step of the program (a training step, a batch); does nothing without a recording.

    If the program never calls it, the steps of the optimizer are the steps.
    """
    steps.called()


def draw_session() -> int:
    """A random number that no other recording has."""
    return random.SystemRandom().getrandbits(64)
