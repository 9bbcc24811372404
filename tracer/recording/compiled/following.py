"""Begins and ends to follow compiled code in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from tracer.base import torch_abi
from tracer.base.interrupts import is_of_the_program
from tracer.recording.compiled.breaks import Breaks
from tracer.recording.compiled.launches import Launches
from tracer.recording.compiled.phases import Phases
from tracer.recording.compiled.regions import Regions
from tracer.recording.compiled.wrapping import Make, Wrapped


class Following:
    """The wrapped functions of one recording, and what they tell.

    A wrapper calls torch's function with what it was given, and returns what that returns. An error of
    tracer's own is counted and dropped.
    """

    def __init__(
        self,
        native: ModuleType,
        write: Callable[[str, object], None],
        more: Iterable[tuple[str, str, Make]] = (),
    ) -> None:
        self.errors: list[str] = []
        self._native = native
        self._wrapped = Wrapped()
        self.breaks = Breaks()
        self.phases = Phases(native, self.breaks)
        self.regions = Regions(native, write, self._failed, self.phases.is_loading)
        launches = Launches(native, write, self._failed)
        wrappers = {
            "CompiledFxGraph.post_compile": self._post_compile,
            "compile_fx": self._compile_fx,
            "set_kernel_post_grad_provenance_tracing": self._provenance,
            "GraphCompileReason.__post_init__": self._graph_ended,
            "get_and_maybe_log_recompilation_reasons": self._guards_failed,
            "ChromiumEventLogger._log_timed_event": self._timed_event,
            "ChromiumEventLogger.log_instant_event": self._instant_event,
            "CachingAutotuner.run": launches.of_inductor,
            "CachingAutotuner.bench": launches.of_benchmark,
            "JITFunction.run": launches.of_user,
            "Autotuner._bench": launches.of_benchmark,
        }
        for module, paths in torch_abi.COMPILER_FUNCTIONS.items():
            for path in paths:
                self._wrapped.want(module, path, wrappers[path])
        for module, path, make in more:
            self._wrapped.want(module, path, make)

    def begin(self, note: bytes) -> None:
        self._native.follow_compiled(note, self.regions.describe, self._imported, self._wrapped.modules)
        self._tell(self.breaks.read_list)
        for name in self._wrapped.modules:
            self._imported(name)

    def end(self) -> None:
        """Put torch's functions back."""
        self._wrapped.restore()

    def document(self) -> dict[str, Any]:
        """What the certificate needs to know: what could not be followed."""
        return {
            "missing": sorted(self._wrapped.missing),
            "errors": self.errors,
            "breaks": self.breaks.document(),
        }

    def _imported(self, name: str) -> None:
        try:
            self._wrapped.imported(name)
        except Exception as error:
            if is_of_the_program(error):
                raise
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        if len(self.errors) < 20:
            self.errors.append(f"{type(error).__name__}: {error}")

    def _tell(self, tell: Callable[..., object], *arguments: object) -> None:
        try:
            tell(*arguments)
        except Exception as error:
            if is_of_the_program(error):
                raise
            self._failed(error)

    def _post_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def post_compile(*arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            self._tell(self.regions.made, arguments[0])
            return result

        return post_compile

    def _compile_fx(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_fx(*arguments: Any, **named: Any) -> Any:
            self._tell(self.regions.traced, arguments[0] if arguments else named.get("model_"))
            return original(*arguments, **named)

        return compile_fx

    def _provenance(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def provenance(*arguments: Any, **named: Any) -> Any:
            self._tell(self.regions.kernel_made, arguments, named)
            return original(*arguments, **named)

        return provenance

    def _graph_ended(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def post_init(reason: Any) -> None:
            original(reason)
            self._tell(self.breaks.graph_ended, reason)

        return post_init

    def _guards_failed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_recompilation_reasons(*arguments: Any, **named: Any) -> Any:
            reasons = original(*arguments, **named)
            self._tell(self.regions.guards_failed, reasons)
            return reasons

        return get_recompilation_reasons

    def _timed_event(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def log_timed_event(*arguments: Any, **named: Any) -> Any:
            self._tell(self.phases.event, arguments)
            return original(*arguments, **named)

        return log_timed_event

    def _instant_event(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def log_instant_event(*arguments: Any, **named: Any) -> Any:
            self._tell(self.regions.cache_said, arguments)
            return original(*arguments, **named)

        return log_instant_event


_current: Following | None = None
_lines: list[tuple[str, int]] = []


def begin(
    native: ModuleType,
    write: Callable[[str, object], None],
    note: bytes,
    more: Iterable[tuple[str, str, Make]] = (),
) -> None:
    """Begin to follow compiled code in this process. `note`: what its first call writes into the trace.

    `more`: other functions of torch that are replaced with those of the compiler, as for Wrapped.want().
    """
    global _current
    _lines.clear()
    _current = Following(native, write, more)
    _current.begin(note)


def end() -> dict[str, Any] | None:
    """Put torch's functions back; what the certificate of this process says of compiled code."""
    global _current, _lines
    following, _current = _current, None
    if following is None:
        return None
    following.end()
    _lines = sorted(following.regions.lines)
    return following.document()


def lines() -> list[tuple[str, int]]:
    """The lines that the recording which ended last names as the origins of kernels."""
    return _lines
