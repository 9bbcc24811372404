"""Renders a gdb session as markdown; the facts come from Findings."""

from __future__ import annotations

import os
import re
from itertools import groupby, pairwise, takewhile
from typing import Any

from tracer.debugger.findings import Findings, below_python, command_line, missing
from tracer.report.cells import code, fenced, prose, table
from tracer.report.text import count


def render(findings: Findings) -> str:
    """The session as markdown, with one newline at its end."""
    shown = _with_bodies(findings.records)
    parts = [
        f"# {prose(findings.title)}",
        prose(findings.introduction) if findings.introduction else "",
        _facts(findings),
        *_program(findings.program),
        *_overview(shown),
        *(_stop(record, before, told) for record, before, told in _beside_the_stop_before(shown)),
        *_beside(findings),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(findings: Findings) -> str:
    lines = [
        f"- command: {code(command_line(findings.command))}",
        f"- seen with: {prose(findings.gdb)}, Python {prose(findings.python)}, torch {prose(findings.torch)}",
        f"- level: {prose(findings.level)}",
    ]
    if findings.seconds_to_torch is not None:
        lines.append(
            f"- time: {findings.seconds_to_torch:.1f} s to `import torch`, {findings.seconds:.1f} s in all"
        )
    lines.append(f"- stops: {count(len(findings.records), 'stop')} recorded; {_ended(findings.exit_status)}")
    if merged := len(findings.records) - len(_with_bodies(findings.records)):
        lines.append(
            f"- {count(merged, 'stop')} in the wrapper of a kernel shown with the next one, in its body"
        )
    lines += [f"- {prose(text)}" for text in [*missing(findings.counts), *findings.notes]]
    return "\n".join(lines)


def _ended(status: int | None) -> str:
    if status is None:
        return "the script was ended"
    if status < 0:
        return f"the script was killed by signal {-status}"
    return "the script ran to its end" if status == 0 else f"the script ended with status {status}"


def _installed(file: str) -> str:
    """A file of an installed package without the folder of the environment."""
    return re.sub(r"^.*/(?:site|dist)-packages/", "", file)


def _program(text: str) -> list[str]:
    return ["## Program", fenced(text.splitlines(), "python")] if text else []


def _overview(records: list[dict[str, Any]]) -> list[str]:
    if not records:
        return []
    several = len({record["spec"] for record in records}) > 1
    threads = len({record["thread"] for record in records}) > 1
    titles = [
        *("stop:", *(["breakpoint"] if several else []), *(["thread"] if threads else [])),
        *("kind", "op [key]", "function", "Python line"),
    ]
    rows = [
        [
            str(record["stop"]),
            *([code(record["spec"])] if several else []),
            *([str(record["thread"])] if threads else []),
            record["kind"],
            code(_what(record)),
            code(_function(record)),
            code(_python_line(record)),
        ]
        for record in records
    ]
    return ["## Stops", table(titles, rows)]


def _what(record: dict[str, Any]) -> str:
    if record["op"] is None:
        return ""
    return f"{record['op']} [{record['key']}]" if record["key"] else record["op"]


def _function(record: dict[str, Any]) -> str:
    return record["function"] or (record["frames"][0]["function"] if record["frames"] else "?")


def _python_line(record: dict[str, Any]) -> str:
    if not record["python"]:
        return ""
    outside = [frame for frame in record["python"] if "/torch/" not in frame[0]]
    file, _, line = (outside or record["python"])[0]
    return f"{os.path.basename(file)}:{line}"


FEWEST_FOLDED = 4  # frames that are worth a line of their own


def _with_bodies(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A stop in a kernel's wrapper and the next one, in its body, as one with the place of the body."""
    shown: list[dict[str, Any]] = []
    for record in records:
        before = shown[-1] if shown else None
        if before and record["kind"] == "body" and before["kind"] == "kernel" and _same_call(before, record):
            shown[-1] = {**record, "kind": "kernel", "key": before["key"]}
        else:
            shown.append(record)
    return shown


def _same_call(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one["op"], one["thread"], _function(one)) == (other["op"], other["thread"], _function(other))


def _beside_the_stop_before(records: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int, bool]]:
    """Each stop, how many outer frames it shares with the stop before, and if its arguments are the same.

    The last stop shares none: it shows all.
    """
    shared = [(0, False)]
    for before, record in pairwise(records):
        same = zip(
            reversed(below_python(before["frames"])), reversed(below_python(record["frames"])), strict=False
        )
        frames = sum(1 for _ in takewhile(lambda pair: _place(pair[0]) == _place(pair[1]), same))
        beside = before["thread"] == record["thread"] and before["python"] == record["python"]
        told = beside and bool(record["arguments"]) and record["arguments"] == before["arguments"]
        shared.append((frames if beside and frames >= FEWEST_FOLDED else 0, told))
    shared[len(records) - 1 :] = [(0, False)]
    return [(record, *before) for record, before in zip(records, shared, strict=False)]


def _place(frame: dict[str, Any]) -> tuple[Any, ...]:
    return frame["function"], frame["file"], frame["line"], frame["library"], frame["offset"]


def _stop(record: dict[str, Any], frames_before: int, arguments_told: bool) -> str:
    parts = [f"## Stop {record['stop']}: {code(_function(record))}"]
    place = f", {prose(os.path.basename(record['file']))}:{record['line']}" if record["file"] else ""
    thread = f"thread {record['thread']} {record['thread_name'] or ''}".strip()
    what = f"{code(_what(record))}, " if record["op"] else ""
    parts.append(f"{what}{_hit(record)}{place}, {prose(thread)}")
    values = [("argument", value) for value in ([] if arguments_told else record["arguments"])]
    values += [("local", value) for value in record["locals"] if not _is_unset(value)]
    unset = [value for value in record["locals"] if _is_unset(value)]
    if arguments_told:
        parts.append("Arguments as at the stop before")
    if values:
        rows = [
            [kind, code(value["name"]), code(value["type"]), _value(value["value"])] for kind, value in values
        ]
        parts.append(table(["", "name", "type", "value"], rows))
    if unset:
        names = ", ".join(f"{code(value['name'])} (line {value['value']['unset']})" for value in unset)
        parts.append(f"Locals that are not set yet: {names}")
    parts.append(fenced(_backtrace(record, frames_before)))
    return "\n\n".join(parts)


def _is_unset(local: dict[str, Any]) -> bool:
    """Whether the code of its declaration has not run."""
    return isinstance(local["value"], dict) and "unset" in local["value"]


def _hit(record: dict[str, Any]) -> str:
    wanted = record["spec"].rpartition(":")[2]
    if record["kind"] == "line" and wanted.isdigit() and record["line"] != int(wanted):
        return f"hit {record['hit']} of this line, the next one with code after {wanted}"
    moved = {"step": "after a step", "end": "at the end of the op call"}
    return moved.get(record["kind"]) or f"hit {record['hit']} of this function"


def _backtrace(record: dict[str, Any], frames_before: int) -> list[str]:
    frames = record["frames"]
    inside = below_python(frames)
    rest = len(frames) - len(inside)
    lines = []
    if frames_before:
        inside = inside[:-frames_before]
    for folded, numbered in groupby(enumerate(inside), lambda each: each[1]["plumbing"]):
        run = list(numbered)
        if folded and (len(run) > 1 or run[0][1]["wrapper"]):
            lines.append(f"     ... {count(len(run), 'frame')} of the dispatcher")
        else:
            lines += [_frame(level, frame) for level, frame in run]
    if frames_before:
        return [
            *lines,
            f"     ... {count(frames_before, 'frame')} and the Python stack as at the stop before",
        ]
    if rest:
        lines.append(f"     ... {count(rest, 'frame')} of the Python interpreter")
    lines += [f"py   {_installed(file)}:{line}  {function}" for file, function, line in record["python"]]
    return lines


def _beside(findings: Findings) -> list[str]:
    """The hops of a trace next to the frames that run them, the innermost first."""
    if not findings.beside or not findings.records:
        return []
    left = list(findings.beside)
    rows = []
    for level, frame in enumerate(below_python(findings.records[-1]["frames"])):
        hop = left.pop(0) if left and frame["wrapper"] and frame["function"] == left[0]["kernel"] else None
        shown = f"{hop['id']}: {hop['op']} [{hop['key']}]" if hop else ""
        rows.append([str(level), code(frame["function"] or frame["library"]), code(shown)])
    rows += [["", "", code(f"{hop['id']}: {hop['op']} [{hop['key']}]")] for hop in left]
    return ["## Trace and gdb side by side", table(["frame:", "gdb", "hop of the trace"], rows)]


def _frame(level: int, frame: dict[str, Any]) -> str:
    name = frame["function"] or f"{frame['library']}+{frame['offset']:#x}"
    marks = [
        mark
        for mark, shown in (
            ("wrapper", frame["wrapper"]),
            ("inlined", frame["inline"]),
            ("tail call", frame["tail_call"]),
        )
        if shown
    ]
    marked = f" [{','.join(marks)}]" if marks else ""
    place = f"{os.path.basename(frame['file'])}:{frame['line']}" if frame["file"] else frame["library"]
    return f"#{level:<3} {name}{marked}  {place}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        shown = [_value(each) for each in value[:8]]
        return f"[{', '.join(shown)}{', ...' if len(value) > 8 else ''}]"
    if not isinstance(value, dict):
        return "none" if value is None else code(value)
    if "defined" in value:
        return _tensor(value)
    if "text" in value:
        return code(value["text"])
    if "keys" in value:
        return code(", ".join(value["keys"]))
    if "address" in value:
        return code(hex(value["address"]))
    if "count" in value:
        return f"{value['count']} elements"
    return f"not read: {prose(value['why'])}" if value.get("why") else "not read"


def _tensor(tensor: dict[str, Any]) -> str:
    if not tensor["defined"]:
        return "undefined tensor"
    shape = "?" if tensor["shape"] is None else "x".join(map(str, tensor["shape"])) or "scalar"
    stride = "" if tensor["stride"] is None else f", stride ({', '.join(map(str, tensor['stride']))})"
    keys = f", keys {' '.join(tensor['keys'])}" if tensor["keys"] else ""
    return code(f"{shape} {tensor['dtype']} {tensor['device']}{stride}{keys}")
