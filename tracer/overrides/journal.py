"""Which overrides were enabled during a recording: the document "overrides" of its trace.

    {"compiled_frames": frames that torch.compile had compiled at the end,
     "overrides": [one for each override, mode, operator and key:
        {"name", "mode", "operator", "key",
         "kernel": the Python kernel function as hops name it, or null,
         "registered_at": as hops have it, or null if another override replaced it,
         "from_ns", "to_ns": first and last, of CLOCK_MONOTONIC; to_ns null: still on,
         "times": how often it was switched on, once for what was on when the recording began,
         "ran": calls that it computed, "handed_over": {reason: calls}}]}

The counts are those of the process that wrote the document.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from tracer.base.build import loaded_native
from tracer.overrides.kernel_functions import Kernels
from tracer.overrides.registration import registered_at
from tracer.overrides.target import Target

DOCUMENT = "overrides"


class State(NamedTuple):
    """One enabled override; `on_top`: no other override replaces it."""

    name: str
    mode: str
    target: Target
    kernels: Kernels
    on_top: bool


@dataclass
class _Entry:
    state: State
    registered_at: str | None
    from_ns: int
    to_ns: int | None = None
    times: int = 0
    ran: int = 0
    handed_over: dict[str, int] = field(default_factory=dict)
    counted: tuple[int, dict[str, int]] | None = None
    """The counts at the last look; None: it is off"""

    def count(self) -> None:
        """Add what has come since the last look."""
        if self.counted is None or not self.state.on_top:
            return  # what its kernels count meanwhile is another entry's
        ran, handed_over = _counts(self.state)
        self.ran += max(ran - self.counted[0], 0)
        for reason, calls in handed_over.items():
            if (more := calls - self.counted[1].get(reason, 0)) > 0:
                self.handed_over[reason] = self.handed_over.get(reason, 0) + more
        self.counted = ran, handed_over

    def document(self) -> dict[str, object]:
        state = self.state
        return {
            "name": state.name,
            "mode": state.mode,
            "operator": state.target.operator,
            "key": state.target.key,
            "kernel": getattr(state.kernels, "kernel", None),
            "registered_at": self.registered_at,
            "from_ns": self.from_ns,
            "to_ns": self.to_ns,
            "times": self.times,
            "ran": self.ran,
            "handed_over": dict(self.handed_over),
        }


class _Journal:
    """What one recording writes of the overrides in one process."""

    def __init__(self) -> None:
        self._entries: dict[tuple, _Entry] = {}

    def change(self, states: list[State]) -> bool:
        """Returns whether there is something new."""
        now = time.monotonic_ns()
        on = {_key(state): state for state in states}
        for key, entry in self._entries.items():
            if entry.counted is not None and key not in on:
                entry.count()
                entry.counted, entry.to_ns = None, now
        known = len(self._entries)
        for key, state in on.items():
            entry = self._entries.get(key) or _Entry(state, _registered_at(state), now)
            self._entries[key] = entry
            if entry.counted is None:
                entry.counted, entry.to_ns = _counts(state), None
                entry.times += 1
        return len(self._entries) > known

    def fork(self) -> None:
        """In the child: what came before is the parent's."""
        on = {key: entry for key, entry in self._entries.items() if entry.counted is not None}
        now = time.monotonic_ns()
        self._entries = {
            key: _Entry(entry.state, entry.registered_at, now, times=1, counted=_counts(entry.state))
            for key, entry in on.items()
        }

    def document(self) -> dict[str, object] | None:
        """None where nothing was on."""
        if not self._entries:
            return None
        for entry in self._entries.values():
            entry.count()
        return {
            "compiled_frames": _compiled_frames(),
            "overrides": [entry.document() for entry in self._entries.values()],
        }


_journal = _Journal()


def begin(states: list[State]) -> None:
    """A recording begins: what came before is not in its document."""
    global _journal
    _journal = _Journal()
    _journal.change(states)


def changed(states: list[State]) -> None:
    """Note what is on now. In the trace at once, if it is new: the process may be killed."""
    if _journal.change(states):
        write()


def write() -> dict[str, object] | None:
    """Put the document into the trace of the recording that runs here, if one does, and return it."""
    document = _journal.document()
    native = loaded_native()
    if document and native is not None and native.recording() is not None:
        try:
            native.write_json(DOCUMENT, zlib.compress(json.dumps(document).encode()))
        except (OSError, RuntimeError):
            pass  # no space left, or the recording has just ended: its certificate says so
    return document


def _in_child() -> None:
    _journal.fork()


os.register_at_fork(after_in_child=_in_child)


def _key(state: State) -> tuple:
    # Another function that is registered under the name is another entry.
    return state.name, state.mode, state.target, state.on_top, id(state.kernels)


def _counts(state: State) -> tuple[int, dict[str, int]]:
    operator = state.target.operator
    return state.kernels.ran().get(operator, 0), dict(state.kernels.handed_over().get(operator, {}))


def _registered_at(state: State) -> str | None:
    return registered_at(state.target) if state.on_top else None


def _compiled_frames() -> int:
    utilities = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utilities, "counters", {})
    return int(counters["frames"]["ok"]) if "frames" in counters else 0
