"""Arguments and locals of a frame by debug information, which alone knows their names and types.

A local is set when the code of its declaration has run. The line table tells where that is; what it says is
still to come has memory of some earlier call, which would read like a value.
"""

import re

from tensors import NoTensorError
from values import UNKNOWN, normalised

import gdb

_LONGEST_VALUE = 200  # characters


def arguments(frame, values):
    """[{name, type, value}], [] without debug information."""
    return [_described(symbol, frame, values) for symbol in _symbols(frame) if symbol.is_argument]


def argument_names(frame, count):
    """The names of the `count` arguments, [] without debug information."""
    names = [symbol.name for symbol in _symbols(frame) if symbol.is_argument]
    return names[len(names) - count :] if len(names) == count + (names[:1] == ["this"]) else []


def local_variables(frame, values):
    """As arguments; the value of a local that is not set yet is {"unset"}."""
    found = [symbol for symbol in _symbols(frame) if symbol.is_variable]
    lines = _Lines(frame) if found else None
    return [
        {"name": symbol.name, "type": _type_name(symbol.type), "value": {"unset": symbol.line}}
        if lines.to_come(symbol.line)
        else _described(symbol, frame, values)
        for symbol in found
    ]


def value_of(value, values):
    """What a gdb.Value holds; raises NoTensorError where it does not hold what its type says."""
    kind = value.type
    if kind.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        value = value.referenced_value()
        kind = value.type
    plain = kind.strip_typedefs().unqualified()
    if plain.code == gdb.TYPE_CODE_BOOL:
        return bool(value)
    if plain.code == gdb.TYPE_CODE_INT:
        return int(value)
    if plain.code == gdb.TYPE_CODE_FLT:
        return float(value)
    if value.address is not None and plain.name:
        known = values.read(normalised(plain.name), int(value.address))
        if known is not UNKNOWN:
            return known
    text = value.format_string(max_elements=16)
    return {"text": text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."}


class _Lines:
    """The line table of the function of a frame."""

    def __init__(self, frame):
        self._pc = frame.pc()
        self._here = frame.find_sal().line
        table, block = frame.find_sal().symtab, frame.block()
        while block.function is None and block.superblock is not None:
            block = block.superblock
        entries = table.linetable() if table else []
        rows = sorted((entry.pc, entry.line) for entry in entries if block.start <= entry.pc < block.end)
        self._first = {}  # line: (where its first code begins, where that ends)
        for (pc, line), (after, _) in zip(rows, [*rows[1:], (block.end, 0)]):
            begin, end = self._first.get(line, (pc, pc))
            if end == pc:
                self._first[line] = begin, after

    def to_come(self, line):
        """Whether the declaration of a local at `line` has not run."""
        begin, end = self._first.get(line, (None, None))
        if begin is None:  # a declaration without code
            return line >= self._here
        return self._pc < end and (self._pc < begin or line >= self._here)


def _symbols(frame):
    try:
        block = frame.block()
    except RuntimeError:  # no debug information here
        return []
    found = {}
    while block is not None:
        for symbol in block:
            if (
                (symbol.is_argument or symbol.is_variable)
                and symbol.name
                and not symbol.name.startswith("__")
                and symbol.addr_class != gdb.SYMBOL_LOC_STATIC
            ):
                found.setdefault(symbol.name, symbol)
        if block.function is not None:
            break
        block = block.superblock
    return list(found.values())


def _described(symbol, frame, values):
    try:
        shown = value_of(symbol.value(frame), values)
    except (gdb.error, NoTensorError) as error:
        shown = dict(UNKNOWN, why=" ".join(str(error).split()))
    return {"name": symbol.name, "type": _type_name(symbol.type), "value": shown}


def _type_name(kind):
    """As demangled symbols spell it: `at::Tensor const&`."""
    name = re.sub(r"\b(class|struct|union|enum) ", "", str(kind))
    name = re.sub(r"^(const) ([^<>(*&]+?|[^(*&]+>)( ?[*&]|$)", r"\2 \1\3", name)
    return re.sub(r" (?=[*&])", "", name)
