"""Finds the functions for a breakpoint: those on an operator's dispatch path, or functions by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from tracer.base import torch_abi
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.target import Target
from tracer.trace.names.demangle import demangle_trusted
from tracer.trace.names.kernels import WRAPPER, implements, method_names, short_kernel_name, wrapper_names
from tracer.trace.names.symbols import Symbols

_LIBRARIES = ("libtorch_cpu.so", "libtorch_python.so", "libtorch_cuda.so", "libc10.so")
_WITH_BODIES = [
    torch_abi.GENERATED_NAMESPACES[kind] for kind in ("VariableType", "ADInplaceOrViewType", "TraceType")
]
_BODIES = (WRAPPER, *(shown for shown, _ in _WITH_BODIES))
# Texts in the mangled symbols of kernel functions themselves, which are stops where there is DWARF
_BODY_TEXTS = (
    WRAPPER.encode(),
    *(mangled.removesuffix(torch_abi.ANONYMOUS).encode() for _, mangled in _WITH_BODIES),
)
_WRAPPERS = (torch_abi.UNBOXED_WRAPPER, torch_abi.BOXED_WRAPPER)
_INTERNAL = "L"  # before the name of a function with internal linkage, as gcc mangles it
_FUNCTION_LINE = re.compile(r"^- func: ([\w.]+)\(", re.MULTILINE)
_MOST_MATCHES = 40


@dataclass(frozen=True)
class Point:
    """One address to stop at. `kind`: call, boxed call, redispatch, body, function; or line.

    An "operator" means all its kernel functions: gdb/inside/kernels.py finds them in the dispatcher's table.
    Those are the dispatcher's wrappers, which get the dispatch key; a body is the kernel function itself,
    a stop of its own where it has debug information.
    """

    spec: str
    kind: str
    name: str = ""
    symbol: str = ""  # demangled
    library: str = ""
    offset: int = 0
    op: str | None = None
    location: str | None = None  # in gdb's words, where the address is not known before the run

    def described(self) -> dict[str, object]:
        """As the part inside gdb takes it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Functions:
    """The functions of a target's torch, and of libraries that are loaded before it (overlays)."""

    def __init__(self, target: Target, preloaded: Sequence[Path] = ()) -> None:
        self._target = target
        self._preloaded = tuple(preloaded)

    @cached_property
    def libraries(self) -> dict[str, Symbols]:
        """The symbols of each library by its path. Raises DebuggerError if libtorch_cpu is missing."""
        if not self._target.libtorch_cpu.exists():
            raise DebuggerError(f"{self._target.libtorch_cpu} does not exist; reinstall torch there")
        paths = [*self._preloaded, *(self._target.libraries / name for name in _LIBRARIES)]
        return {str(path.resolve()): Symbols(path) for path in paths if path.exists()}

    @property
    def stripped(self) -> bool:
        """Whether only exported functions have names, so that kernel functions have none."""
        return self.libraries[str(self._target.libtorch_cpu.resolve())].stripped

    @cached_property
    def operators(self) -> frozenset[str]:
        """All operators of ATen, `aten::add.Tensor`; without torchgen a dot may be a `_`."""
        if self._target.torchgen is not None:
            listed = self._target.torchgen / "packaged" / "ATen" / "native" / "native_functions.yaml"
            if listed.exists():
                names = _FUNCTION_LINE.findall(listed.read_text())
                return frozenset(f"aten::{name}" for name in names) | self._classes_but(names)
        return self._classes_but(())

    def _classes_but(self, names: Iterable[str]) -> frozenset[str]:
        """Operators that have a class in at::_ops and are not in the list: those that torchgen makes."""
        known = {name.replace(".", "_") for name in names}
        symbols = self.libraries[str(self._target.libtorch_cpu.resolve())].search(torch_abi.OPERATOR_CLASSES)
        classes = {match[1] for symbol, _ in symbols if (match := torch_abi.OPERATOR_CLASS.match(symbol))}
        return frozenset(f"aten::{name}" for name in classes - known)

    def overloads(self, operator: str) -> list[str]:
        """The operator itself if it has a default overload or names one, else all its overloads."""
        if operator in self.operators:
            return [operator]
        if operator.replace(".", "_") in self.operators:
            return [operator]
        return sorted(name for name in self.operators if name.split(".")[0] == operator)

    def all_overloads(self, operator: str, but: str = "") -> list[str]:
        """Every overload of an operator, the default one too, but those that `but` means."""
        left_out = set(self.overloads(but if "::" in but else f"aten::{but}")) if but else set()
        return sorted(
            name for name in self.operators if name.split(".")[0] == operator and name not in left_out
        )

    def points(self, spec: str) -> list[Point]:
        """The functions for `--break SPEC`. Raises DebuggerError with near names if there are none."""
        if "*" in spec:
            return self._matching(spec)
        operators = self.overloads(spec if "::" in spec else f"aten::{spec}")
        if operators:
            return [point for operator in operators for point in self._path(spec, operator)]
        found = self._named(spec)
        if len(found) > _MOST_MATCHES:
            raise DebuggerError(
                f"{spec} matches {len(found)} functions; choose one: {found[0].name}, {found[1].name}, ..."
            )
        if not found and spec.startswith("aten::"):
            raise DebuggerError(f"no operator {spec}{self.near_names(spec)}")
        return found

    def _matching(self, pattern: str) -> list[Point]:
        """at::_ops::X::call and ::redispatch of the operators that match `aten::*bag*`."""
        by_class = {name.removeprefix("aten::").replace(".", "_"): name for name in self.operators}
        points = []
        for library, found in self._dispatch_symbols.items():
            for mangled, offset in found:
                match = torch_abi.OPERATOR_FUNCTION.match(mangled)
                operator = by_class.get(match[1]) if match else None
                if match and operator and fnmatchcase(operator, pattern):
                    name = f"at::_ops::{match[1]}::{match[2]}"
                    points.append(
                        Point(pattern, match[2], name, demangle_trusted(mangled), library, offset, operator)
                    )
        if not points and pattern.startswith("aten::"):
            raise DebuggerError(f"no operator matches {pattern}{self.near_names(pattern)}")
        return points + self.boxed_calls(pattern, pattern)

    def boxed_calls(self, spec: str, operator: str) -> list[Point]:
        """Where Python calls an operator by torch.ops. `operator`: its name, or a pattern."""
        return [
            Point(spec, "boxed call", "torch.ops", demangle_trusted(mangled), library, offset, operator)
            for library, found in self._boxed_callers
            for mangled, offset in found
        ]

    def hops(self) -> dict[str, list[int]]:
        """For each library the offsets of all at::_ops::X::call and ::redispatch in it."""
        return {
            library: [offset for mangled, offset in found if torch_abi.OPERATOR_FUNCTION.match(mangled)]
            for library, found in self._dispatch_symbols.items()
        }

    @property
    def has_lines(self) -> bool:
        """Whether any library of torch, or an overlay, has line numbers."""
        return any(symbols.has_lines for symbols in self.libraries.values())

    def near_functions(self, spec: str) -> str:
        """`; near: at::native::matmul`, or nothing: functions in the same namespace with a similar name."""
        *spaces, last = spec.split("::")
        if not spaces:
            return ""
        nested = "".join(f"{len(space)}{space}" for space in spaces)
        following = re.compile(nested + rf"{_INTERNAL}?(\d+)(\w+)")
        names = set()
        for symbols in self.libraries.values():
            for mangled, _ in symbols.search(nested.encode()):
                match = following.search(mangled)
                if match:
                    names.add(match[2][: int(match[1])])
        near = get_close_matches(last, sorted(names), n=3, cutoff=0.7)
        return f"; near: {', '.join('::'.join([*spaces, name]) for name in near)}" if near else ""

    def near_names(self, spec: str) -> str:
        """`; near: aten::mm, aten::bmm`, or nothing."""
        wanted = spec if spec.startswith("aten::") else f"aten::{spec.rpartition('::')[2]}"
        near = get_close_matches(wanted, self.operators, n=4, cutoff=0.6)
        return f"; near: {', '.join(near)}" if near else ""

    def _path(self, spec: str, operator: str) -> list[Point]:
        """call and redispatch of an operator in every library, its kernel functions, and their bodies."""
        of_class = operator.removeprefix("aten::").replace(".", "_")
        texts = [f"{len(of_class)}{of_class}{end}" for end in ("4callE", "10redispatchE")]
        texts += [f"{len(name)}{name}E" for name in method_names(operator)]
        texts += [f"_{name}E" for name in wrapper_names(operator)]
        points = [Point(spec, "operator", op=operator), *self.boxed_calls(spec, operator)]
        for library, found in self._dispatch_symbols.items():
            for mangled, offset in found:
                if not any(text in mangled for text in texts):
                    continue
                symbol = demangle_trusted(mangled)
                kind = _kind(symbol, operator, of_class)
                if kind is not None:
                    short = short_kernel_name(symbol)
                    points.append(Point(spec, kind, short, symbol, library, offset, operator))
        return points

    @cached_property
    def _boxed_callers(self) -> list[tuple[str, list[tuple[str, int]]]]:
        return [
            (
                library,
                [each for each in found if torch_abi.INVOKED in each[0] and not each[0].endswith(".cold")],
            )
            for library, symbols in self.libraries.items()
            if (found := symbols.search(torch_abi.BOXED_CALLER))
        ]

    @cached_property
    def _dispatch_symbols(self) -> dict[str, list[tuple[str, int]]]:
        """Of each library what can be on a dispatch path: one search for all operators."""
        return {
            library: _without_stubs(
                symbols.search(torch_abi.OPERATOR_CLASSES, *(_BODY_TEXTS if symbols.has_lines else ()))
            )
            for library, symbols in self.libraries.items()
        }

    def _named(self, spec: str) -> list[Point]:
        """The functions whose name without parameters, templates and anonymous namespaces ends so."""
        last = spec.rpartition("::")[2]
        encoded = [f"{len(part)}{part}" for part in spec.split("::")[-2:]]
        # between the two last names is nothing, an anonymous namespace, or the mark of a static function
        texts = [between.join(encoded).encode() for between in ("", torch_abi.ANONYMOUS, _INTERNAL)]
        texts.append(f"\0{last}\0".encode())
        points = []
        for library, symbols in self.libraries.items():
            for mangled, offset in _without_stubs(symbols.search(*texts)):
                symbol = demangle_trusted(mangled)
                if symbol.endswith("[clone .cold]") or symbol.startswith(_WRAPPERS):
                    continue
                short = short_kernel_name(symbol)
                if short == spec or short.endswith(f"::{spec}"):
                    points.append(Point(spec, "function", short, symbol, library, offset))
        return points


def _without_stubs(found: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Without the stubs that mold names after the functions that they jump to."""
    return [each for each in found if not each[0].endswith("$plt")]


def _kind(symbol: str, operator: str, of_class: str) -> str | None:
    """What a function is on an operator's dispatch path; None if nothing."""
    if symbol.endswith("[clone .cold]") or symbol.startswith(_WRAPPERS):
        return None
    for kind in ("call", "redispatch"):
        if symbol.startswith(f"at::_ops::{of_class}::{kind}("):
            return kind
    kernel = short_kernel_name(symbol)
    return "body" if kernel.startswith(_BODIES) and implements(kernel, operator) else None
