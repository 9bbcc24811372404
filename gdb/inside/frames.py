"""Native backtraces with short names. Names and places of code without debug information are kept."""

import os
from collections import namedtuple

import gdb

# `function`: as a kernel author calls it. `symbol`: as gdb does. `wrapper`: one of the dispatcher's
# own function templates, named after the kernel function that it wraps.
Frame = namedtuple("Frame", "function symbol wrapper library offset file line inline")
_WRAPPERS = ("wrap_kernel_functor_unboxed_<", "make_boxed_from_unboxed_functor<", "WrapFunctionInto")


class Backtraces:
    """Reads backtraces of the selected thread. `short_name` shortens a demangled C++ name."""

    def __init__(self, short_name):
        self._short_name = short_name
        self._plain = {}  # pc: Frame, of code without debug information
        self._bases = {}

    def read(self, limit):
        """At most `limit` frames, the innermost first."""
        found = []
        frame = gdb.newest_frame()
        try:
            while frame is not None and len(found) < limit:
                found.append(self._frame(frame))
                frame = frame.older()
        except gdb.error:  # a stack that cannot be unwound any further
            pass
        return found

    def _frame(self, frame):
        pc = frame.pc()
        known = self._plain.get(pc)
        if known is not None:
            return known
        place = frame.find_sal()
        name = frame.name() or ""
        library = gdb.solib_name(pc) or gdb.current_progspace().filename
        file, line = (place.symtab.fullname(), place.line) if place.symtab else (None, None)
        found = Frame(
            self._short_name(name) if name else "",
            name,
            any(wrapper in name for wrapper in _WRAPPERS),
            os.path.basename(library) if library else "",
            pc - (self.base(library) or 0) if library else pc,
            file,
            line,
            frame.type() == gdb.INLINE_FRAME,
        )
        if file is None:
            self._plain[pc] = found
        return found

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
