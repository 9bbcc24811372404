"""Breakpoints that look at what runs and go on: one look is one record."""

import os
import re
import time

from arguments import parameters, split
from memory import EntryRegisters
from symbols import entered
from tensors import NoTensorError
from variables import argument_names, arguments, local_variables

import gdb

_FUNCTOR = "c10::impl::wrap_kernel_functor_unboxed_<"
_MOST_ARGUMENTS = 100  # of an operator that the script brought: all that are on the stack
_STUBS = ("@plt", "$plt")


class Place:
    """What every look needs: how to read tensors, arguments and stacks of this process."""

    def __init__(
        self, memory, tensors, values, arguments, backtraces, python_stack, schemas, table, changed, options
    ):
        self.memory = memory
        self.tensors = tensors
        self.values = values
        self.arguments = arguments
        self.backtraces = backtraces
        self.python_stack = python_stack
        self.schemas = schemas
        self.table = table
        self.changed = (
            changed  # whether an operator has other kernel functions than when a breakpoint was set
        )
        self.options = options
        self.halts = False  # whether a breakpoint has stopped for the user
        self.began = time.monotonic()


class Point(gdb.Breakpoint):
    """A breakpoint that records. `place`: a Place; `described`: what the point is, by the host."""

    def __init__(self, location, place, group, described, emit, internal=True):
        super().__init__(location, internal=internal)
        self.silent = True
        self.described = described
        self.group = group
        self.hits = 0
        self._entries = {}  # pc: described
        self._place = place
        self._emit = emit

    def stop(self):
        frame = gdb.newest_frame()
        if "location" in self.described and (frame.name() or "").endswith(_STUBS):
            return False  # gdb places breakpoints at the stubs of other libraries too
        if not self.is_meant(frame):
            return False
        self.hits += 1
        if self.group.counting:
            return False
        described = self._at(frame)
        late = described["kind"].endswith("call") and self._place.changed(self.group.spec, described["op"])
        seen = Look(self._place, described, frame)
        stack_pointer = int(frame.read_register("rsp")) & (2**64 - 1)
        thread = gdb.selected_thread().ptid[1]
        if not self.group.wants(self.described["kind"], thread, stack_pointer, seen):
            return late
        self._emit(seen.record(self.hits, thread))
        self._place.halts = self._place.halts or self.group.halt
        return self.group.halt or late

    def is_meant(self, frame):
        """Whether the function runs for this kernel: other operators, and other kernels, may share it."""
        described = self.described
        if described["kind"] == "boxed call":
            return self._called(frame) is not None
        if "functor" not in described:
            return True
        registers = EntryRegisters(frame, self._place.memory)
        first, second = registers.integers()[:2]
        if described["kind"] == "kernel":
            return described["functor"] in (first, second)
        return first == described["functor"] and registers.word(second) == described["operator_at"]

    def _called(self, frame):
        """The operator of a boxed call if it is meant. A std::function points to what holds its handle."""
        registers = EntryRegisters(frame, self._place.memory)
        entry = registers.word(registers.word(registers.integers()[0]))
        return self._place.table.matching(entry, self.described["op"])

    def _at(self, frame):
        """What is known of the point; of one that gdb placed, whether arguments are in registers there."""
        described, pc = self.described, frame.pc()
        if described["kind"] == "boxed call":
            return dict(described, op=self._called(frame))
        if "location" not in described or described["kind"] != "function":
            return described
        if pc not in self._entries:
            symbol = entered(pc)
            found = at_entry("function", symbol, None, {}) if symbol else {}
            self._entries[pc] = dict(described, **found, entered=bool(symbol))
        return self._entries[pc]


class Leaving(gdb.Breakpoint):
    """Halts where the process is about to replace itself by another program.

    gdb would find its breakpoints gone with the old one, and refuse to go on.
    """

    def __init__(self, address, memory):
        super().__init__("*%#x" % address, internal=True)
        self.silent = True
        self.reached = False
        self._memory = memory

    def stop(self):
        path = _text(self._memory, EntryRegisters(gdb.newest_frame(), self._memory).integers()[0])
        self.reached = os.access(path, os.X_OK)  # execvp tries folder after folder
        return self.reached


class Forks(gdb.Breakpoint):
    """Counts the children that the process forks. They run on without gdb."""

    def __init__(self):
        super().__init__("*%#x" % int(gdb.parse_and_eval("(long)&fork")), internal=True)
        self.silent = True
        self.hits = 0

    def stop(self):
        self.hits += 1
        return False


def _text(memory, address):
    try:
        return memory.read(address, 4096).split(b"\0")[0]
    except OSError:  # at the end of a mapping
        return memory.read(address, -address % 4096 or 4096).split(b"\0")[0]


