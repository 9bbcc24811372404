"""Command lines of Python: that of this interpreter, and those of others that tracer starts.

Only here a Python is started: `python -c` imports from the current folder first, which may be a stranger's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

TYPE_CHECKING = False  # `typing` is not loaded yet when the interpreter starts
if TYPE_CHECKING:
    import subprocess

_SAFE = ["-P"] if sys.version_info >= (3, 11) else []
# Python 3.13 imports linecache before the first word of the text, so `-P` where there is one. What the helper
# starts is not started so: `tracer record` passes on the options in orig_argv.
_FIRST = "sys.orig_argv.remove('-P')" if _SAFE else "sys.path[:] = filter(None, sys.path)"


def helper(text: str, *arguments: str, flags: Sequence[str] = ()) -> list[str]:
    """Runs `text` in this Python, with its packages and not with modules of the current folder."""
    return [sys.executable, *_SAFE, *flags, "-c", f"import sys; {_FIRST}; {text}", *arguments]


def own_command(*words: str) -> list[str]:
    """Runs this tracer, not a folder of that name where the command runs: `record`, `-o`, ..."""
    return helper("from tracer.cli.app import main; main()", *words)


def bare_helper(text: str, *arguments: str) -> list[str]:
    """As `helper`, with the standard library only."""
    return [sys.executable, "-I", "-S", "-c", text, *arguments]


def script(*words: str, flags: Sequence[str] = ()) -> list[str]:
    """Runs a program of the user's in this Python, as the user would."""
    return [sys.executable, *flags, *words]


def given_environment() -> dict[str, str]:
    """The variables with which a program would begin in place of this one.

    Python itself sets LC_CTYPE where the locale is C (PEP 538). The next one would not be in UTF-8 mode then.
    """
    variables = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as file:
            was_given = any(word.startswith(b"LC_CTYPE=") for word in file.read().split(b"\0"))
    except OSError:
        return variables
    if not was_given:
        variables.pop("LC_CTYPE", None)
    return variables


def ask(python: str, text: str) -> subprocess.CompletedProcess[str]:
    """Runs `text` in any Python, also one too old for `-P`: in the root, where no stranger has modules."""
    import subprocess

    command = [os.path.abspath(python), "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=os.sep)


def options(command: Sequence[str]) -> list[str]:
    """Those of `command`, a sys.orig_argv, before its script, -m or -c: as they were given.

    What a variable such as PYTHONDONTWRITEBYTECODE sets is not among them: a child gets the variable too.
    """
    found: list[str] = []
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):
            found += [word, *([next(words, "")] if word == "--check-hash-based-pycs" else [])]
            continue
        for place, letter in enumerate(word[1:], 1):
            if letter in "cm":  # -Bm tracer
                return [*found, word[:place]] if place > 1 else found
            if letter in "WX":
                found += [word] if word[place + 1 :] else [word, next(words, "")]
                break
        else:
            found.append(word)
    return found
