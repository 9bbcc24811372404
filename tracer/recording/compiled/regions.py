"""Compiled regions: what Inductor made of one graph, described in the trace when it is first called."""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

from tracer.base.interrupts import is_of_the_program
from tracer.base.numerals import number_of
from tracer.recording.compiled import earlier, kept_kernels, kernels_of_module, module_text
from tracer.recording.compiled.breaks import in_one_line
from tracer.recording.compiled.definition import first_place_of, place_of
from tracer.recording.compiled.lines import lines_of_graph, moved_lines, with_lines
from tracer.recording.compiled.origins import bytes_of_kernel, is_of_torch, nodes_of_kernel

Write = Callable[[str, object], None]

_MOST_GUARDS = 20

_numbers = itertools.count(1)  # of all recordings of the process: a forked child goes on from its parent's
_known: dict[int, _Region] = {}  # by the address of the compiled object, as long as it lives


class _Compilation:
    """What is known of one frame that Dynamo compiled."""

    def __init__(self, compile_id: object) -> None:
        self.compile_id = compile_id
        """Of torch: the same object as long as the frame and its backward are compiled, or None"""
        self.recompiled: str | None = None
        """The guards that failed, `0/0: ...; 0/1: ...`: one for each earlier compilation of the frame"""
        self.lines: dict[str, str] = {}
        """node of Dynamo's graph -> line of this run"""
        self.loaded: list[list[dict[str, Any]]] = []
        """The kernels of its regions that came from the cache"""


class _Region:
    """What is known of one compiled object."""

    def __init__(self, code: object, forget: Callable[[int], None]) -> None:
        self.number = next(_numbers)
        self.facts: dict[str, Any] = {}
        self.compilation = _Compilation(None)
        self.how: str | None = None
        """Where `uses` are from: compiled in this recording, kept from another one, the module's text"""
        self.uses: kept_kernels.Uses = {}
        self.document: dict[str, Any] | None = None
        """What a trace has of it, once it was called"""
        address = id(code)

        def gone(_: object) -> None:
            _known.pop(address, None)
            forget(address)

        self.reference = weakref.ref(code, gone)


