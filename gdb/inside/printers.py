"""gdb's own commands (print, bt, info args, info locals, finish) show PyTorch's types as values.

tracer registers these printers in its sessions. In any other gdb: source .../gdb/inside/printers.py; there
the layout of tensors comes from the debug information, so it needs a debug build.
"""

import os
import sys

import gdb

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import wording
from tensors import NoTensorError, Tensors
from values import Values, normalised

# Types of the standard library are printed by the printers that come with it, and what is in them by these
_PREFIXES = (
    "c10::ArrayRef<", "c10::OptionalArrayRef<", "c10::IListRef<at::Tensor", "c10::MaybeOwned<at::Tensor",
    "c10::List<",
)  # fmt: skip
_NAMES = (
    "at::Tensor", "at::TensorBase", "at::OptionalTensorRef", "c10::Scalar", "c10::SymInt",
    "c10::DispatchKeySet", "c10::Device", "C10_STRING",
)  # fmt: skip


class Printer:
    """One value. `values`: a function that makes a Values."""

    def __init__(self, kind, address, values):
        self._kind = kind
        self._address = address
        self._values = values

    def to_string(self):
        try:
            value = self._values().read(self._kind, self._address)
        except (NoTensorError, gdb.error) as error:
            return "<not read: %s>" % " ".join(str(error).split())
        return wording.value(value)


class Lookup:
    """What gdb asks for the printer of a value."""

    name = "PyTorch"
    enabled = True

    def __init__(self, values):
        self._values = values

    def __call__(self, value):
        plain = value.type.strip_typedefs().unqualified()
        if not plain.name or value.address is None:
            return None
        kind = normalised(plain.name)
        known = kind in _NAMES or kind.startswith(_PREFIXES)
        if not known and not (kind.startswith("OPTIONAL<") and plain.name.startswith("c10::")):
            return None
        return Printer(kind, int(value.address), self._values)


def register(values):
    """Makes gdb show values with these printers."""
    others = [each for each in gdb.pretty_printers if getattr(each, "name", "") != Lookup.name]
    gdb.pretty_printers[:] = [Lookup(values), *others]


class _Memory:
    """The memory of whatever process gdb looks at when it is read."""

    def read(self, address, size):
        try:
            return gdb.selected_inferior().read_memory(address, size).tobytes()
        except gdb.MemoryError as error:
            raise OSError(str(error)) from None


def _by_debug_information():
    import dwarf_layout

    measured = dwarf_layout.measure()
    memory = _Memory()
    return Values(Tensors(measured, memory), memory, measured["flag_first"])


if __name__ == "__main__":
    register(_by_debug_information)
