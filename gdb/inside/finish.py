"""The end of an op call, seen from inside it: where its kernel function has returned to at::_ops::X::call."""

import re
import struct

from symbols import symbol_at
from tensors import NoTensorError

import gdb

_OP_CALL = re.compile(r"at::_ops::(\w+)::call\b")
_INSTRUCTION = re.compile(r"(?:=>)?\s*(0x[0-9a-f]+) .*?:\t(.*)")
# A kernel function is called by its address, or by a function that takes one. Without optimisation the other
# calls are there too, and the names of some hold "BoxedKernel" (getFunctor).
_CALLS_KERNEL = re.compile(
    r"call\w*\s+(\*(?!.*\(%rip\))|.*<(?!.*getFunctor).*"
    r"(SlowPath|BoxedKernelWrapper|callBoxed|callUnboxed|4callE))"
)
_CXX = b"\0++CCUNG"  # the language of an exception, as a little-endian word
_TYPE, _OBJECT = -80, 32  # where type and object of an exception are, from its unwind header


class OpCall:
    """The innermost op call on the stack of the selected thread. Raises gdb.GdbError where there is none."""

    def __init__(self):
        frame, inner = gdb.newest_frame(), True
        match = _OP_CALL.match(frame.name() or "")
        while match is None:
            inner = inner and frame.type() == gdb.INLINE_FRAME
            frame = frame.older()
            if frame is None:
                raise gdb.GdbError("no op call on the stack of this thread")
            match = _OP_CALL.match(frame.name() or "")
        self.name = match[1]
        self.thread = gdb.selected_thread().ptid
        self.caller_pointer = _callers_stack_pointer(frame)
        self._frame = frame
        self._inner = inner

    def is_here(self):
        """Whether the newest frame is this op call."""
        if gdb.selected_thread().ptid != self.thread:
            return False
        return _callers_stack_pointer(gdb.newest_frame()) == self.caller_pointer

    def is_over(self, end):
        """Whether the kernel function has returned. `end`: what end() told where an op call ended last."""
        if end is None or end[:-1] != self.end()[:-1]:
            return False
        return self._frame.pc() > end[-1] or (self._inner and self._frame.pc() == end[-1])

    def end(self):
        """The call's identity and the address at which it ended."""
        return self.thread, self.caller_pointer, self.name, self._frame.pc()

    def ends(self):
        """[(address at which a kernel function may return to it, address of the call, None if it runs)]."""
        if not self._inner:
            return [(self._frame.pc(), None)]
        found, called = [], None
        for line in gdb.execute(f"disassemble {self._frame.pc():#x}", to_string=True).splitlines():
            match = _INSTRUCTION.match(line)
            if match is None:
                continue
            address = int(match[1], 16)
            if called is not None:
                found.append((address, called))
            called = address if address >= self._frame.pc() and _CALLS_KERNEL.match(match[2]) else None
        return found


class Called(gdb.Breakpoint):
    """Notes that an op call is about to call its kernel function. Never stops."""

    def __init__(self, address, call):
        super().__init__(f"*{address:#x}", internal=True)
        self.silent = True
        self.seen = False
        self._call = call

    def stop(self):
        self.seen = self.seen or self._call.is_here()
        return False


class Returned(gdb.Breakpoint):
    """Stops where the kernel function of one op call returns, in no other call of the same operator.

    `called`: the Called that must have seen the call before; None where the kernel function runs already.
    """

    def __init__(self, address, call, called):
        super().__init__(f"*{address:#x}", internal=True)
        self.silent = True
        self.reached = False
        self._call = call
        self._called = called

    def stop(self):
        self.reached = self._call.is_here() and (self._called is None or self._called.seen)
        return self.reached


class Raised(gdb.Breakpoint):
    """Stops where an exception that left an op call is caught."""

    def __init__(self, call):
        super().__init__("-qualified -function __cxa_begin_catch", internal=True)
        self.silent = True
        self.reached = False
        self._call = call

    def stop(self):
        if gdb.selected_thread().ptid != self._call.thread:
            return False
        self.reached = _callers_stack_pointer(gdb.newest_frame()) >= self._call.caller_pointer
        return self.reached


class Finish:
    """Breakpoints at the ends of an op call; use as a context manager. `ended`: what end() told last."""

    def __init__(self, call, ended):
        self.call = call
        self._called, self._returned, self._raised = [], [], None
        self._ends = [] if call.is_over(ended) else call.ends()

    @property
    def at_end(self):
        """Whether the kernel function has returned already."""
        return not self._ends

    def __enter__(self):
        for address, called in self._ends:
            if called is not None:
                self._called.append(Called(called, self.call))
            before = self._called[-1] if called is not None else None
            self._returned.append(Returned(address, self.call, before))
        self._raised = Raised(self.call)
        return self

    def __exit__(self, *_):
        for point in [*self._called, *self._returned, self._raised]:
            if point.is_valid():
                point.delete()

    @property
    def returned(self):
        """Whether it was seen that the kernel function was called and has returned."""
        return any(point.reached for point in self._returned)

    @property
    def raised(self):
        """Whether an exception that left the op call was caught."""
        return self._raised.reached


def result(place, operator):
    """The tensor that an op call returned; None where it returned something else.

    A function hands on in rax where it put what it returns by value.
    """
    returns = place.schemas.get(operator, {}).get("returns", [])
    if len(returns) != 1 or returns[0].rstrip("&") != "Tensor":
        return None
    try:
        return place.tensors.tensor(int(gdb.parse_and_eval("(long)$rax")) & (2**64 - 1))
    except NoTensorError:
        return None


def exception_text(memory):
    """Type and message of the exception that the thread is catching, as far as they are known."""
    header = int(gdb.newest_frame().read_register("rdi")) & (2**64 - 1)
    try:
        if memory.read(header, 8) != _CXX:
            return "of another language"
        (kind,) = struct.unpack("<Q", memory.read(header + _TYPE, 8))
        name = symbol_at(kind)[0].replace("typeinfo for ", "") or "of unknown type"
        if not name.startswith("c10::"):
            return name
        address, length = struct.unpack("<2Q", memory.read(header + _OBJECT + 8, 16))  # c10::Error::msg_
        text = memory.read(address, min(length, 500)).decode("utf-8", "replace")
        return "{}: {}".format(name, text.partition("\n")[0])
    except OSError:
        return "of unknown type"


def _callers_stack_pointer(frame):
    """The stack pointer of a frame's caller: the same at every instruction of the frame."""
    while frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
    return int(frame.older().read_register("rsp")) & (2**64 - 1)
