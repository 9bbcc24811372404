"""Runs inside gdb, for its command `python`: keeps the registers of a thread and puts them back as they were.

gdb saves and restores them around a call too. But before version 14 it takes the registers of AVX-512 to be
where Intel's processors keep them. On a processor of AMD it then clears what lies there: a thread that was
stopped in the middle of memcpy() copied zeros.

Linux gives and takes all of them as they are, wherever they lie (NT_X86_XSTATE in ptrace(2)). Where
gdb has no Python, $tracer_keeps is void.
"""

from __future__ import annotations

import ctypes
import os

import gdb

_GET, _SET, _ALL = 0x4204, 0x4205, 0x202  # PTRACE_GETREGSET, PTRACE_SETREGSET, NT_X86_XSTATE
_ROOM = 1 << 16  # bytes; with the tiles of AMX it is 11 KiB


class Vector(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.POINTER(Vector))
_ptrace.restype = ctypes.c_long
_memory = ctypes.create_string_buffer(_ROOM)
_kept = Vector(ctypes.addressof(_memory), 0)


def keep_registers(thread: int) -> None:
    """Keeps the registers of the stopped thread with this number. Raises OSError."""
    _kept.size = _ROOM
    if _ptrace(_GET, thread, _ALL, ctypes.byref(_kept)) != 0:
        _kept.size = 0
        raise OSError("they cannot be kept: " + os.strerror(ctypes.get_errno()))


def put_registers_back(thread: int) -> None:
    """If they were kept. A thread that has ended needs none."""
    if _kept.size:
        _ptrace(_SET, thread, _ALL, ctypes.byref(_kept))


gdb.execute("set $tracer_keeps = 1")
