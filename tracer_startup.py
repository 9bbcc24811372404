"""tracer_startup.pth and the command `tracer` import this first.

PYTHONPATH may lead to another module that is called `tracer`: this one does not import it, and can say so.
"""

from __future__ import annotations

import os
import sys

# Else pytest, whose plugin is in this distribution, warns that it was loaded before. -OO drops docstrings.
__doc__ = f"{__doc__ or ''}\nPYTEST_DONT_REWRITE\n"


def hidden_by() -> str | None:
    """The file that `import tracer` finds instead of the package; None: nothing hides it."""
    if hasattr(sys.modules.get("tracer"), "__path__"):
        return None
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find("tracer", None) if find else None
        if spec is not None:
            folders = list(spec.submodule_search_locations or ())
            ours = any(os.path.exists(os.path.join(folder, "recording", "startup.py")) for folder in folders)
            return None if ours else spec.origin or folders[0]
    return None


def install() -> None:
    """Called when a Python starts that may be recorded."""
    if hidden := hidden_by():
        for name in ("TRACER_RECORD", "TRACER_JOIN", "TRACER"):
            os.environ.pop(name, None)
        _say(f"process {os.getpid()} is not recorded: {_advice(hidden)}")
        return
    from tracer.recording.startup import install

    install()


def main() -> None:
    """The command `tracer`."""
    if hidden := hidden_by():
        _say(_advice(hidden))
        sys.exit(2)
    from tracer.cli.app import main

    main()


def _advice(hidden: str) -> str:
    return f"{hidden} hides the package tracer; rename it, or remove its folder from PYTHONPATH"


def _say(line: str) -> None:
    try:
        os.write(2, f"tracer: {line}\n".encode(errors="backslashreplace"))
    except OSError:
        pass  # stderr was closed: there is nobody to tell
