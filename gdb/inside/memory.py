"""Reads of the debugged process's memory and registers; the only place that asks gdb for bytes."""

import os
import struct

import gdb

_INTEGER_REGISTERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")


class InferiorMemory:
    """The memory of the process that gdb debugs."""

    def __init__(self):
        self._inferior = gdb.selected_inferior()
        try:  # half the time of a read through gdb
            self._file = os.open("/proc/%d/mem" % self._inferior.pid, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None

    def read(self, address, size):
        """`size` bytes at `address`; raises OSError where they cannot be read."""
        try:
            if self._file is None:
                return self._inferior.read_memory(address, size).tobytes()
            data = os.pread(self._file, size, address)
        except (gdb.MemoryError, OverflowError) as error:
            raise OSError(str(error)) from None
        if len(data) < size:
            raise OSError("memory ends at %#x" % (address + len(data)))
        return data


class EntryRegisters:
    """Where a function finds its arguments at its first instruction (System V ABI, x86-64).

    `entered`: it has pushed something since.
    """

    def __init__(self, frame, memory, entered=False):
        self._frame = frame
        self._entered = entered
        self._memory = memory

    def integers(self):
        """The six integer argument registers."""
        return [int(self._frame.read_register(name)) & (2**64 - 1) for name in _INTEGER_REGISTERS]

    def doubles(self):
        """The low halves of xmm0 to xmm7."""
        values = []
        for number in range(8):
            words = self._frame.read_register("xmm%d" % number)["v2_int64"]
            values.append(struct.unpack("<d", struct.pack("<q", int(words[0])))[0])
        return values

    def stack(self):
        """The address of the first argument that is passed in memory."""
        if self._entered:
            return int(self._frame.older().read_register("rsp")) & (2**64 - 1)
        return (int(self._frame.read_register("rsp")) & (2**64 - 1)) + 8

    def word(self, address):
        """The word at `address`. Raises OSError."""
        return struct.unpack("<Q", self._memory.read(address, 8))[0]
