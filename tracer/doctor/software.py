"""Python, torch and tracer's extension, and whether they match. This does not import torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tracer.base import extension
from tracer.base.build import build_info
from tracer.base.errors import RecordingError
from tracer.base.package import FOLDER, VERSION
from tracer.base.torch_build import build_of, facts_in
from tracer.doctor.finding import Finding
from tracer.trace.names.symbols import Symbols

_OLDEST_PYTHON, _NEWEST_PYTHON = (3, 10), (3, 14)
_LIBRARIES = ("libtorch_cpu.so", "libtorch_python.so", "libtorch_cuda.so")


def check_python() -> Finding:
    version, text = sys.version_info[:2], f"{sys.version.split()[0]}, {sys.executable}"
    if version < _OLDEST_PYTHON:
        return Finding("problem", "Python", text, "tracer records CPython 3.10 and newer: use another Python")
    if sys.implementation.name != "cpython":
        return Finding("problem", "Python", f"{text} ({sys.implementation.name})", "record with CPython")
    if extension.is_free_threaded():
        return Finding("problem", "Python", f"{text} (free-threaded)", "use a Python with the GIL")
    if version > _NEWEST_PYTHON:
        return Finding(
            "note",
            "Python",
            text,
            "source lines are tested up to Python 3.14; to record without them: tracer record --no-source",
        )
    return Finding("ok", "Python", text)


def check_torch(folder: Path | None) -> Finding:
    if folder is None:
        missing, _, advice = extension.no_torch().partition("; ")
        return Finding("problem", "torch", missing.removeprefix("torch is "), advice)
    facts = facts_in(folder)
    build = f"CUDA {facts['cuda']}" if facts.get("cuda") else "no CUDA"
    build = f"ROCm {facts['hip']}" if facts.get("hip") else build
    kind = "debug build" if facts.get("debug") else "release build"
    return Finding("ok", "torch", f"{facts.get('__version__')}, {kind}, {build}, {folder}")


def check_extension(folder: Path | None) -> Iterator[Finding]:
    """Whether tracer was built, and with this torch."""
    if folder is None:
        return
    try:
        built_with = build_info()
    except ImportError:
        built = f"{VERSION}, {FOLDER}"
    else:
        made_with = f"torch {built_with.TORCH_VERSION}, {built_with.COMPILER}"
        built = f"{VERSION}, built with {made_with}"
    try:
        extension.check(build_of(facts_in(folder)))
    except RecordingError as error:
        what, _, advice = str(error).rpartition("; ")
        yield Finding("problem", "tracer", what or str(error), advice)
        return
    yield Finding("ok", "tracer", built)


def check_symbols(folder: Path | None) -> Iterator[Finding]:
    """Names of kernel functions come from `.symtab`; a stripped library has only its exported names."""
    for name in _LIBRARIES if folder else ():
        path = folder / "lib" / name  # type: ignore[operator]
        if not path.exists():
            continue
        try:
            stripped = Symbols(path).stripped
        except (OSError, ValueError) as error:
            yield Finding("note", "symbols", f"{error}", "its kernel functions will have no name")
            continue
        if stripped:
            advice = "its kernel functions will have no name; PyTorch's own wheels have .symtab"
            yield Finding("note", "symbols", f"{name} is stripped", advice)
        else:
            yield Finding("ok", "symbols", f"{name} has .symtab")
