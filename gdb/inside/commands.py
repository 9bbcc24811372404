"""Commands of gdb's command line that know dispatch: help NAME tells of each."""

import inspect
import re

import console
import finish
import wording
from here import Here
from hops import Hops, of_offsets
from stops import Point
from tensors import NoTensorError

import gdb

_MOST_FRAMES = 100_000
_TENSOR_TYPES = ("at::Tensor", "at::TensorBase")


class Command(gdb.Command):
    """A command whose errors are one line."""

    def __init__(self, name, kind, debugger, here, folder):
        self.__doc__ = inspect.cleandoc(type(self).__doc__)
        self.debugger = debugger
        self.here = here
        self.folder = folder
        super().__init__(name, kind)

    def invoke(self, text, _from_tty):
        try:
            self.run(text.strip())
        except gdb.GdbError:
            raise
        except (gdb.error, OSError) as error:
            raise gdb.GdbError(" ".join(str(error).split()) or type(error).__name__) from None


class TensorCommand(Command):
    """Show a tensor: tensor EXPR.
    EXPR is the name or number of an argument at this stop (tensor self, tensor 0), an expression for the
    address of an at::Tensor (tensor $rsi), or a variable of that type. Needs no debug information."""

    def run(self, text):
        if not text:
            raise gdb.GdbError(
                "tensor needs the name or number of an argument, or the address of an at::Tensor"
            )
        arguments = self._arguments()
        for number, argument in enumerate(arguments):
            if text in (argument["name"], str(number)):
                return self._show_argument(argument)
        if re.fullmatch(r"\d{1,3}", text):
            raise gdb.GdbError(f"no argument {text} at this stop{_named(arguments)}")
        return self._show_expression(text, arguments)

    def _arguments(self):
        if gdb.selected_frame() != gdb.newest_frame():
            return []
        return self.here.look().arguments()

    def _show_argument(self, argument):
        found = wording.tensors(argument["name"], argument["value"])
        if not found:
            raise gdb.GdbError("{} is not a tensor: {}".format(argument["name"], argument["value"]))
        for name, value in found:
            print(f"{name}: {wording.tensor(value)}")

    def _show_expression(self, text, arguments):
        try:
            value = gdb.parse_and_eval(text)
        except gdb.error as error:
            raise gdb.GdbError(
                f"{text} is not an argument at this stop{_named(arguments)}: {error}"
            ) from None
        address = _address(value)
        if address is None:
            raise gdb.GdbError(f"{text} is neither an at::Tensor nor an address: {value.type}")
        try:
            shown = self.debugger.place.tensors.tensor(address)
        except NoTensorError as error:
            here = address == self.here.look().result_at()
            why = "the result will be there; it is empty until finish-op" if here else error
            raise gdb.GdbError(f"no at::Tensor at {address:#x}: {why}") from None
        print(f"{text}: {wording.tensor(shown)}")


class DispatchBacktrace(Command):
    """Show the dispatch path on this thread's stack: dispatch-bt, or dispatch-bt all.
    Calls and redispatches of operators, kernel functions and the native functions between them, numbered
    as in bt, then the Python stack. With all: every frame, with short names."""

    def run(self, text):
        if text not in ("", "all"):
            raise gdb.GdbError("dispatch-bt takes no argument, or all")
        frames = self.debugger.place.backtraces.read(_MOST_FRAMES)
        if text:
            path = [(number, wording.kind(frame), frame) for number, frame in enumerate(frames)]
        else:
            path = wording.dispatch_path(frames)
        for number, kind, frame in path:
            print(wording.frame(number, kind, frame))
        if not path:
            print("no op call on the stack of this thread")
        for file, function, line in self.here.look().python():
            print(f"     python     {file}:{line} {function}")


class NextHop(Command):
    """Continue to the next call or redispatch of any operator in this thread, and show it: next-hop.
    A breakpoint in a kernel function, or in what it calls, stops as always."""

    _hops = None

    def run(self, text):
        if text:
            raise gdb.GdbError("next-hop takes no argument")
        if self._hops is None:
            self._hops = self._made()
        with self._hops:
            run_on()

    def _made(self):
        made = of_offsets(self.debugger, console.ask("hops"), self.folder)
        gdb.write(f"{made.watched} functions are watched while next-hop runs\n")
        gdb.flush()  # the script's own output may follow
        return made


class FinishOp(Command):
    """Run to the end of the innermost op call on the stack, and stop before it returns: finish-op.
    Stops in at::_ops::X::call when the kernel function that it called has returned to it, and shows the
    result. If the op raises an exception, stops where it is caught."""

    _ended = None  # the last op call that came to its end

    def run(self, text):
        if text:
            raise gdb.GdbError("finish-op takes no argument")
        end = finish.Finish(finish.OpCall(), self._ended)
        name, operator = end.call.name, self.here.operator(end.call.name)
        if end.at_end:
            raise gdb.GdbError(f"{operator} is at its end; type finish to leave it")
        with end:
            run_on()
            if end.returned:
                self._ended = finish.OpCall().end()
                print(f"{operator} has returned to at::_ops::{name}::call{self._result(operator)}")
            elif end.raised:
                text = finish.exception_text(self.debugger.place.memory)
                print(f"{operator} raised a C++ exception, caught outside of it: {text}")
            elif gdb.selected_thread() is not None:
                print(f"{operator} has not ended")

    def _result(self, operator):
        shown = finish.result(self.debugger.place, operator)
        return "" if shown is None else "\n  result: " + wording.tensor(shown, keys=False)


