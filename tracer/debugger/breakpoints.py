"""The meaning of `--break SPEC`: an operator, one of its keys, a function, or a line of a source file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.functions import Functions, Point
from tracer.debugger.session import Session
from tracer.trace.names.kernels import WRAPPER, implements

_KEYED = re.compile(r"(.+?)\s*\[(\w+)\]")
_LINE = re.compile(r"(.+\.(\w+)):(\d+)")
_CONDITION_NAMES = (
    *("shape", "stride", "dtype", "device", "keys", "dim", "tensors", "key"),
    *("len", "any", "all", "min", "max", "sum", "range"),
)
# Functions that bear the name of the operator that they implement
_OF_OPERATOR = re.compile(
    r"(?:.*::)?(?:structured_(?P<structured>\w+?)(?:_out)?(?:_[a-z]+)?::impl"
    r"|VariableType::(?P<autograd>\w+)|native::(?P<native>\w+))"
)


def place(session: Session, spec: str, **wanted: Any) -> list[str]:
    """Sets the breakpoint `spec`; returns what it cannot stop at, in sentences. Raises DebuggerError."""
    keyed = _KEYED.fullmatch(spec)
    if keyed:
        wanted["key"] = keyed[2]
    points = points_of(session.functions, spec)
    said = session.add(spec, points, **wanted)
    for companion in _companions(session.functions, spec, points):
        counted = [point for point in session.functions.points(companion) if point.kind != "redispatch"]
        session.add(f"{companion} (beside {spec})", counted, counting=spec)
    return said


def check_condition(text: str) -> None:
    """Raises DebuggerError if `--when` is not an expression of the names that it may use."""
    try:
        names = list(_names(compile(text, "--when", "eval")))
    except (SyntaxError, ValueError) as error:
        raise DebuggerError(f"--when: {getattr(error, 'msg', error)}: {text}") from None
    unknown = [name for name in names if name not in _CONDITION_NAMES]
    if unknown:
        raise DebuggerError(f"--when does not know {unknown[0]}; use {' '.join(_CONDITION_NAMES)}")


def _names(code: CodeType) -> Iterator[str]:
    """The names that an expression uses, those of its generators too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def points_of(functions: Functions, spec: str) -> list[Point]:
    """The points of a breakpoint; at least one. Raises DebuggerError with near names."""
    if not spec.strip():
        raise DebuggerError("--break needs an operator, a function or FILE:LINE")
    line = _LINE.fullmatch(spec)
    if line:
        if line[2] in ("py", "pyx"):
            raise DebuggerError(
                f"{spec} is a line of Python, but gdb stops in native code; put breakpoint() there"
            )
        return [Point(spec, "line", location=spec)]
    keyed = _KEYED.fullmatch(spec)
    name = keyed[1] if keyed else spec
    # what torch does not have may come with a library that the script loads
    found = functions.points(name) or [Point(spec, "function", location=name), *_later(functions, spec, name)]
    if keyed:
        if not any(point.op for point in found):
            raise DebuggerError(f"{spec}: only an operator has dispatch keys{functions.near_names(name)}")
        # at a call it is seen that kernel functions were registered since
        kinds = ("operator", "call", "boxed call")
        found = [replace(point, spec=spec) for point in found if point.kind in kinds]
        if functions.stripped:
            raise DebuggerError(
                f"{spec}: the kernel functions of {name} have no names in this torch; use --break {name}"
            )
    return found


def _later(functions: Functions, spec: str, name: str) -> list[Point]:
    """The points of an operator that is not ATen's: `mine::twice`."""
    if name.count("::") != 1:
        return []
    return [Point(spec, "operator", op=name), *functions.boxed_calls(spec, name)]


def advice(functions: Functions, spec: str, points: Sequence[Point]) -> str | None:
    """What to know before the run of a breakpoint that this torch cannot reach; None if it can."""
    if points[0].location is None:
        return None
    if points[0].kind == "line":
        if functions.has_lines:
            return None
        return (
            f"{spec}: this torch has no line numbers, so only a library that the script loads can stop "
            "there; for lines in torch: --overlay OP, or a debug build (docs/gdb.md)"
        )
    if functions.stripped:
        reason = " (it is stripped: only exported functions have names)"
    else:
        near = functions.near_functions(spec).removeprefix("; ")
        reason = f" ({near})" if near else ""
    later = "a library that the script loads"
    if len(points) > 1:
        later += ", or an operator that it registers"
    return f"{spec} is not in torch{reason}; tracer waits for {later}"


def _companions(functions: Functions, spec: str, points: list[Point]) -> list[str]:
    """The operators that are counted beside a breakpoint, to tell what ran where it is never reached.

    Of a function those that it implements; of an operator without an overload its other overloads.
    """
    if points[0].op:
        named = points[0].op.split(".")[0]
        plain = spec.removeprefix("aten::") == named.removeprefix("aten::")
        return functions.all_overloads(named, but=spec) if plain else []
    if spec.rpartition("::")[2].startswith(WRAPPER):
        return sorted(name for name in functions.operators if implements(spec, name))
    match = _OF_OPERATOR.fullmatch(spec)
    if not match:
        return []
    return functions.all_overloads("aten::" + next(group for group in match.groups() if group))