class Regions:
    """The regions of one recording. Its methods are called inside of torch's compiler, and never raise."""

    def __init__(
        self,
        native: ModuleType,
        write: Write,
        failed: Callable[[BaseException], None],
        is_loading: Callable[[], bool],
    ) -> None:
        """`is_loading`: whether this thread loads what AOTAutograd's cache has."""
        self._native = native
        self._is_loading = is_loading
        self._write = write
        self._failed = failed
        self._pending: defaultdict[int, dict[str, list[Any]]] = defaultdict(dict)
        """Kernels that a thread's compiler has made and that belong to no region yet"""
        self._cache: dict[int, str] = {}
        """hit or miss: what the cache last said to a thread"""
        self._compilations: dict[int, _Compilation] = {}
        """By the address of torch's compile id: 0/0 is there again after each torch._dynamo.reset()"""
        self.lines: set[tuple[str, int]] = set()
        """File and number of each line that the trace names as the origin of a kernel"""
        self._hides = False

    def traced(self, graph_module: Any) -> None:
        """Dynamo has traced a graph, and Inductor begins to compile it."""
        self._compilation().lines = lines_of_graph(graph_module)

    def guards_failed(self, reasons: list[str]) -> None:
        """Dynamo compiles a frame again: for each of its earlier compilations the guard that failed."""
        self._compilation().recompiled = "; ".join(map(_guard, reasons[:_MOST_GUARDS])) or None

    def kernel_made(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Inductor has put scheduled nodes into a kernel: what its function for this was called with."""
        scheduled, name, is_extern = (
            arguments[at] if len(arguments) > at else named.get(word, False)
            for at, word in enumerate(("node_schedule", "kernel_name", "is_extern"))
        )
        use = {
            "nodes": nodes_of_kernel(scheduled, is_extern=is_extern),
            "bytes": None if is_extern else bytes_of_kernel(scheduled),
        }
        self._pending[threading.get_ident()].setdefault(name, []).append(use)

    def cache_said(self, arguments: tuple[Any, ...]) -> None:
        """An event of the compiler's cache: what torch's logger was called with."""
        for answer in ("hit", "miss", "bypass"):
            if arguments[1] == f"fx_graph_cache_{answer}":
                self._cache[threading.get_ident()] = answer

    def made(self, code: Any) -> None:
        """Inductor has compiled a graph, or loaded it from its cache."""
        region = self._region(code)
        thread = threading.get_ident()
        compiled = self._pending.pop(thread, {})
        cache = self._cache.pop(thread, None)
        region.compilation = compilation = self._compilation()
        region.facts |= {
            "compile_id": None if compilation.compile_id is None else str(compilation.compile_id),
            "recompiled": compilation.recompiled,
            "cache": "miss" if compiled else "hit" if self._is_loading() else cache,
            **_traced_function(),
        }
        artifact = _artifact(code)
        if compiled:
            region.how, region.uses = "compiled", compiled
            if artifact:
                kept_kernels.keep(artifact, compiled)
        else:
            region.how, region.uses = _known_of(code, traced=True)
            compilation.loaded.extend(region.uses.values())

    def describe(self, code: Any) -> int:
        """The number of what is called for the first time in this recording; writes its document."""
        try:
            region = self._region(code)
            if region.how is None:
                region.how, region.uses = _known_of(code, traced=False)
            if not region.facts.get("function"):
                region.facts.setdefault("compile_id", None)
                earlier.tell_frame(lambda frame: self._found(region, frame))
            document = {**_facts(code), **region.facts}
            document |= kernels_of_module.describe(code, self._native)
            uses = _uses_of_this_run(region)
            document |= {"how": region.how, "uses": uses}
            self.lines |= set(_line(document.get("defined_at")))
            self.lines |= {
                line for several in uses.values() for place in _lines_of(several) for line in _line(place)
            }
            region.document = document
            self._write(f"compiled:{region.number}", document)
            if document["hidden"]:
                self._hide()
            return region.number
        except Exception as error:
            if is_of_the_program(error):
                raise
            self._failed(error)
            self._hide()
            return 0

    def _found(self, region: _Region, frame: earlier.Frame) -> None:
        """The function of code that was compiled before the recording. It may have been described without."""
        region.facts |= {"compile_id": frame.compile_id, **_function(frame.codes)}
        if region.document is not None:
            region.document |= region.facts
            self.lines |= set(_line(region.facts["defined_at"]))
            self._write(f"compiled:{region.number}", region.document)

    def _hide(self) -> None:
        """Says in the trace, as long as nobody has, that kernels ran which are not recorded."""
        if not self._hides:
            self._hides = True
            self._write("compiled_hidden", {})

    def _region(self, code: Any) -> _Region:
        region = _known.get(id(code))
        if region is None or region.reference() is not code:
            region = _known[id(code)] = _Region(code, self._native.forget_compiled)
        return region

    def _compilation(self) -> _Compilation:
        """The one that goes on in this thread."""
        compile_id = _compile_id()
        if compile_id is None:
            return _Compilation(None)
        known = self._compilations.get(id(compile_id))
        if known is None or known.compile_id is not compile_id:
            known = self._compilations[id(compile_id)] = _Compilation(compile_id)
        return known


def _known_of(code: Any, *, traced: bool) -> tuple[str, kept_kernels.Uses]:
    """How the kernels of code are known that was not compiled in this recording, and their uses.

    `traced`: Dynamo did trace it, so that what was kept can have lines.
    """
    stacks = module_text.stacks_of(code)
    known = kept_kernels.read(_artifact(code)) if traced or not stacks else None
    if known is not None:
        return "kept", known
    return "text", module_text.uses_of_text(getattr(code, "source_code", None) or "", stacks)


def _uses_of_this_run(region: _Region) -> kept_kernels.Uses:
    """What was kept has lines of the run that compiled it. A forward's nodes tell its backward's too."""
    if region.how == "compiled":
        return region.uses
    lines, loaded = region.compilation.lines, region.compilation.loaded
    if region.how == "kept":
        moved = moved_lines([use["nodes"] for several in loaded for use in several], lines)
    else:
        moved = {line: line for several in region.uses.values() for line in _lines_of(several)}
    return {
        name: [{**use, "nodes": with_lines(use["nodes"], lines, moved)} for use in several]
        for name, several in region.uses.items()
    }


def _guard(reason: str) -> str:
    """`0/0: n == 2  # return x * n  # train.py:3 in f`, without the columns of spaces and the stack."""
    return re.sub(r"\s{2,}#", "  #", in_one_line(reason))


def _artifact(code: Any) -> str:
    """What names the artifact in Inductor's cache."""
    return str(getattr(code, "_fx_graph_cache_key", None) or getattr(code, "cache_key", ""))


def _lines_of(several: list[dict[str, Any]]) -> Iterator[str]:
    return (node["source"] for use in several for node in use["nodes"] if node["source"])


def _line(place: str | None) -> Iterator[tuple[str, int]]:
    file, _, number = (place or "").rpartition(":")
    if file and (found := number_of(number)) is not None:
        yield file, found


def _compile_id() -> object:
    """torch's CompileId, `0/1`: the second compilation of the first frame; None outside of a compilation."""
    guards = sys.modules.get("torch._guards")
    return guards.CompileContext.current_compile_id() if guards else None


def _traced_function() -> dict[str, Any]:
    """The function that Dynamo traced."""
    context = sys.modules["torch._guards"].TracingContext.try_get()
    return _function(getattr(context, "traced_code", None) or [])


def _function(codes: list[CodeType]) -> dict[str, Any]:
    """Its name and where it is defined. `codes`: that of the frame, and those that it calls.

    The first one outside of torch: torch.no_grad() and others put a function of torch around the user's.
    """
    if not codes:
        return {}
    code = next((code for code in codes if not is_of_torch(code.co_filename)), codes[0])
    place, shown = place_of(code), first_place_of(codes[0])
    return {
        "function": getattr(code, "co_qualname", code.co_name),
        "defined_at": place,
        "decorated_at": None if shown == place else shown,
    }


def _facts(code: Any) -> dict[str, Any]:
    """What the object itself says."""
    arguments = getattr(code, "fx_kwargs", None) or {}
    backward = arguments.get("is_backward")
    if backward is None:
        direction = None
    elif backward:
        direction = "backward"
    else:
        direction = "inference" if arguments.get("is_inference") else "forward"
    key = getattr(code, "cache_key", None)
    return {
        "graph_id": arguments.get("graph_id"),
        "direction": direction,
        "artifact": key if isinstance(key, str) else None,
        "kind": type(code).__name__,
        "cpp_wrapper": bool(arguments.get("cpp_wrapper")) if arguments else None,
        "process": os.getpid(),
    }