class BreakOp(Command):
    """Set a breakpoint at an operator: break-op NAME [KEY].
    Without KEY it stops where the operator is called (at::_ops::NAME::call), with KEY in its kernel function
    at that dispatch key: break-op mm CPU, break-op add.Tensor AutogradCPU, break-op matmul
    CompositeImplicitAutograd. info breakpoints lists it, delete removes it."""

    def run(self, text):
        words = text.split()
        if len(words) not in (1, 2):
            raise gdb.GdbError("break-op needs an operator, and optionally a dispatch key: break-op mm CPU")
        spec = "break-op " + " ".join(words)
        if any(point.is_valid() and point.group.spec == spec for point in self.debugger.points):
            raise gdb.GdbError(f"{spec} is already set; see info breakpoints")
        path = console.ask("path", operator=words[0])
        if len(words) == 1:
            chosen, key = [point for point in path if point["kind"] == "call"], None
            if not chosen:
                raise gdb.GdbError(f"{words[0]} has no call function of its own; give a key")
        else:
            operator = next(point["op"] for point in path if point["kind"] == "operator")
            chosen, key = self.debugger.table.at_key(operator, words[1])
        group = {"spec": spec, "halt": True, "key": key}
        self.debugger.add(group, [dict(point, spec=spec) for point in chosen], internal=False)
        functions = dict.fromkeys("{} of {}".format(point["name"], point["op"]) for point in chosen)
        several = key and any(point["keys"] != [key] for point in chosen)
        print("{}{}".format(", ".join(functions), f", where its key is {key}" if several else ""))


class PlumbingCommand(Command):
    """Let step lead into plumbing: plumbing on. Or not, as at first: plumbing off.
    Plumbing is the standard library, c10/util, c10/core and the dispatcher's own helpers."""

    def run(self, text):
        if text not in ("on", "off"):
            raise gdb.GdbError("plumbing needs on or off")
        self.debugger.plumbing.show(text == "on")


class TracerCommand(gdb.Command):
    """Lists the commands of tracer."""

    def __init__(self):
        self.__doc__ = f"tracer's commands, which know PyTorch's dispatch:\n\n{summary()}"
        super().__init__("tracer", gdb.COMMAND_SUPPORT)

    def invoke(self, _text, _from_tty):
        print(summary())


COMMANDS = {
    "tensor": (TensorCommand, gdb.COMMAND_DATA),
    "dispatch-bt": (DispatchBacktrace, gdb.COMMAND_STACK),
    "next-hop": (NextHop, gdb.COMMAND_RUNNING),
    "finish-op": (FinishOp, gdb.COMMAND_RUNNING),
    "break-op": (BreakOp, gdb.COMMAND_BREAKPOINTS),
    "plumbing": (PlumbingCommand, gdb.COMMAND_RUNNING),
}


def register(debugger, folder):
    """Makes the commands, and shows from now on where operators' breakpoints stop."""
    here = Here(debugger)
    for name, (command, kind) in COMMANDS.items():
        command(name, kind, debugger, here, folder)
    TracerCommand()
    gdb.events.stop.connect(lambda event: _show(event, debugger, here))


def summary():
    """A line for each command."""
    firsts = [(name, command.__doc__.splitlines()[0]) for name, (command, _) in COMMANDS.items()]
    return "\n".join(f"{name:12s} {first}" for name, first in firsts)


def greet(debugger):
    """What the user sees first: the commands, and the stop."""
    print(f"gdb with tracer's commands:\n{summary()}")
    print("help NAME explains one, help tracer lists them, continue resumes the script, quit ends it.")
    here = Here(debugger)
    print(wording.stop(here.described(), here.look()))


def run_on():
    """Continues to the next stop, and prints what gdb says of it."""
    gdb.write(gdb.execute("continue", to_string=True).replace("Continuing.\n", "", 1))


def _show(event, debugger, here):
    """Tells of a stop at a breakpoint about which gdb itself keeps silent."""
    debugger.learn()
    points = getattr(event, "breakpoints", [])
    if points and debugger.leave():
        print("the process is about to become another program (exec), which tracer does not examine")
    elif any(isinstance(point, (Point, Hops)) for point in points):
        numbers = [f"Breakpoint {point.number}, " for point in points if point.number > 0]
        print("".join(numbers[:1]) + wording.stop(here.described(), here.look()))


def _address(value):
    """The address of the at::Tensor that an expression means; None where it means neither."""
    if value.type.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        value = value.referenced_value()
    kind = value.type.strip_typedefs().unqualified()
    if kind.code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_PTR):
        return int(value) & (2**64 - 1)
    return int(value.address) if kind.name in _TENSOR_TYPES and value.address is not None else None


def _named(arguments):
    """The arguments' names, for complaints."""
    return " ({})".format(", ".join(argument["name"] for argument in arguments)) if arguments else ""
