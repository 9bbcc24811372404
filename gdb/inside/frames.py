"""Native backtraces with short names. What was once found out of an address is kept."""

import json
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
        self._known = {}  # (pc, how many frames of it came before, whether innermost): Frame
        self._texts = {}  # Frame: JSON
        self._bases = {}
        gdb.events.new_objfile.connect(self._forget)

    def read(self, limit):
        """At most `limit` frames, the innermost first."""
        found = []
        frame, last, inlined = gdb.newest_frame(), None, 0
        try:
            while frame is not None and len(found) < limit:
                pc = frame.pc()
                inlined = inlined + 1 if pc == last else 0
                key = (pc, inlined, not found)
                known = self._known.get(key)
                if known is None:
                    known = self._known[key] = self._frame(frame, pc)
                found.append(known)
                last, frame = pc, frame.older()
        except gdb.error:  # a stack that cannot be unwound any further
            pass
        return found

    def text(self, frames):
        """The frames as a JSON list."""
        texts = []
        for frame in frames:
            text = self._texts.get(frame)
            if text is None:
                text = self._texts[frame] = json.dumps(frame._asdict())
            texts.append(text)
        return "[%s]" % ", ".join(texts)

    def _forget(self, _):
        """A library that is loaded may lie where another one was."""
        self._known.clear()
        self._bases.clear()

    def _frame(self, frame, pc):
        place = frame.find_sal()
        name = frame.name() or ""
        library = gdb.solib_name(pc) or gdb.current_progspace().filename
        file, line = (place.symtab.fullname(), place.line) if place.symtab else (None, None)
        return Frame(
            self._short_name(name) if name else "",
            name,
            any(wrapper in name for wrapper in _WRAPPERS),
            os.path.basename(library) if library else "",
            pc - (self.base(library) or 0) if library else pc,
            file,
            line,
            frame.type() == gdb.INLINE_FRAME,
        )

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
