"""What runs inside the process that tracer attaches to: that process gets the text of this file.

It is executed between two instructions of the main thread, in a namespace of its own. So it leaves no name,
prints nothing, raises nothing, and hands the work to a thread: the main thread continues at once, and what it
had begun (an import, a compilation, a context manager) is not in the way.

`folder` is the ticket (`tracer.attach.ticket`), `process` the number of the process that it is for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def take(folder: str, process: int) -> None:
    """Do what the ticket asks for, unless it was withdrawn."""
    import os

    if os.getpid() != process:
        return  # a child of it, forked before it came to this
    try:
        os.rename(os.path.join(folder, "request.json"), os.path.join(folder, "taken.json"))
    except OSError:
        return  # withdrawn: whoever asked has given up
    import sys

    if is_ending():
        answer(folder, "ends", {})  # a thread, or what it registers with atexit, might never run
        clear(folder)
        return
    import _thread
    import atexit

    working = _thread.allocate_lock()
    working.acquire()

    forks_warn_again = quiet_forks()

    def work() -> None:
        try:
            act(folder)
        finally:
            forks_warn_again()
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

    atexit.register(at_exit)
    try:
        _thread.start_new_thread(work, ())
    except RuntimeError as error:  # no thread can be started any more
        forks_warn_again()
        atexit.unregister(at_exit)
        answer(folder, "failed", {"why": str(error)})


def quiet_forks() -> Callable[[], None]:
    """Let Python not warn at a fork that there are several threads, if the other one is the one that works.

    Python does that from 3.12 on. The function that this returns ends it. The list of filters is changed in
    place: after a call of those in `warnings`, the program would print again what it had printed once.
    """
    import os
    import sys
    import warnings

    if sys.version_info < (3, 12):
        return lambda: None

    class OneThreadMore:
        """In the place of the pattern of a message."""

        def match(self, text: str) -> bool:
            try:
                return " is multi-threaded, use of " in text and len(os.listdir("/proc/self/task")) == 2
            except OSError:
                return False

    ours = ("ignore", OneThreadMore(), DeprecationWarning, None, 0)
    warnings.filters.insert(0, ours)

    def end() -> None:
        for one in list(warnings.filters):
            if one is ours:
                warnings.filters.remove(one)

    return end


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
    from importlib import util

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
    spec = util.spec_from_file_location(
        "tracer", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    module = util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules["tracer"] = module
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except BaseException:
        del sys.modules["tracer"]
        raise


def answer(folder: str, kind: str, facts: dict) -> None:
    """Leave an answer, whole or not at all. Nobody may be waiting any more."""
    import json
    import os

    path = os.path.join(folder, kind + ".json")
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(facts, file)
        os.rename(path + ".new", path)
    except OSError:
        pass
