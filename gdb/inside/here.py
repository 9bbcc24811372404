"""What is known of the place where a thread is stopped."""

import re

from stops import Look, at_entry
from symbols import symbol_at

import gdb

_HOP = re.compile(r"at::_ops::(\w+)::(call|redispatch)\(")
_KINDS = {
    "c10::impl::wrap_kernel_functor_unboxed_<": "kernel",
    "c10::impl::make_boxed_from_unboxed_functor<": "boxed kernel",
}


class Here:
    """Finds out what function the newest frame is in, and reads its arguments."""

    def __init__(self, debugger):
        self._debugger = debugger

    def look(self):
        """A Look at the newest frame."""
        return Look(self._debugger.place, self.described(), gdb.newest_frame())

    def described(self):
        """As a breakpoint there is described: {kind, op, name} and how arguments are read."""
        pc = gdb.newest_frame().pc()
        symbol, offset = symbol_at(pc)
        if _HOP.match(symbol) and not offset:
            return self._of_symbol(symbol)
        for point in self._debugger.points:
            here = point.is_valid() and point.location == f"*{pc:#x}" and "types" in point.described
            if here and point.is_meant(gdb.newest_frame()):
                return point.described  # the host knows the operator of a kernel function
        return self._of_symbol(symbol) if symbol and not offset else self._of_line()

    def operator(self, name):
        """`aten::add.Tensor` for the class `add_Tensor` of at::_ops."""
        return self._debugger.operators.get("aten::" + name, "aten::" + name)

    def _of_line(self):
        frame = self._debugger.place.backtraces.read(1)[0]
        place = f" at {frame.file}:{frame.line}" if frame.file else ""
        return {"kind": "line", "name": frame.function + place}

    def _of_symbol(self, symbol):
        hop = _HOP.match(symbol)
        kind = (
            hop[2]
            if hop
            else next((_KINDS[start] for start in _KINDS if symbol.startswith(start)), "function")
        )
        operator = self.operator(hop[1]) if hop else None
        return {
            "kind": kind,
            "op": operator,
            "name": self._debugger.place.backtraces.read(1)[0].function,
            **at_entry(kind, symbol, operator, self._debugger.place.schemas),
        }
