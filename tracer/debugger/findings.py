"""The findings of a gdb session, for reports: stops, versions, and breakpoints that were never reached."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from tracer.trace.names.kernels import WRAPPER

_LONGEST_COMMAND = 200  # characters
_SYSTEM = ("libc.so", "libc-", "libm.so", "libstdc++", "ld-linux", "libpthread")
_CALLS = ("call", "boxed call")
_WORDS = {"call": "called", "boxed call": "called by torch.ops", "redispatch": "redispatched"}


@dataclass
class Findings:
    """The result of one session.

    `records` are the stops, as the part inside gdb writes them; `counts` how often each point was
    reached, recorded or not.
    """

    title: str
    command: list[str]
    python: str
    torch: str
    gdb: str
    level: str
    introduction: str = ""
    program: str = ""  # its text, where a session brings it
    records: list[dict[str, Any]] = field(default_factory=list)
    beside: list[dict[str, Any]] = field(default_factory=list)  # hops of a trace, the innermost first
    counts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    exit_status: int | None = None
    seconds_to_torch: float | None = None
    seconds: float = 0.0

    def json_lines(self) -> str:
        """JSON with one line per stop."""
        return "".join(json.dumps(record) + "\n" for record in self.records)


def command_line(command: Sequence[str]) -> str:
    """The command as a user types it, on one line, and cut if it is very long."""
    text = shlex.join(command).replace("\n", "\\n")
    return text if len(text) <= _LONGEST_COMMAND else text[:_LONGEST_COMMAND] + "..."


def level(records: list[dict[str, Any]], *, overlay: tuple[str, ...], stripped: bool) -> str:
    """How much gdb could see, named for the report."""
    lines = any(
        frame["file"] and not frame["library"].startswith(_SYSTEM)
        for record in records
        for frame in below_python(record["frames"])
    )
    if overlay:
        return f"overlay of {', '.join(overlay)}: file:line in the dispatch code of this torch"
    if lines:
        return "DWARF: file:line, arguments and locals in code that was built with -g"
    if stripped:
        return "exported symbols only: this torch is stripped, so kernel functions have no names"
    return "symbols: function names and tensor arguments, no file:line"


def below_python(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The native frames that the innermost frame of the Python interpreter called."""
    return list(takewhile(lambda frame: not frame["library"].startswith(("libpython", "python")), frames))


def missing(counts: dict[str, Any]) -> list[str]:
    """What was not recorded: children; stops beyond the limit; and for each breakpoint without a record, how
    often its operator ran, and by which path."""
    forks = counts.get("forks", 0)
    were = "1 forked child was" if forks == 1 else f"{forks:,} forked children were"
    said = [f"{were} not followed: only the script's first process was examined"] if forks else []
    for group in counts.get("groups", []):
        if group["counting"]:
            continue
        if group["left_out"]:
            said.append(
                f"{group['spec']}: {group['left_out']:,} more {_counted(group, counts)} not recorded; "
                "--limit 0 records all"
            )
        if group["errors"]:
            said.append(f"{group['spec']}: the condition failed: {group['errors'][0]}")
        if group["recorded"] or group["errors"]:
            continue
        if any(note.startswith(f"{group['spec']}: ") for note in counts["notes"]):
            continue  # it says why
        points = [point for point in counts["points"] if point["spec"] == group["spec"]]
        calls = [point for point in points if point["kind"] in _CALLS] if group["spec"].endswith("]") else []
        named = [point for point in points if point["kind"] != "boxed call"]
        reached = _path([point for point in points if point not in calls])
        if reached:
            said.append(f"{group['spec']}: no hit met the conditions, but it ran: {reached}")
        elif _path(calls):
            said.append(f"{group['spec']} was never reached; {_path(calls)}")
        elif named and all(point["pending"] for point in named):
            if points[0]["kind"] == "line":
                said.append(f"{group['spec']}: no loaded library has code at this line")
                continue
            said.append(f"{group['spec']} is not in any loaded library{_elsewhere(group['spec'], counts)}")
        else:
            said.append(f"{group['spec']} was never reached{_elsewhere(group['spec'], counts)}")
    return said


def _counted(group: dict[str, Any], counts: dict[str, Any]) -> str:
    """What a limit counts: op calls where the breakpoint is an operator's, else hits."""
    of_operator = any(point["op"] for point in counts["points"] if point["spec"] == group["spec"])
    singular = group["left_out"] == 1
    noun = "op call" if of_operator else "hit"
    return f"{noun} was" if singular else f"{noun}s were"


def _elsewhere(spec: str, counts: dict[str, Any]) -> str:
    """What ran instead of a function that was never reached: the paths of its operator."""
    companions = [group for group in counts["groups"] if group["counting"] == spec]
    specs = {group["spec"] for group in companions}
    points = [point for point in counts["points"] if point["spec"] in specs]
    operators = list(dict.fromkeys(point["op"] for point in points))
    texts = [_path([point for point in points if point["op"] == operator]) for operator in operators]
    ran = [text for text in texts if text]
    if ran or not operators:
        return "".join(f"; {text}" for text in ran)
    return f"; {operators[0].split('.')[0]} never ran"


def _path(points: list[dict[str, Any]]) -> str:
    """`aten::mm called 2 x, redispatched 2 x, torch::autograd::VariableType::mm 2 x, wrapper_CPU_mm 2 x`."""
    totals: dict[str, int] = {}
    for point in sorted(points, key=_order):
        if point["hits"]:
            name = _WORDS.get(
                point["kind"], point["name"] + (" (boxed)" if point["kind"] == "boxed kernel" else "")
            )
            totals[name] = totals.get(name, 0) + point["hits"]
    text = ", ".join(f"{name} {hits:,} x" for name, hits in totals.items())
    operator = next((point["op"] for point in points if point["op"]), "")
    return f"{operator} {text}".strip() if text else ""


def _order(point: dict[str, Any]) -> int:
    """Order along the dispatch path: the call, the keys above the backends, the backends' wrappers."""
    if point["kind"] in _WORDS:
        return list(_WORDS).index(point["kind"])
    return len(_WORDS) + point["name"].startswith(WRAPPER)
