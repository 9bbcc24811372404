"""C++ names of symbols."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Iterable
from functools import cache

from tracer.base.interpreter import bare_helper
from tracer.trace.names.kernels import short_kernel_name

_REFERENCE = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
_FEW = 24
"""This many references make a name some megabytes long at most"""
_LONGEST = 1 << 15
"""Twice the longest name in libtorch"""
_UNIT = "_Z1f1AIiiE" + "".join(f"S_IS{digit}_S{digit}_E" for digit in "0123456789ABCDEF")
"""Its name has 2 MB, and what it takes is the unit of the limit: the same on a slow or emulated processor"""
_MOST_UNITS = 100
"""A second on a processor of 2024; the limit of the kernel has whole ones, and is up to one more"""

DEMANGLER = f"""
import ctypes, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
library = ctypes.CDLL("libstdc++.so.6")
demangle = library.__cxa_demangle
demangle.restype = ctypes.c_void_p
begin = time.process_time()
library.free(ctypes.c_void_p(demangle(b"{_UNIT}", None, None, None)))
end = time.process_time()
seconds = 1 + int(end + {_MOST_UNITS} * (end - begin))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
for line in sys.stdin.buffer:
    name = demangle(ctypes.c_char_p(line.rstrip()), None, None, None)
    text = ctypes.string_at(name, {_LONGEST}).partition(b"\\0")[0] if name else b""
    sys.stdout.buffer.write((text if len(text) < {_LONGEST} else b"") + b"\\n")
    sys.stdout.flush()
"""
"""Runs in a Python of its own: a symbol a line in, its name or an empty line out."""

_apart: dict[str, str] = {}


def demangle(symbol: str) -> str:
    """The C++ name of a symbol that a trace has; the symbol itself where it has none or none is found."""
    if not _is_risky(symbol):
        return demangle_trusted(symbol)
    prepare([symbol])
    return _apart[symbol]


def kernel_name(symbol: str, rule: str) -> str:
    """The short name of a mangled symbol, as `fallback: NAME` for the rule "backend fallback"."""
    name = short_kernel_name(demangle(symbol))
    return f"fallback: {name}" if "backend fallback" in rule else name


def prepare(symbols: Iterable[str]) -> None:
    """Finds the names of all symbols that need a process of their own, in one.

    A reference repeats an earlier part of the name, so that a symbol of 250 characters can have a name of
    500 MiB, and the name of one of 400 takes years. The demangler has no limit and cannot be stopped.
    """
    risky = {symbol for symbol in symbols if symbol not in _apart and _is_risky(symbol)}
    if not risky:
        return
    # Those that may take too long come last.
    ordered = sorted(risky, key=lambda symbol: (len(_REFERENCE.findall(symbol)), symbol))
    found = _demangled_apart(ordered)
    for number, symbol in enumerate(ordered):
        _apart[symbol] = (found[number] if number < len(found) else "") or symbol


@cache
def demangle_trusted(symbol: str) -> str:
    """The C++ name of a symbol that a library on this machine has."""
    function = _cxa_demangle()
    if function is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int()
    address = function(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        return symbol
    try:
        return ctypes.string_at(address).decode("utf-8", "replace")
    finally:
        _free()(address)


def _is_risky(symbol: str) -> bool:
    return symbol.startswith("_Z") and len(_REFERENCE.findall(symbol)) > _FEW


def _demangled_apart(symbols: list[str]) -> list[str]:
    """Their names, "" for those without one, as far as they are found within the limit."""
    lines = "".join(f"{' '.join(symbol.split())}\n" for symbol in symbols).encode("utf-8", "replace")
    try:
        process = subprocess.run(
            bare_helper(DEMANGLER),
            input=lines,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            check=False,
        )
    except OSError:
        return []
    return process.stdout.decode("utf-8", "replace").split("\n")[:-1]


@cache
def _cxa_demangle() -> Callable[..., int | None] | None:
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = (
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_int),
    )
    return function


@cache
def _free() -> Callable[..., None]:
    function = ctypes.CDLL(None).free
    function.argtypes = (ctypes.c_void_p,)
    function.restype = None
    return function
