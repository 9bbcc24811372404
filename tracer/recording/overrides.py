"""The overrides of a recording: those that it enables, and what it stores about all that were enabled."""

from __future__ import annotations

import sys
import traceback
from typing import Any

from tracer.base.errors import RecordingError
from tracer.recording.options import Options

_TRACER = sys.modules["tracer"]
_on: list[Any] = []  # entered `tracer.overrides.use` of this process's recording


def begin(options: Options) -> None:
    """Enable the overrides of the options and import their modules.

    Raises RecordingError if one cannot be enabled; then none is.
    """
    if options.override:
        _switch_on(options.override)
    switch = _switch()  # otherwise its journal begins with its import
    if switch is not None:
        switch.begin_journal()


def end() -> list[dict[str, Any]]:
    """Write into the trace which overrides were enabled, disable those of `begin`, and return them all."""
    switch = _switch()
    document = switch.write_journal() if switch is not None else None
    while _on:
        _on.pop().__exit__(None, None, None)
    return document["overrides"] if document else []


def _switch() -> Any:
    """The module that enables them if it is loaded, also if a script has taken it out of sys.modules."""
    return getattr(vars(_TRACER).get("overrides"), "switch", None)


def _switch_on(names: list[str]) -> None:
    from tracer.overrides import OverrideError, use

    try:
        _on.append(use(*names).__enter__())
    except OverrideError as error:
        raise RecordingError(str(error)) from None
    except Exception as error:  # of the override's module
        traceback.print_exc()
        raise RecordingError(f"cannot import override {', '.join(names)}: {type(error).__name__}") from None
