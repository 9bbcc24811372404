"""Lines on stderr from the recorded process, even if the script replaced `sys.stderr`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` is not loaded yet when the interpreter starts
if TYPE_CHECKING:
    from typing import Any

_quiet = False


def quiet(wanted: bool) -> None:
    """Whether `say` keeps silent from now on: the stderr of a program that tracer attached to is its own."""
    global _quiet
    _quiet = wanted


def is_quiet() -> bool:
    return _quiet


def say(line: str) -> None:
    """One line, with `tracer:` before it, and escapes such as `\\x1b` for what a terminal would obey."""
    # Not visible(): its module `re` may not be loaded yet, and the script's folder may have a re.py.
    if not _quiet:
        shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in line)
        write(f"tracer: {shown}\n")


def say_not_ended(error: BaseException, process: str = "") -> None:
    """Why a recording could not be ended properly, and what the trace is then."""
    kind = type(error)
    why = f"{error}"
    if kind.__name__ != "RecordingError" and OSError not in kind.__mro__:
        why = (
            f"{kind.__name__}: {error}; the trace has all until then and says that it was not stopped. "
            "A script that replaces builtins such as __import__ may cause this"
        )
    say(f"tracer could not end the recording{process} properly: {why}")


def write(text: str) -> None:
    """The text as it is; nothing if stderr was closed."""
    # Past the buffer: what cannot be written would stay there, and Python would end with status 120 for it.
    try:
        stream = sys.__stderr__
        number = stream.fileno()  # type: ignore[union-attr]
        if number == 2 and not os.get_inheritable(number):
            return  # the script closed stderr, and opened a file of its own, which got the number
        _flush(stream)
        data = text.encode(stream.encoding, "backslashreplace")  # type: ignore[union-attr]
        while data:
            data = data[os.write(number, data) :]
    except (OSError, ValueError, AttributeError):
        pass  # stderr was closed: nobody would read it


def _flush(stream: Any) -> None:
    try:
        stream.flush()  # what the script wrote comes first
    except OSError:
        pass


def is_terminal() -> bool:
    """Whether stderr is a terminal."""
    return sys.__stderr__ is not None and not sys.__stderr__.closed and sys.__stderr__.isatty()
