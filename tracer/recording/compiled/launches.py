"""Launches of Triton kernels from Python: those that Inductor made, and those of the user (`@triton.jit`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tracer.base.interrupts import is_of_the_program
from tracer.recording.compiled.definition import place_of

Function = Callable[..., Any]
Write = Callable[[str, object], None]

_numbers = itertools.count(1)


class Launches:
    """The Triton kernels of one recording. Each has a number, under which the trace describes it."""

    def __init__(self, native: ModuleType, write: Write, failed: Callable[[BaseException], None]) -> None:
        self._native = native
        self._write = write
        self._failed = failed
        self._known: dict[int, tuple[object, str]] = {}
        """Address of a launcher -> itself, and the name of its ranges"""
        self._described: set[int] = set()

    def of_inductor(self, original: Function) -> Function:
        """A wrapper of `CachingAutotuner.run`."""

        def run(*arguments: Any, **named: Any) -> Any:
            kind = "bench" if named.get("benchmark_run") else "kernel"
            entered = self._enter(kind, arguments[0], _name_of_inductor)
            try:
                return original(*arguments, **named)
            finally:
                self._leave(entered, arguments[0], _facts_of_inductor)

        return run

    def of_user(self, original: Function) -> Function:
        """A wrapper of `JITFunction.run`; with `warmup` it only compiles."""

        def run(*arguments: Any, **named: Any) -> Any:
            if named.get("warmup"):
                return original(*arguments, **named)
            entered = self._enter("kernel", arguments[0], _name_of_user)
            compiled = None
            try:
                compiled = original(*arguments, **named)
                return compiled
            finally:
                self._leave(entered, arguments[0], lambda function: _facts_of_user(function, compiled))

        return run

    def of_benchmark(self, original: Function) -> Function:
        """A wrapper of what launches a kernel to find its best configuration."""

        def bench(*arguments: Any, **named: Any) -> Any:
            entered = self._enter("bench", arguments[0], _name_of_benchmark)
            try:
                return original(*arguments, **named)
            finally:
                self._native.leave_range(entered)

        return bench

    def _enter(self, kind: str, launcher: Any, name_of: Callable[[Any], str]) -> int:
        try:
            known = self._known.get(id(launcher))
            if known is None:
                known = self._known[id(launcher)] = launcher, f"{name_of(launcher)}#{next(_numbers)}"
            entered: int = self._native.enter_range(f"{kind}:{known[1]}")
            return entered
        except Exception as error:
            if is_of_the_program(error):
                raise
            self._failed(error)
            return 0

    def _leave(self, entered: int, launcher: Any, facts: Callable[[Any], dict[str, Any]]) -> None:
        self._native.leave_range(entered)
        try:
            if not entered or id(launcher) in self._described:
                return
            self._described.add(id(launcher))
            number = self._known[id(launcher)][1].rpartition("#")[2]
            self._write(f"launch:{number}", facts(launcher))
        except Exception as error:
            if is_of_the_program(error):
                raise
            self._failed(error)


def _name_of_inductor(autotuner: Any) -> str:
    name = (autotuner.inductor_meta or {}).get("kernel_name") or autotuner.fn.__name__
    return str(name)


def _name_of_user(function: Any) -> str:
    return str(getattr(function, "__name__", None) or function.fn.__name__)


def _name_of_benchmark(tuner: Any) -> str:
    if hasattr(tuner, "inductor_meta"):
        return _name_of_inductor(tuner)
    return _name_of_user(getattr(tuner, "base_fn", None) or tuner.fn)


def _facts_of_inductor(autotuner: Any) -> dict[str, Any]:
    launcher = (getattr(autotuner, "launchers", None) or [None])[0]
    config = getattr(launcher, "config", None)
    return {
        "file": getattr(autotuner, "filename", None),
        "configs": len(getattr(autotuner, "configs", None) or ()) or None,
        **_facts(launcher, config),
    }


def _facts_of_user(function: Any, compiled: Any) -> dict[str, Any]:
    code = getattr(getattr(function, "fn", None), "__code__", None)
    return {
        "defined_at": place_of(code) if code else None,
        **_facts(compiled, getattr(compiled, "metadata", None)),
    }


def _facts(launched: Any, config: Any) -> dict[str, Any]:
    """Registers, spills and warps; null where this Triton does not say."""
    sources = {
        "registers": (launched, "n_regs"),
        "spills": (launched, "n_spills"),
        "num_warps": (config, "num_warps"),
        "num_stages": (config, "num_stages"),
    }
    values = {name: getattr(owner, attribute, None) for name, (owner, attribute) in sources.items()}
    return {name: value if isinstance(value, int) else None for name, value in values.items()}
