"""Symbols of compiled objects, and trampolines to functions that a library has but does not export.

Kernels of PyTorch call functions that are hidden in libtorch_cpu. Their addresses are in its
`.symtab`, relative to every exported symbol, so the dynamic linker can be asked for them: the address of
an exported symbol plus a constant. x86-64 only.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tracer.base.elf import UNDEFINED_SECTION, Elf, named
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.target import Target

_GLOBAL = 1  # STB_GLOBAL
_FUNCTION = 2  # STT_FUNC


def strong_definitions(objects: Iterable[Path]) -> frozenset[str]:
    """The names that object files define for others, without inline functions and templates."""
    names: set[str] = set()
    for path in objects:
        table = _Table(path, ".symtab")
        names |= table.names((table.binding == _GLOBAL) & (table.symbols["section"] != UNDEFINED_SECTION))
    return frozenset(names)


def exported(library: Path) -> frozenset[str]:
    """The names that a shared library defines for others."""
    table = _Table(library, ".dynsym")
    return frozenset(table.names(table.symbols["section"] != UNDEFINED_SECTION))


def assembly(target: Target, missing: Iterable[str], interposed: frozenset[str]) -> str:
    """Assembler source that binds the names of `missing` to the functions that are hidden in libtorch_cpu.

    `interposed` are exported names that the overlay itself defines. Raises DebuggerError where libtorch_cpu
    is stripped or lacks a name, where a name is data or that of several functions, and on other machines.
    """
    library = target.libtorch_cpu
    names = sorted(missing)
    try:
        table = _Table(library, ".symtab")
    except ValueError:
        raise DebuggerError(
            f"{library} is stripped, and the overlay needs {names[0]}, which it does not export; "
            "install a wheel with symbols"
        ) from None
    hidden = {name: _function_address(library, name, table.rows_named(name)) for name in names}
    if target.machine != "x86_64":
        raise DebuggerError(
            f"the overlay needs {names[0]}, which {library.name} does not export, and hidden functions "
            f"are bound on x86-64 only, not on {target.machine}; debug at the level of symbols there"
        )
    anchor, anchor_address = _anchor(library, interposed)
    lines = [".text"]
    for number, name in enumerate(hidden):
        lines += [f".globl {name}", f".hidden {name}", f".type {name}, @function"]
        lines += [f"{name}: jmp *.Laddress{number}(%rip)", f".size {name}, . - {name}"]
    lines += ['.section .data.rel.ro, "aw", @progbits', ".balign 8"]
    for number, address in enumerate(hidden.values()):
        lines.append(f".Laddress{number}: .quad {anchor} + ({address - anchor_address})")
    lines += ['.section .note.GNU-stack, "", @progbits', ""]
    return "\n".join(lines)


def _function_address(library: Path, name: str, rows: np.ndarray) -> int:
    if not len(rows):
        raise DebuggerError(
            f"the overlay needs {name}, which is not in {library.name}; is the checkout of its version?"
        )
    if set((rows["info"] & 15).tolist()) != {_FUNCTION}:
        raise DebuggerError(
            f"the overlay needs the variable {name}, which {library.name} does not export; "
            "leave out the operator or --source"
        )
    addresses = set(rows["value"].tolist())
    if len(addresses) > 1:
        raise DebuggerError(
            f"{library.name} has {len(addresses)} hidden functions {name}, and the overlay needs one; "
            "leave out the operator or --source"
        )
    return addresses.pop()


def _anchor(library: Path, interposed: frozenset[str]) -> tuple[str, int]:
    """An exported function of the library that the overlay does not define: name, and address in the file."""
    table = _Table(library, ".dynsym")
    symbols = table.symbols
    usable = (table.binding == _GLOBAL) & (symbols["info"] & 15 == _FUNCTION)
    usable &= symbols["section"] != UNDEFINED_SECTION
    name = min(table.names(usable) - interposed)
    return name, int(table.rows_named(name)["value"][0])


class _Table:
    """One symbol table of an ELF file. Raises ValueError if it is missing."""

    def __init__(self, path: Path, section: str) -> None:
        elf = Elf(path)
        table = elf.section(section)
        if table is None:
            raise ValueError(f"{path} has no readable {section}")
        self.symbols = elf.symbols(table)
        self._names = elf.names(table)

    @property
    def binding(self) -> np.ndarray:
        return self.symbols["info"] >> 4

    def names(self, chosen: np.ndarray) -> set[str]:
        """The names of the symbols where `chosen` is true."""
        offsets = np.unique(self.symbols["name"][chosen]).tolist()
        return {
            self._names[offset : self._names.find(b"\0", offset)].decode() for offset in offsets if offset
        }

    def rows_named(self, name: str) -> np.ndarray:
        """The definitions of `name`."""
        symbols = self.symbols
        return symbols[named(self._names, symbols["name"], name) & (symbols["section"] != UNDEFINED_SECTION)]
