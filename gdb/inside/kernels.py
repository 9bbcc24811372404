"""The kernel functions of an operator, as the dispatcher's table has them at this moment."""

import re
import struct
from fnmatch import fnmatchcase

from symbols import symbol_at

import gdb

_STRIDES = range(24, 88, 8)  # bytes of a c10::KernelFunction; 40 in torch 2.13
_OFFSETS = range(64, 1024, 8)  # where in an entry the table begins
_SPAN = 12288  # bytes that hold an entry
_SCHEMA_SPAN = 512  # bytes of an entry in which its schema has the list of arguments
_SAMPLES = 40  # operators
_FALLTHROUGH = "c10::fallthrough_kernel("
_RUNTIME = "WrapFunctionIntoRuntimeFunctor"
_LONG = 64  # characters of a name that is not worth its place in a sentence
_BOXED_FUNCTOR = re.compile(r"c10::BoxedKernel::makeFromFunctor<(.*?)>\(")
_FUNCTOR_WORDS = 5  # vtable and counts, then the pointer to the function


class Table:
    """Reads the tables of operators. `measured`: what inferior/dispatch_table.py found.

    A kernel is a description for a Point: {kind, op, name, symbol, address, keys, functor, operator_at}.
    `keys`: where it runs. The functions of fallbacks, and of kernels that were registered as pointers, are
    shared: functor and operator say whose call it is. `naming`: tracer/trace/names/kernels.py.
    """

    def __init__(self, measured, memory, schemas, key_sets, naming):
        self.operators = measured["operators"]
        self._memory = memory
        self._naming = naming
        self._indices = key_sets.indices()
        self._layout = self._fitting(measured["tables"])
        self._arguments = self._fitting_arguments(schemas)
        self._names = {address: name for name, address in self.operators.items()}
        self._late = set()  # addresses of entries that were registered since

    @property
    def readable(self):
        """Whether it was found how a table lies in memory."""
        return self._layout is not None

    def operator_at(self, address):
        """The operator whose entry is at `address`; None if there is none."""
        if not self._is_known(address):
            self._learn()
        return self._names.get(address)

    def matching(self, address, wanted):
        """The operator whose entry is at `address`, if `wanted` names it: also without overload, or by *."""
        name = self.operator_at(address) or ""
        return name if wanted in (name, name.split(".")[0]) or fnmatchcase(name, wanted) else None

    def arguments(self, operator):
        """The names of an operator's arguments, as its entry has them; [] where that is unknown."""
        if self._arguments is None or operator not in self.operators:
            return []
        offset, size = self._arguments
        begin, end = self._words(self.operators[operator] + offset, 2)
        return [self._text(at) for at in range(begin, min(end, begin + 100 * size), size)]

    def kernels(self, operator):
        """All kernels of an operator, the unboxed function of each before the boxed one."""
        memory, found = self.state(operator), {}
        if memory is None:
            return []
        entry = self.operators[operator]
        for key, words in self._rows(memory):
            found.setdefault(words, []).append(key)
        return [
            dict(point, op=operator, keys=keys, functor=words[0], operator_at=entry)
            for words, keys in found.items()
            for point in self._functions(words)
        ]

    def at_key(self, operator, key):
        """(the kernels that run at `key`, `key` or None if it means several). Raises gdb.GdbError."""
        known = self.kernels(operator)
        found = [each for each in known if key in each["keys"]]
        if found:
            return found, key
        # the names of wrappers tell a key such as CompositeExplicitAutograd, which is not in the table
        found = [each for each in known if each["name"].startswith(f"{self._naming.WRAPPER}{key}_")]
        if found:
            return found, None
        if key not in self._indices:
            raise gdb.GdbError("this torch has no dispatch key %s" % key)
        own = [each for each in known if each["functor"]]  # the others are fallbacks of a key
        names = dict.fromkeys(
            name if len(name := each["name"]) < _LONG else "one at " + each["keys"][0] for each in own
        )
        there = ", ".join(names) or "none that has a name"
        raise gdb.GdbError("%s has no kernel function at %s; there are: %s" % (operator, key, there))

    def state(self, operator):
        """The table's bytes, which differ after a registration; None if it is unknown."""
        if not self._is_known(self.operators.get(operator)):
            self._learn()
        if operator not in self.operators or not self.readable:
            return None
        offset, stride = self._layout
        return self._memory.read(
            self.operators[operator] + offset, stride * (1 + max(self._indices.values()))
        )

    def _rows(self, memory):
        stride = self._layout[1]
        count = min(4, stride // 8)
        for key, index in self._indices.items():
            yield key, struct.unpack_from("<%dQ" % count, memory, stride * index)

    def _functions(self, words):
        """The functions of a table's row: {functor, boxed, unboxed, unboxed with symbolic integers}."""
        functor, boxed, *unboxed = words
        for kind, address in [*(("kernel", each) for each in unboxed), ("boxed kernel", boxed)]:
            symbol, offset = symbol_at(address) if address else ("", 0)
            if symbol and not offset and not symbol.startswith(_FALLTHROUGH):
                name = self._naming.short_kernel_name(self._registered(functor, symbol))
                yield {"kind": kind, "name": name, "symbol": symbol, "address": address}

    def _registered(self, functor, symbol):
        """The symbol of what was registered: the function to which a functor points, or its class."""
        boxed = _BOXED_FUNCTOR.match(symbol)
        if boxed:
            return boxed[1]
        if _RUNTIME not in symbol:
            return symbol
        for word in self._words(functor + 8, _FUNCTOR_WORDS):
            symbol, offset = symbol_at(word)
            if symbol and not offset:
                return symbol
        return "a function without a name"

    def _is_known(self, entry):
        """Whether an entry has the name that was read: its memory may be another operator's now."""
        known = self._names.get(entry)
        return known is not None and (entry not in self._late or self._name(entry) == known)

    def _learn(self):
        """Reads which operators were registered since: all entries are in one circular list."""
        for entry in self._late:
            self.operators.pop(self._names.pop(entry), None)
        self._late.clear()
        begin = node = next(iter(self.operators.values()), 16) - 16
        while begin:
            (node,) = self._words(node, 1)
            if node == begin:
                return
            if node + 16 not in self._names:
                name = self._name(node + 16)
                if "::" in name:
                    self.operators[name] = node + 16
                    self._names[node + 16] = name
                    self._late.add(node + 16)

    def _name(self, entry):
        """An entry begins with two texts, name and overload; "" where there are none, at the list's end."""
        try:
            name, overload = self._text(entry), self._text(entry + 32)
            return f"{name}.{overload}" if overload else name
        except (OSError, UnicodeDecodeError):
            return ""

    def _text(self, address):
        """A std::string; "" for one that is too long for a name."""
        at, length = self._words(address, 2)
        return self._memory.read(at, length).decode() if length <= 1000 else ""

    def _fitting(self, tables):
        """(offset, stride) at which the rows of each sample are equal where torch tells the same of them."""
        samples = []
        for operator, text in tables.items():
            rows = [line.partition(": ")[::2] for line in text.splitlines()]
            rows = [(self._indices[key], told) for key, told in rows if key in self._indices]
            samples.append((self._memory.read(self.operators[operator], _SPAN), rows))
        fitting = [
            (offset, stride)
            for stride in _STRIDES
            for offset in _OFFSETS
            if all(_fits(offset, stride, *sample) for sample in samples)
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _fitting_arguments(self, schemas):
        """(offset, bytes of an argument) of the list that has as many as `schemas` tells, in all samples."""
        counts = {name: len(schemas[name]["arguments"]) for name in self.operators if name in schemas}
        found = []
        for operator, count in [each for each in counts.items() if each[1] > 1][:_SAMPLES]:
            words = self._words(self.operators[operator], _SCHEMA_SPAN // 8)
            sizes = [(8 * at, (words[at + 1] - words[at]) / count) for at in range(len(words) - 1)]
            found.append({(at, int(size)) for at, size in sizes if 32 <= size < 1024 and size % 8 == 0})
        fitting = set.intersection(*found) if found else ()
        return fitting.pop() if len(fitting) == 1 else None

    def _words(self, address, count):
        return struct.unpack("<%dQ" % count, self._memory.read(address, 8 * count))


def _fits(offset, stride, memory, rows):
    seen = {}
    for index, told in rows:
        at = offset + stride * index
        if seen.setdefault(told, memory[at : at + stride]) != memory[at : at + stride]:
            return False
    return len(set(seen.values())) > 2 and offset + stride * (1 + max(rows)[0]) <= len(memory)