class Look:
    """One hit; what is read is read when it is asked for, once."""

    def __init__(self, place, described, frame):
        self._place = place
        self._described = described
        self._frame = frame
        self._arguments = None
        self._key_set = None
        self._result_at = None

    def record(self, hit, thread):
        """The stop, ready for JSON except its frames."""
        place, described = self._place, self._described
        arguments = self.arguments()
        frames = place.backtraces.read(place.options["backtrace"])
        return {
            "spec": described["spec"],
            "kind": described["kind"],
            "op": described.get("op"),
            "key": self.key,
            "function": described.get("name") or (frames[0].function if frames else ""),
            "hit": hit,
            "thread": thread,
            "thread_name": gdb.selected_thread().name,
            "milliseconds": round(1000 * (time.monotonic() - place.began), 3),
            "file": frames[0].file if frames else None,
            "line": frames[0].line if frames else None,
            "arguments": arguments,
            "locals": self.locals(),
            "frames": frames,
            "python": self.python(),
        }

    @property
    def key(self):
        """The dispatch key at which a kernel function or the rest of a redispatch runs, else None.

        The keys that were handed over may hold higher ones, which code in Python has passed by.
        """
        self.arguments()
        if self._key_set is None:
            return None
        key_sets, own = self._place.tensors.key_sets, self._described.get("keys", ())
        passed = (name for name in key_sets.names(self._key_set) if name in own)
        return next(passed, None) or key_sets.highest(self._key_set)

    def tensors(self):
        """The tensors among the arguments, those of lists one by one."""
        found = []
        for argument in self.arguments():
            value = argument["value"]
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, dict) and "defined" in each:
                    found.append(each)
        return found

    def arguments(self):
        """[{name, type, value}]; a tensor is what tensors.Tensors tells."""
        if self._arguments is None:
            if self._at_entry():
                self._arguments = self._from_registers()
            else:
                self._arguments = arguments(self._frame, self._place.values)
        return self._arguments

    def result_at(self):
        """The address where the op call will put its result; None if none was handed over."""
        self.arguments()
        return self._result_at

    def locals(self):
        """[{name, type, value}] where the breakpoint is behind a prologue and there is DWARF."""
        return [] if self._at_entry() else local_variables(self._frame, self._place.values)

    def python(self):
        """[(file, function, line)], the innermost first."""
        stack = self._place.python_stack
        if stack is None:
            return []
        return stack.frames(int(self._frame.read_register("fs_base")) & (2**64 - 1))

    def _at_entry(self):
        return self._described.get("entry", False)

    def _names_of(self, operator):
        schema = self._place.schemas.get(operator)
        return schema["arguments"] if schema else self._place.table.arguments(operator)

    def _numbered(self, name, value):
        """A boxed value as the schema names it: dtypes are numbers there."""
        operator = self._place.schemas.get(self._described.get("op") or "", {})
        kind = operator.get("numbered", {}).get(name)
        return self._place.values.plain(kind, value) if kind and isinstance(value, int) else value

    def _from_registers(self):
        described = self._described
        types = list(described["types"])
        registers = EntryRegisters(self._frame, self._place.memory, described.get("entered", False))
        names = self._names_of(described.get("op") or "")
        if described["kind"].startswith("boxed"):
            _, called, key_set, stack = registers.integers()[:4]
            if described["kind"] == "boxed kernel":
                self._key_set = key_set
            else:
                stack, names = called, names or range(_MOST_ARGUMENTS)
            try:
                values = self._place.values.boxed(stack, len(names))
            except (NoTensorError, OSError):
                values = []
            values = [self._numbered(*each) for each in zip(names, values)]
            return _named(list(map(str, names)), [("c10::IValue", value) for value in values])
        leading = {"kernel": 2, "redispatch": 1}.get(described["kind"], 0)
        values, skipped = self._place.arguments.read(types[leading:], registers, described["hidden"], leading)
        if leading and skipped is not None:
            self._key_set = registers.integers()[skipped + leading - 1]
        if skipped and described["kind"] in ("call", "redispatch", "kernel"):
            self._result_at = registers.integers()[0]
        if described["kind"] == "kernel" and len(values) == len(names) + 1:
            values = values[1:]  # the function itself takes the key set again
        return _named(names or argument_names(self._frame, len(values)), values)


def _named(names, values):
    return [
        {"name": names[number] if number < len(names) else str(number), "type": kind, "value": value}
        for number, (kind, value) in enumerate(values)
    ]


def results_place(kind, symbol, returns):
    """How many registers may come before the parameters (the result's address, `this`), likeliest first."""
    if kind == "kernel" and symbol.startswith(_FUNCTOR):
        returned = re.sub(r" \(.*$", "", _last_template_argument(symbol))
        return _by_type(returned)
    if kind in ("call", "redispatch"):
        if not returns:
            return [0, 1]
        return [0, 1] if returns == ["Tensor&"] or returns[0] in ("bool", "int", "float") else [1, 0]
    name = symbol.split("(")[0]
    return [0, 1] if name.endswith(("_", "_out")) else [1, 0]


def _by_type(returned):
    if returned.endswith(("&", "*")) or returned in ("void", "bool", "long", "double", "c10::ScalarType"):
        return [0, 1]
    return [1, 0]


def _last_template_argument(symbol):
    start = symbol.index(_FUNCTOR) + len(_FUNCTOR)
    end = symbol.rindex(">::call(")
    return split(symbol[start:end])[-1]


def at_entry(kind, symbol, operator, schemas):
    """What a description needs so that arguments are read at the first instruction of a function."""
    returns = schemas.get(operator or "", {}).get("returns")
    return {"entry": True, "types": parameters(symbol), "hidden": results_place(kind, symbol, returns)}
