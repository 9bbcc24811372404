"""The C++ extension, and whether it fits the torch that is installed."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

from tracer.recording.errors import RecordingError

OLDEST_TORCH = (2, 10)
LAUNCHERS = ("triton", "numba", "numba_cuda")  # packages that call the user's kernels
REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps ."


def load() -> ModuleType:
    """Import `tracer._C`, after torch. Raises RecordingError where the two do not fit."""
    import torch

    import tracer

    check(str(torch.__version__))
    try:
        from tracer import _C
    except ImportError as error:
        raise RecordingError(
            f"tracer's extension does not load with torch {torch.__version__} "
            f"({_first_line(error)}); rebuild it in tracer's folder: {REBUILD}"
        ) from None
    if _C.recording() is None:  # running threads read the list
        _C.hide_sources([*map(_folder, (torch.__file__, tracer.__file__)), *_launchers()])
    return _C


def _folder(file: str | None) -> str:
    return os.path.join(os.path.dirname(str(file)), "")


def _launchers() -> list[str]:
    """The folders of LAUNCHERS that are installed; none is imported."""
    found = []
    for name in LAUNCHERS:
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # a stand-in that the script has put into sys.modules
            continue
        if spec is not None and spec.origin:
            found.append(_folder(spec.origin))
    return found


def check(torch_version: str | None) -> None:
    """Compare a torch version (None: not installed) with the one tracer was built with.

    Raises RecordingError, naming both versions and the command that rebuilds.
    """
    if torch_version is None:
        raise RecordingError(f"torch is not installed in {sys.executable}; install it first")
    try:
        from tracer import _build_info
    except ImportError:
        raise RecordingError(
            "tracer is not installed, this is its source; install it there: "
            "pip install --no-build-isolation ."
        ) from None
    if _numbers(torch_version) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise RecordingError(f"torch {torch_version} is too old; tracer records torch {oldest} and newer")
    built_with = _build_info.TORCH_VERSION
    if built_with is None:
        raise RecordingError(
            "tracer was installed without torch and only reads traces; to record, run in its "
            f"folder: {REBUILD}"
        )
    if torch_version != built_with:
        raise RecordingError(
            f"tracer was built with torch {built_with} and this is torch {torch_version}; "
            f"rebuild it in its folder: {REBUILD}"
        )


def installed_torch() -> str | None:
    """The version of the torch that `import torch` would find, without importing it."""
    from importlib.util import find_spec

    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    for folder in spec.submodule_search_locations:
        try:
            with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith("__version__"):
                return line.partition("=")[2].strip().strip("'\"")
    return None


def _numbers(version: str) -> tuple[int, ...]:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    digits = "".join(character for character in minor if character.isdigit())
    return (int(major), int(digits)) if major.isdigit() and digits else OLDEST_TORCH


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
