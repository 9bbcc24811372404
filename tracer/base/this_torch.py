"""The torch of this process, which tracer imports once."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tracer.base.errors import RecordingError

_seen: ModuleType | None = None
_LIBRARY = "/libtorch_python.so"


def this_torch() -> Any:
    """The module torch, as it was when this function was first called.

    A script may take modules out of `sys.modules`: `unittest.mock.patch.dict` does, with all that it saw
    imported. Another import of torch would crash, since its C++ part would be initialised again.
    Raises RecordingError if torch was taken out before the first call.
    """
    global _seen
    if _seen is None:
        if "torch" not in sys.modules and _is_loaded():
            raise RecordingError(
                "the script has removed torch from sys.modules, and a second import would crash; "
                "begin the recording before that"
            )
        import torch

        _seen = torch
    return _seen


def _is_loaded() -> bool:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            return any(line.rstrip().endswith(_LIBRARY) for line in file)
    except OSError:
        return False
