"""What was captured, what was dropped and why, in one dictionary."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from tracer.trace import format as fmt
from tracer.trace.cuda_certificate import CudaFindings
from tracer.trace.overrides import remarks_on
from tracer.trace.reader import Recording
from tracer.trace.statements import count_in, in_words

NOT_VISIBLE = (
    "Dispatcher::callBoxedForDispatchKey (OpOverload.decompose, OpOverload._op_dk) reads kernels "
    "past the dispatch table: the hop itself is not seen, hops nested in it are",
    "kernels that were taken from the dispatcher (get_kernel) before the recording began are "
    "called past the dispatch table",
)
NO_MODULE = (
    "module is null where no nn.Module was being called; a module's forward() and other methods that "
    "are called as such are no calls of it: what they run has the module of the call around them"
)


@dataclass
class Findings:
    """What the reader counted while it put the hops together."""

    threads: int = 0
    hops: int = 0
    op_calls: int = 0
    open_hops: int = 0
    lost_exits: int = 0
    unmatched_exits: int = 0
    undefined_hops: int = 0
    unresolved_kernels: int = 0
    unresolved_why: tuple[str, ...] = ()
    clock_known: bool = True
    cuda: CudaFindings | None = None
    overrides: list[dict[str, Any]] = field(default_factory=list)


def stated_certificates(recording: Recording) -> dict[int, dict[str, Any]]:
    """What each process that stopped in order certified."""
    documents = recording.definitions.documents
    return {
        process: document
        for process in sorted(recording.pids.keys() | recording.definitions.processes.keys())
        if isinstance(document := documents.get(process, {}).get("certificate"), dict)
    }


def build_certificate(recording: Recording, findings: Findings) -> dict[str, Any]:
    """Merges what the processes certified at their stop, the header and what the reader found.

    `closed_in_order` maps each process number to whether it stopped in order; `why` has a
    sentence for each thing that is not complete; `verdict` is one line. `cuda` is absent where
    no process looked at CUDA, `overrides` where none was on.
    """
    header, losses = recording.header, recording.losses
    processes = sorted(recording.pids.keys() | recording.definitions.processes.keys())
    stated = stated_certificates(recording)
    root = stated.get(0, next(iter(stated.values()), {}))
    guards = [document["guards"] for document in stated.values() if _is(document, "guards", dict)]
    certificate: dict[str, Any] = {
        "verdict": "",
        "processes": len(processes),
        "threads": findings.threads,
        "hops": findings.hops,
        "op_calls": findings.op_calls,
        "open_hops": findings.open_hops,
        "lost_hops": max(header.lost_hops, sum(count_in(d, "lost_hops") for d in stated.values())),
        "lost_exits": findings.lost_exits,
        "unmatched_exits": findings.unmatched_exits,
        "undefined_hops": findings.undefined_hops,
        "chunks": recording.chunks,
        "damaged_chunks": losses.damaged_chunks,
        "missing_chunks": losses.missing_chunks,
        "missing_bytes": losses.missing_bytes,
        "max_size": header.max_bytes or None,
        "stopped_at_max_size": bool(header.flags & fmt.FULL),
        "overwritten_hops": header.overwritten_hops,
        "overwritten_calls": header.overwritten_calls,
        "overwritten_activities": header.overwritten_activities,
        "other_definitions": header.other_definitions,
        "steps": _steps(stated),
        "torn_events": losses.torn_events,
        "closed_in_order": {process: process in stated for process in processes},
        "out_of_space": _out_of_space(header, stated),
        "entries": max((count_in(d, "entries") for d in stated.values()), default=0),
        "hooked": max((count_in(d, "hooked") for d in stated.values()), default=0),
        "not_hooked": _union(stated, "not_hooked"),
        "lost_entries": _union(stated, "lost_entries"),
        "rearmed": sum(count_in(document, "rearmed") for document in stated.values()),
        "ns_per_hop": root["ns_per_hop"] if _is(root, "ns_per_hop", (int, float)) else None,
        "call_sites": all(d.get("call_sites", False) is True for d in stated.values()),
        "guards": {
            name: all(guard.get(name) is True for guard in guards)
            for name in dict.fromkeys(name for guard in guards for name in guard)
        },
        "clock_known": findings.clock_known,
        "unresolved_kernels": findings.unresolved_kernels,
        "not_visible": list(NOT_VISIBLE),
    }
    if any("modules" in document for document in stated.values()):
        certificate["modules"] = all(document.get("modules") is True for document in stated.values())
        certificate["not_visible"] += [NO_MODULE] * certificate["modules"]
    dropped = _dropped(certificate)
    remarks = _remarks_on_source(recording, stated) + _remarks(certificate, findings)
    if findings.cuda:
        certificate["cuda"] = findings.cuda.counts
        dropped += findings.cuda.dropped
        remarks += findings.cuda.remarks
    if findings.overrides:
        certificate["overrides"] = findings.overrides
        remarks += remarks_on(findings.overrides)
    certificate["why"] = dropped + remarks
    certificate["verdict"] = _verdict(certificate, dropped)
    return certificate


def _verdict(certificate: dict[str, Any], dropped: list[str]) -> str:
    hops = in_words(certificate["hops"], "hop")
    if dropped:
        return f"{hops}; dropped: {'; '.join(dropped)}"
    killed = sum(not closed for closed in certificate["closed_in_order"].values())
    if killed:
        return f"complete: {hops}, nothing dropped; {_not_stopped(killed)}"
    return f"complete: {hops}, nothing dropped"


def _dropped(certificate: dict[str, Any]) -> list[str]:
    """What is not in the hops, a clause each."""
    lines = []
    if certificate["out_of_space"]:
        lines.append(f"what ran after the recording had stopped early ({certificate['out_of_space']})")
    if certificate["stopped_at_max_size"]:
        lines.append(f"what ran after the file had reached {_size(certificate['max_size'])} (--max-size)")
    overwritten = [
        in_words(certificate[f"overwritten_{name}"], singular, plural)
        for name, singular, plural in (
            ("hops", "hop", ""),
            ("calls", "CUDA call", ""),
            ("activities", "GPU activity", "GPU activities"),
        )
        if certificate[f"overwritten_{name}"]
    ]
    if overwritten:
        size = _size(certificate["max_size"])
        lines.append(f"{' and '.join(overwritten)} overwritten (--max-size {size} keeps the newest)")
    if certificate["lost_hops"]:
        lines.append(f"{in_words(certificate['lost_hops'], 'hop')} not written (no memory)")
    for name, singular, text in (
        ("damaged_chunks", "chunk", "damaged"),
        ("missing_chunks", "chunk", "missing"),
        ("missing_bytes", "byte", "cut off the end of the file"),
        ("torn_events", "record", "not whole"),
        ("lost_exits", "hop", "without their exit"),
        ("unmatched_exits", "exit", "without their enter"),
        ("undefined_hops", "hop", "of an unknown op"),
    ):
        if certificate[name]:
            lines.append(f"{in_words(certificate[name], singular)} {text}")
    if certificate["not_hooked"]:
        lines.append(f"{_entries(certificate['not_hooked'])} not hooked")
    if certificate["lost_entries"]:
        lines.append(f"{_entries(certificate['lost_entries'])} found unhooked at the stop")
    return lines


def _remarks(certificate: dict[str, Any], findings: Findings) -> list[str]:
    """What is uncertain without a hop being lost."""
    lines = []
    closed = certificate["closed_in_order"]
    if not all(closed.values()):
        killed = ", ".join(str(process) for process, stopped in closed.items() if not stopped)
        lines.append(f"{_not_stopped(sum(not stop for stop in closed.values()))}: {killed}")
    if any(closed.values()) and not certificate["call_sites"]:
        lines.append("return addresses were not classified: kind goes by the enclosing hop alone")
    if certificate["other_definitions"]:
        times = in_words(certificate["other_definitions"], "time")
        lines.append(f"{times} there was no space in the ring for a string, source line or shape: (other)")
    lines += _remarks_on_steps(certificate["steps"])
    for name, works in certificate["guards"].items():
        if not works:
            lines.append(f"the guard of {name} could not be set")
    if not findings.clock_known:
        lines.append("the clock was not calibrated: times are in ticks, not in nanoseconds")
    if certificate["unresolved_kernels"]:
        unresolved = in_words(certificate["unresolved_kernels"], "kernel function")
        reasons = "; ".join(findings.unresolved_why)
        lines.append(f"{unresolved} without a name" + (f": {reasons}" if reasons else ""))
    return lines


def _remarks_on_source(recording: Recording, stated: dict[int, dict[str, Any]]) -> list[str]:
    """Why lines that were asked for are not there."""
    unknown = any(document.get("source_lines") is False for document in stated.values())
    if not unknown or not recording.header.flags & fmt.SOURCE:
        return []
    environments = (documents.get("environment") for documents in recording.definitions.documents.values())
    versions = (document.get("python") for document in environments if isinstance(document, dict))
    python = next((f"Python {version}" for version in versions if isinstance(version, str)), "its Python")
    return [f"no source lines were recorded: tracer did not know how {python} keeps its frames"]


def _steps(stated: dict[int, dict[str, Any]]) -> dict[str, Any] | None:
    """What the first process that was told which steps to record says of them."""
    documents = [document["steps"] for document in stated.values() if _is(document, "steps", dict)]
    return next((steps for steps in documents if _is(steps, "wanted", list)), None)


def _remarks_on_steps(steps: dict[str, Any] | None) -> list[str]:
    if steps is None:
        return []
    first, end = (*steps["wanted"], None, None)[:2]
    wanted = f"{first}:{'' if end is None else end}"
    ended = in_words(count_in(steps, "ended"), "step")
    by = steps.get("counted_by")
    if not by:
        return [f"no step ended, so that there are no steps {wanted}: call tracer.step() after each"]
    return [f"only steps {wanted} were recorded (--steps), of {ended} counted by {by}"]


def _size(size: int | None) -> str:
    """As it was asked for: 256M."""
    size = size or 0
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >> shift:
            return f"{size / (1 << shift):.4g}{unit}"
    return str(size)


def _out_of_space(header: fmt.FileHeader, stated: dict[int, dict[str, Any]]) -> str | None:
    for document in stated.values():
        if _is(document, "out_of_space", str):
            return str(document["out_of_space"])
    if header.state == fmt.OUT_OF_SPACE:
        return os.strerror(header.error_number) if header.error_number else "no space"
    return None


def _union(stated: dict[int, dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The entries of all processes, each once: forked processes repeat those of their parent."""
    entries: dict[str, dict[str, Any]] = {}
    for document in stated.values():
        for entry in document[name] if _is(document, name, list) else []:
            if isinstance(entry, dict):
                entries.setdefault(repr(sorted(entry.items())), entry)
    return list(entries.values())


def _is(document: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> bool:
    return isinstance(document.get(name), kind)


def _entries(entries: list[dict[str, Any]]) -> str:
    return in_words(len(entries), "table entry", "table entries")


def _not_stopped(count: int) -> str:
    return f"{in_words(count, 'process', 'processes')} did not stop in order"
