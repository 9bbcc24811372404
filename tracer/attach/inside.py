"""What runs inside the process that tracer attaches to. The script that it gets has a copy of this file.

It is executed between two instructions of the main thread, in a namespace of its own. So it leaves no name,
prints nothing, raises nothing, and hands the work to a thread: the main thread continues at once, and what it
had begun (an import, a compilation, a context manager) is not in the way.

`folder` is where the socket of whoever asks lies, `process` the number of the process that is asked.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the program may not have loaded `typing`
if TYPE_CHECKING:
    from typing import Any

once: list[bool] = globals().get("once", [True])
"""Whoever does what is asked for takes it out. The script may execute this file a second time"""


def run(folder: str, process: int, request: dict) -> None:
    """Start the thread that does what is asked for; why it cannot be started is the answer.

    A handler of a signal may run here, and raise, at any moment. Then it is tried again, and what was raised
    is for the program. The script says `again` if it has caught that already.
    """
    import os
    import sys

    raised = sys.exc_info()[1] if "again" in globals() else None
    for _ in range(20):
        try:
            if once and os.getpid() == process:  # not a child of it, forked before it came to this
                start_thread(folder, process, request)
            break
        except BaseException as error:
            raised = error
            if is_own(error) and has_taken(once):
                Asker(folder).answer("failed", str(error))
    if raised is not None and not is_own(raised):
        raise_later(raised)


def has_taken(once: list[bool]) -> bool:
    """Whether this is the first that takes it."""
    try:
        return once.pop()
    except IndexError:
        return False


def start_thread(folder: str, process: int, request: dict) -> None:
    """Start it, unless Python is ending, which is the answer then."""
    import _thread
    import atexit
    import os
    import sys

    working = _thread.allocate_lock()
    working.acquire()
    forks = OneThreadMore()
    to_begin = [True]  # the thread takes it out when it begins, or what could not start the thread

    def work() -> None:
        try:
            forks.thread = _thread.get_native_id()
            if has_taken(to_begin) and has_taken(once):
                act(folder, request)
        finally:
            forks.end()
            atexit.unregister(at_exit)
            working.release()

    def at_exit() -> None:
        """The end of the process waits until the table is whole; what atexit gets now it never calls."""
        if os.getpid() != process:
            return  # a child has no such thread
        working.acquire()
        attached = sys.modules.get("tracer.recording.attached")
        if attached is not None:
            attached.at_exit()

    try:
        if is_ending():  # a thread, or what it registers with atexit, might never run
            if has_taken(once):
                Asker(folder).answer("ends", "")
            return
        quiet_forks(forks)
        atexit.register(at_exit)
        _thread.start_new_thread(work, ())
    except BaseException:
        if has_taken(to_begin):
            forks.end()
            atexit.unregister(at_exit)
        raise


def is_own(error: BaseException) -> bool:
    """Whether what runs here raised it, and not a handler of a signal, which may run anywhere."""
    import os

    if not isinstance(error, Exception):
        return False  # as Ctrl-C and sys.exit() are
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_globals is globals():
        return True
    file = trace.tb_frame.f_code.co_filename
    of_python = file.startswith((os.path.dirname(os.__file__), "<frozen "))
    return of_python and not any(part in file for part in ("site-packages", "dist-packages"))


def raise_later(error: BaseException) -> None:
    """Have the main thread raise it as soon as this text has ended: here it would be lost."""
    import ctypes

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == "<string>":
        trace = trace.tb_next

    class Raises:
        def __bool__(self) -> bool:
            raise error.with_traceback(trace)

    # A pending call is a function of C that returns -1 where it raises, as PyObject_IsTrue does.
    raises = Raises()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(raises))
    is_true = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
    ctypes.pythonapi.Py_AddPendingCall(is_true, ctypes.c_void_p(id(raises)))


class OneThreadMore:
    """In a filter of warnings, in the place of the pattern of a message: see quiet_forks()."""

    def __init__(self) -> None:
        self.thread = 0  # its number, once it runs
        self.until: float | None = None  # when it has certainly ended; None: it works

    def match(self, text: str) -> bool:
        """Whether it is that warning, and the program has no other thread."""
        import os
        import time

        if " is multi-threaded, use of " not in text:
            return False
        if self.until is not None and time.monotonic() > self.until:
            return False
        try:
            others = [thread for thread in os.listdir("/proc/self/task") if thread != str(self.thread)]
        except OSError:
            return False
        return len(others) <= (1 if self.thread else 2)

    def end(self) -> None:
        """The thread ends now; Python counts it until the system has ended it too."""
        import time

        self.until = time.monotonic() + 1


def quiet_forks(ours: OneThreadMore) -> None:
    """Let Python not warn at a fork that there are several threads, if the other one is the one that works.

    Python does that from 3.12 on. The filter stays, without effect, until the next attach or detach: the
    thread cannot take it away, since Python counts it for a moment more. The list is changed in place: after
    a call of the functions of `warnings`, the program would print again what it had printed once.
    """
    import sys

    filters = getattr(sys.modules.get("warnings"), "filters", None)
    if sys.version_info < (3, 12) or not isinstance(filters, list):
        return
    for one in list(filters):
        if isinstance(one, tuple) and len(one) == 5 and type(one[1]).__name__ == "OneThreadMore":
            filters.remove(one)
    filters.insert(0, ("ignore", ours, DeprecationWarning, None, 0))


def is_ending() -> bool:
    """Whether Python has begun to shut down: the functions of atexit run, or have run."""
    import sys

    if sys.is_finalizing():
        return True
    try:
        main = sys.modules["threading"].main_thread()
        if hasattr(main, "_is_stopped"):  # until Python 3.12; there is_alive() may take a lock
            return bool(main._is_stopped)
        return not main.is_alive()
    except (KeyError, AttributeError):
        return False  # not Python's own threading


def act(folder: str, request: dict) -> None:
    """On a thread of its own: begin or end the recording, and say how that went."""
    import os
    import sys

    asker = Asker(folder)
    if asker.has_gone():
        try:
            os.unlink(folder + "/script.py")  # a script that is a file was left to this process
            os.rmdir(folder)
        except OSError:
            pass
        if not request["later"]:
            return  # it was withdrawn
    try:
        if list(sys.version_info[:2]) != request["python"]:
            here, there = (".".join(map(str, part[:2])) for part in (sys.version_info, request["python"]))
            raise RuntimeError(f"it runs Python {here}, and this tracer is built for {there}")
        package(request["package"])
        from importlib import import_module

        attached = import_module("tracer.recording.attached")
        getattr(attached, request["action"])(request, asker)
    except BaseException as error:
        named = type(error).__name__ not in ("RecordingError", "RuntimeError")
        asker.answer("failed", f"{type(error).__name__}: {error}" if named else str(error))


class Asker:
    """Whoever asked, at the other end of a socket."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._end = self._connected()

    def _connected(self) -> Any:
        """A connection, None if nobody listens any more, or somebody who may not ask."""
        import _socket
        import os
        import sys

        try:
            at = os.open(self._folder, os.O_PATH | os.O_CLOEXEC)
            try:
                end = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
                end.setblocking(False)
                end.connect(f"/proc/self/fd/{at}/socket")  # a path of at most 108 bytes
            finally:
                os.close(at)
            peer = end.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        except OSError:
            return None
        return end if int.from_bytes(peer[4:8], sys.byteorder) in (0, os.getuid()) else None

    def has_gone(self) -> bool:
        """Whether nobody waits for the first answer any more."""
        import _socket

        try:
            return self._end is None or self._end.recv(1, _socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def answer(self, kind: str, text: str) -> bool:
        """Whether it was sent. Later ones get connections of their own.

        In the meantime the program may close files that it does not know, and open others of their numbers.
        """
        import _socket
        import json

        end, self._end = self._end or self._connected(), None
        try:
            end.send(json.dumps([kind, text[:5000]]).encode(), _socket.MSG_NOSIGNAL)
            end.close()
        except (OSError, AttributeError):
            return False
        return True


def package(folder: str) -> None:
    """Load the package `tracer` from its folder, and leave `sys.path` as it is.

    Raises RuntimeError if another module has the name, or the user of this process may not read the folder.
    """
    import os
    import sys
    from importlib import import_module, util

    loaded = sys.modules.get("tracer")
    if loaded is not None:
        where = os.path.dirname(str(getattr(loaded, "__file__", None)))
        if os.path.realpath(where) != os.path.realpath(folder):
            raise RuntimeError(f"it has loaded another module named tracer, from {where}")
        return
    if not os.access(os.path.join(folder, "__init__.py"), os.R_OK):
        raise RuntimeError(
            f"its user may not read tracer, which is in {folder}; "
            "use a tracer that is installed where all may read it"
        )

    class Finder:
        """Of this package only. The import system lets a second thread wait until it is loaded."""

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            if name != "tracer":
                return None  # an import by another thread
            where = os.path.join(folder, "__init__.py")
            return util.spec_from_file_location(name, where, submodule_search_locations=[folder])

    finder, finders = Finder(), sys.meta_path
    finders.insert(0, finder)  # type: ignore[arg-type]
    try:
        import_module("tracer")
    finally:
        finders.remove(finder)  # type: ignore[arg-type]
