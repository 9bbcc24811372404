"""The overrides of a recording: those that it switches on, and what is noted of all that were on."""

from __future__ import annotations

import sys
import traceback
from typing import Any

from tracer.base.errors import RecordingError
from tracer.recording.options import Options

_on: list[Any] = []  # entered `tracer.overrides.use` of this process's recording


def begin(options: Options) -> None:
    """Switch on the overrides of the options. torch is imported already; an override's module is now.

    Raises RecordingError where one cannot be switched on; none is on then.
    """
    if options.override:
        _switch_on(options.override)
    switch: Any = sys.modules.get("tracer.overrides.switch")  # otherwise its journal begins with its import
    if switch is not None:
        switch.begin_journal()


def end() -> list[dict[str, Any]]:
    """Write into the trace what was on, switch off what `begin` switched on, and return what was on."""
    switch: Any = sys.modules.get("tracer.overrides.switch")
    document = switch.write_journal() if switch is not None else None
    while _on:
        _on.pop().__exit__(None, None, None)
    return document["overrides"] if document else []


def _switch_on(names: list[str]) -> None:
    from tracer.overrides import OverrideError, use

    try:
        _on.append(use(*names).__enter__())
    except OverrideError as error:
        raise RecordingError(str(error)) from None
    except Exception as error:  # of the override's module
        traceback.print_exc()
        raise RecordingError(
            f"override {', '.join(names)} cannot be imported: {type(error).__name__}"
        ) from None
