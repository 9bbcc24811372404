"""What runs inside the process that tracer attaches to: that process gets a copy of this file.

It is executed between two instructions of the main thread, in a namespace of its own. So it leaves no name,
prints nothing, raises nothing, and hands the work to a thread: the main thread continues at once, and what it
had begun (an import, a compilation, a context manager) is not in the way.

`folder` is the ticket (`tracer.attach.ticket`), `process` the number of the process that it is for.
"""

from __future__ import annotations


def take(folder: str, process: int) -> None:
    """Do what the ticket asks for, unless it was withdrawn: start the thread that does it.

    If that fails, that is the answer, and is raised. A handler of a signal may run here, by chance: what that
    raises is raised too (raise_later() is for it).
    """
    import os

    if os.getpid() != process:
        return  # a child of it, forked before it came to this
    to_begin = [True]  # the thread takes it out when it begins, or what could not start the thread
    try:
        try:
            os.rename(os.path.join(folder, "request.json"), os.path.join(folder, "taken.json"))
        except OSError:
            return  # withdrawn: whoever asked has given up
        start_thread(folder, process, to_begin)
    except BaseException as error:
        if has_taken(to_begin):
            interrupted = not is_own(error)
            why = "its main thread was interrupted by a signal; try again" if interrupted else str(error)
            answer(folder, "failed", {"why": why, "interrupted": interrupted})
            clear(folder)
        raise


def has_taken(once: list[bool]) -> bool:
    """Whether this is the first that takes it."""
    try:
        return once.pop()
    except IndexError:
        return False


def start_thread(folder: str, process: int, to_begin: list[bool]) -> None:
    """Start it, unless Python is ending, which is the answer then."""
    import _thread
    import atexit
    import os
    import sys

    working = _thread.allocate_lock()
    working.acquire()
    forks = OneThreadMore()

    def work() -> None:
        try:
            forks.thread = _thread.get_native_id()
            if has_taken(to_begin):
                act(folder)
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
        if is_ending():
            answer(folder, "ends", {})  # a thread, or what it registers with atexit, might never run
            clear(folder)
            return
        quiet_forks(forks)
        atexit.register(at_exit)
        _thread.start_new_thread(work, ())
    except BaseException:
        if has_taken(to_begin):
            forks.end()
            atexit.unregister(at_exit)
            to_begin.append(True)
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
    while trace is not None and trace.tb_frame.f_code.co_filename in ("<string>", "<tracer attach>"):
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


def act(folder: str) -> None:
    """On a thread of its own: begin or end the recording, and say how that went."""
    import json
    import os
    import sys

    try:
        with open(os.path.join(folder, "taken.json"), encoding="utf-8") as file:
            request = json.load(file)
        if list(sys.version_info[:2]) != request["python"]:
            here, there = (".".join(map(str, part[:2])) for part in (sys.version_info, request["python"]))
            raise RuntimeError(f"it runs Python {here}, and this tracer is built for {there}")
        package(request["package"])
        from importlib import import_module

        attached = import_module("tracer.recording.attached")
        request["folder"] = folder
        getattr(attached, request["action"])(request, lambda kind, facts: answer(folder, kind, facts))
    except BaseException as error:
        named = type(error).__name__ not in ("RecordingError", "RuntimeError")
        answer(folder, "failed", {"why": f"{type(error).__name__}: {error}" if named else str(error)})
    clear(folder)


def clear(folder: str) -> None:
    """Remove the ticket, if whoever asked has gone and left that to this process."""
    import os

    if os.path.exists(os.path.join(folder, "left.json")):
        try:
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)
        except OSError:
            pass


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


def answer(folder: str, kind: str, facts: dict) -> bool:
    """Leave an answer, whole or not at all: whether it is there. Nobody may be waiting any more."""
    import json
    import os

    path = os.path.join(folder, kind + ".json")
    for done_with in ("inside.py", "taken.json", ""):  # on a full disk each makes room
        try:
            with open(path + ".new", "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)  # the umask of the program may forbid its user to read it
                json.dump(facts, file)
            os.rename(path + ".new", path)
            return True
        except OSError:
            try:
                os.remove(os.path.join(folder, done_with))
            except OSError:
                pass
    return False
