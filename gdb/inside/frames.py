"""Native backtraces with short names. What was once found out of an address is kept."""

import json
import os
from collections import namedtuple

from symbols import symbol_at

import gdb

# `function`: as a kernel author calls it. `symbol`: as gdb does. `wrapper`: one of the dispatcher's
# own function templates, named after the kernel function that it wraps. `plumbing`: one of those between a
# call and the wrapper. `tail_call`: a function that ended in a jump to the next one.
Frame = namedtuple("Frame", "function symbol wrapper plumbing library offset file line inline tail_call")
_BEYOND = 64  # frames that are walked beyond those asked for: the next backtrace shares whole ones alone
_LONGEST = 100  # characters of a name
_MOST_STACK = 1 << 18  # bytes of stack that are compared
_WRAPPERS = ("wrap_kernel_functor_unboxed_<", "make_boxed_from_unboxed_functor<", "WrapFunctionInto")
_PLUMBING = (
    "c10::callUnboxedKernelFunction", "c10::KernelFunction::", "c10::Dispatcher::call",
    "c10::Dispatcher::redispatch", "c10::TypedOperatorHandle", "c10::impl::BoxedKernelWrapper",
    "c10::impl::detail::WrapFunctionInto", "c10::impl::call_functor_with_args_from_stack",
)  # fmt: skip


class Walk:
    """A backtrace that was read, whose outer frames the next one of the thread may share.

    `rows`: [(pc, stack pointer, Frame)], the innermost first; `whole`: up to the thread's first frame.
    Where a frame has the same pc and stack pointer again, one word of the stack says its caller,
    its return address, and so on outwards: if all these words are what they were, so is the rest.
    """

    def __init__(self, rows, whole):
        self.rows = rows
        self.whole = whole
        self._places = {row[:2]: number for number, row in reversed(list(enumerate(rows))) if number}
        # functions that ended in a jump have no return address; gdb tells them from debug information
        real = [
            (pc, pointer, number) for number, (pc, pointer, frame) in enumerate(rows) if not frame.tail_call
        ]
        # (where a return address lies, what it is, the row that it leads to), the outermost first
        self._calls = [
            (pointer - 8, pc, number)
            for (_, inner, _), (pc, pointer, number) in zip(real, real[1:])
            if inner != pointer
        ][::-1]

    def intact(self, memory):
        """The first row from which outwards all return addresses still lie where they lay."""
        if not self._calls:
            return len(self.rows)
        low, high = self._calls[-1][0], self._calls[0][0] + 8
        if not 0 < high - low <= _MOST_STACK or any(at < low or at & 7 for at, _, _ in self._calls):
            return len(self.rows)
        try:
            words = memoryview(memory.read(low, high - low)).cast("Q")
        except OSError:
            return len(self.rows)
        first = len(self.rows)
        for at, value, number in self._calls:
            if words[(at - low) >> 3] != value:
                break
            first = number - 1
        return first

    def place(self, pc, stack_pointer):
        """The row with this pc and stack pointer, -1 where there is none."""
        return self._places.get((pc, stack_pointer), -1)


class Backtraces:
    """Reads backtraces of the selected thread. `short_name` shortens a demangled C++ name."""

    def __init__(self, short_name, memory):
        self._short_name = short_name
        self._memory = memory
        self._last = {}  # thread: Walk
        self._known = {}  # (pc, how many frames of it came before, whether innermost): Frame
        self._texts = {}  # Frame: JSON
        self._bases = {}
        gdb.events.new_objfile.connect(self._forget)

    def read(self, limit):
        """At most `limit` frames, the innermost first."""
        thread = gdb.selected_thread().num
        walk = self._last.get(thread)
        intact = walk.intact(self._memory) if walk is not None else 0
        most = limit + _BEYOND
        frame, rows, whole = gdb.newest_frame(), [], True
        last, inlined = None, 0
        try:
            while frame is not None:
                if len(rows) == most:
                    whole = False
                    break
                pc = frame.pc()
                stack_pointer = int(frame.read_register("rsp"))
                if walk is not None and rows and pc != last:
                    number = walk.place(pc, stack_pointer)
                    left = most - len(rows)
                    if number >= intact and (walk.whole or len(walk.rows) - number >= left):
                        rows += walk.rows[number : number + left]
                        whole = walk.whole and len(walk.rows) - number <= left
                        break
                inlined = inlined + 1 if pc == last else 0
                key = (pc, inlined, not rows)
                known = self._known.get(key)
                if known is None:
                    known = self._known[key] = self._frame(frame, pc)
                rows.append((pc, stack_pointer, known))
                last, frame = pc, frame.older()
        except gdb.error:  # a stack that cannot be unwound any further
            pass
        self._last[thread] = Walk(rows, whole)
        return [known for _, _, known in rows[:limit]]

    def text(self, frames):
        """The frames as a JSON list."""
        texts = []
        for frame in frames:
            text = self._texts.get(frame)
            if text is None:
                shown = frame._asdict()
                del shown["symbol"]  # up to thousands of characters; library and offset replace it
                text = self._texts[frame] = json.dumps(shown)
            texts.append(text)
        return "[%s]" % ", ".join(texts)

    def _forget(self, _):
        """A library that is loaded may lie where another one was."""
        self._known.clear()
        self._last.clear()
        self._bases.clear()

    def _frame(self, frame, pc):
        place = frame.find_sal()
        name = self._name(frame, pc)
        library = gdb.solib_name(pc) or gdb.current_progspace().filename
        file, line = (place.symtab.fullname(), place.line) if place.symtab else (None, None)
        short = self._short_name(name) if name else ""
        return Frame(
            short if len(short) <= _LONGEST else short[: _LONGEST - 3] + "...",
            name,
            any(wrapper in name for wrapper in _WRAPPERS),
            short.startswith(_PLUMBING),
            os.path.basename(library) if library else "",
            pc - (self.base(library) or 0) if library else pc,
            file,
            line,
            frame.type() == gdb.INLINE_FRAME,
            frame.type() == gdb.TAILCALL_FRAME,
        )

    def _name(self, frame, pc):
        """As gdb has it; of a lambda, which debug information calls operator(), as its symbol has it."""
        name = frame.name() or ""
        if frame.type() == gdb.NORMAL_FRAME and self._short_name(name) == "operator()":
            return symbol_at(pc)[0] or name
        return name

    def base(self, library):
        """The address where a library is loaded; None where it is not."""
        if library not in self._bases:
            self._bases[library] = _lowest_mapping(library)
        return self._bases[library]


def _lowest_mapping(library):
    wanted = os.path.realpath(library)
    with open("/proc/%d/maps" % gdb.selected_inferior().pid) as maps:
        for line in maps:
            path = line.split(None, 5)[-1].rstrip("\n")
            if path.startswith("/") and path == wanted:
                return int(line.split("-")[0], 16)
    return None
