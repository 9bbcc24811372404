"""The certificate: what was recorded, what was dropped and why, in one dictionary."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.contents import Contents
from tracer.trace.bytes.definitions import FORK_SERVER
from tracer.trace.bytes.endings import DUMPED, KILLED, STOPPED, WRITTEN
from tracer.trace.certificate import compiled
from tracer.trace.certificate.counts import count_in, in_words
from tracer.trace.certificate.cuda import CudaFindings
from tracer.trace.certificate.overrides import remarks_on
from tracer.trace.certificate.verdict import (
    Evidence,
    Verdict,
    judge,
    no_steps_in_words,
    not_stopped_in_words,
    other_signatures_in_words,
)

NOT_VISIBLE = (
    "Dispatcher::callBoxedForDispatchKey (OpOverload.decompose, OpOverload._op_dk, the Python dispatcher) "
    "bypasses the dispatch table: its own hop is not recorded, the hops inside it are",
    "kernels that the program took from the dispatcher (get_kernel) before the recording began "
    "bypass the dispatch table: calls of them are not recorded",
)
BELOW_PYTHON_DISPATCHER = (
    "{} that the Python dispatcher called, past the dispatch table: torch.export, make_fx, AOTAutograd (so "
    "torch.compile) and enable_python_dispatcher() use it. The hop at the key PythonDispatcher is there"
)
NO_MODULE = (
    "module is null if no nn.Module was being called. If code calls forward() or another method directly, "
    "that is not a call of the module: its ops have the module of the call around them"
)
CROSSING_RANGES = (
    "range is null for {} in two ranges that cross (the one that began first ended first) in one task: "
    "which of the two is meant is not known"
)
NO_GREENLETS = (
    "module is null in a thread from the moment that the program has set its own greenlet.settrace there: "
    "tracer no longer sees which greenlet runs"
)

OTHER_OPS = "ops that --ops left out ran unseen: their time counts as time outside ops, or of the op around"
BEFORE_ATTACHED = (
    "what had begun before tracer attached to the running program: op calls, modules, ranges, memory"
)
NO_MEMORY = "blocks of memory {}: this torch shows no calls of that allocator"
ALLOCATORS = {"cpu": "on the CPU", "reported": "on GPUs and other devices, and shared memory"}


@dataclass
class Findings:
    """What the reader counted while it put the hops together."""

    threads: int = 0
    hops: int = 0
    op_calls: int = 0
    open_hops: int = 0
    lost_exits: int = 0
    unmatched_exits: int = 0
    in_crossing_ranges: int = 0
    undefined_hops: int = 0
    python_dispatched: int = 0
    """Hops at the key PythonDispatcher: each calls one kernel without a hop"""
    unresolved_kernels: int = 0
    unresolved_why: tuple[str, ...] = ()
    clock_tick_ns: float | None = 1.0
    """Times are no finer than this; None: the clock was not calibrated"""
    cuda: CudaFindings | None = None
    compiled: compiled.CompiledFindings | None = None
    overrides: list[dict[str, Any]] = field(default_factory=list)
    whole: bool = True
    """Whether the whole file was read"""


def stated_certificates(recording: Contents) -> dict[int, dict[str, Any]]:
    """The certificates of the processes that were stopped."""
    documents = recording.definitions.documents
    return {
        process: document
        for process in _processes(recording)
        if isinstance(document := documents.get(process, {}).get("certificate"), dict)
    }


def build_certificate(recording: Contents, findings: Findings) -> dict[str, Any]:
    """Merges what the processes certified at their stop, the header and what the reader found.

    `complete` says whether all that ran is in the trace, `verdict` says so in one line, and `why` has a
    sentence for each thing that is missing or uncertain. `closed_in_order` maps each process number
    to whether it stopped in order, `not_stopped` lists those that ended otherwise, and `outlived` counts
    those that ran on after the recording had ended. `replaced` counts programs that became another one by
    exec, `not_joined` says whether a child Python was started that could not join.
    `only_ops` has the patterns of --ops: other ops ran unseen.
    `cuda` is absent where no process looked at CUDA, `overrides` where none was on.
    """
    header, losses = recording.header, recording.losses
    processes = _processes(recording)
    stated = stated_certificates(recording)
    root = stated.get(0, next(iter(stated.values()), {}))
    guards = [document["guards"] for document in stated.values() if _is(document, "guards", dict)]
    certificate: dict[str, Any] = {
        "complete": False,
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
        "python_dispatched": findings.python_dispatched,
        "chunks": recording.chunks,
        "damaged_chunks": losses.damaged_chunks,
        "missing_chunks": losses.missing_chunks,
        "missing_bytes": losses.missing_bytes,
        "dumped_ns": header.last_ns - header.start_ns if header.flags & fmt.DUMP else None,
        "max_size": header.max_bytes or None,
        "stopped_at_max_size": bool(header.flags & fmt.FULL),
        "overwritten_hops": header.overwritten_hops,
        "overwritten_calls": header.overwritten_calls,
        "overwritten_activities": header.overwritten_activities,
        "other_definitions": header.other_definitions,
        "steps": _steps(stated),
        "only_ops": _only_ops(recording),
        "torn_events": losses.torn_events,
        "closed_in_order": {process: process in stated for process in processes},
        "outlived": _outlived(stated, recording),
        "executed": bool(header.executed),
        "replaced": len(_replaced(recording)),
        "not_joined": any("not_joined" in of for of in recording.definitions.documents.values()),
        "not_stopped": _not_stopped(stated, recording),
        "out_of_space": _out_of_space(header, stated),
        "entries": max((count_in(d, "entries") for d in stated.values()), default=0),
        "hooked": max((count_in(d, "hooked") for d in stated.values()), default=0),
        "not_hooked": _union(stated, "not_hooked"),
        "lost_entries": _union(stated, "lost_entries"),
        "other_signatures": sorted(_operators(stated, "other_signatures")),
        "rearmed": sum(count_in(document, "rearmed") for document in stated.values()),
        "ns_per_hop": root["ns_per_hop"] if _is(root, "ns_per_hop", (int, float)) else None,
        "own_cost": {process: cost for process, d in stated.items() if (cost := d.get("own_cost"))},
        "call_sites": all(d.get("call_sites", False) is True for d in stated.values()),
        "guards": {
            name: all(guard.get(name) is True for guard in guards)
            for name in dict.fromkeys(name for guard in guards for name in guard)
        },
        "clock_known": findings.clock_tick_ns is not None,
        "clock_tick_ns": findings.clock_tick_ns,
        "unresolved_kernels": findings.unresolved_kernels,
        "not_visible": list(NOT_VISIBLE),
    }
    calls, all_of_them = compiled.compiled_calls(recording.definitions.documents, stated)
    certificate["compiled_calls"] = calls
    code = compiled.counted(findings.compiled, calls, stated)
    if code:
        certificate["compiled"] = code
    if code and code["calls_not_visible"]:
        certificate["not_visible"].insert(0, compiled.in_a_sentence(code, all_of_them))
    if findings.python_dispatched:
        kernels = in_words(findings.python_dispatched, "kernel")
        certificate["not_visible"].append(BELOW_PYTHON_DISPATCHER.format(kernels))
    certificate["attached"] = _attached(recording)
    certificate["not_visible"] += [BEFORE_ATTACHED] * certificate["attached"]
    certificate["not_visible"] += _memory_not_seen(stated)
    if any("modules" in document for document in stated.values()):
        certificate["modules"] = all(document.get("modules") is True for document in stated.values())
        certificate["not_visible"] += [NO_MODULE] * certificate["modules"]
        lost = any(document.get("greenlets_lost") is True for document in stated.values())
        certificate["not_visible"] += [NO_GREENLETS] * lost
    if findings.in_crossing_ranges:
        certificate["not_visible"].append(
            CROSSING_RANGES.format(in_words(findings.in_crossing_ranges, "hop"))
        )
    remarks = _remarks_on_source(recording, stated) + _remarks(certificate, recording.ended, findings)
    if findings.cuda:
        certificate["cuda"] = findings.cuda.counts
        remarks += findings.cuda.remarks
    if findings.overrides:
        certificate["overrides"] = findings.overrides
        remarks += remarks_on(findings.overrides)
    verdict = judge(_evidence(certificate, recording, findings))
    certificate["complete"] = verdict.complete
    certificate["verdict"] = _in_words(verdict, certificate["hops"], findings.python_dispatched)
    certificate["why"] = [*verdict.missing, *remarks]
    return certificate


def _attached(recording: Contents) -> bool:
    """Whether `tracer attach` began the recording while the program ran."""
    found = [documents.get("environment") for documents in recording.definitions.documents.values()]
    return any(isinstance(facts, dict) and facts.get("attached") is True for facts in found)


def _memory_not_seen(stated: dict[int, dict[str, Any]]) -> list[str]:
    """The allocators that were to be recorded, and whose calls were not found."""
    found = [document["memory"] for document in stated.values() if _is(document, "memory", dict)]
    wanted = [memory for memory in found if memory.get("wanted")]
    missing = [name for name in ALLOCATORS if any(memory.get(name) is False for memory in wanted)]
    return [NO_MEMORY.format(ALLOCATORS[name]) for name in missing]


def _in_words(verdict: Verdict, hops: int, hidden: int) -> str:
    until = {KILLED: " until then", DUMPED: " until then", WRITTEN: " so far"}.get(verdict.ended, "")
    missing = f"; {'; '.join(verdict.missing)}" if verdict.missing else ", nothing dropped"
    below = f"; {in_words(hidden, 'kernel')} below the Python dispatcher without a hop" if hidden else ""
    return f"{verdict.head}: {in_words(hops, 'hop')}{until}{missing}{below}"


def _evidence(certificate: dict[str, Any], recording: Contents, findings: Findings) -> Evidence:
    """The facts of the certificate, for the verdict."""
    cuda = findings.cuda
    in_gpu_tables = ("api_calls", "library_calls", "kernels", "memcpys", "memsets")
    recorded = certificate["hops"] + sum(cuda.counts.get(name, 0) for name in in_gpu_tables if cuda)
    no_steps = _no_steps(certificate["steps"])
    counted = (
        *("max_size", "stopped_at_max_size", "overwritten_hops", "overwritten_calls"),
        *("overwritten_activities", "other_definitions", "out_of_space", "lost_hops", "damaged_chunks"),
        *("missing_chunks", "missing_bytes", "torn_events", "lost_exits", "unmatched_exits"),
        *("undefined_hops", "outlived", "executed", "replaced", "not_joined"),
    )
    return Evidence(
        recorded=recorded if findings.whole else max(recorded, 1),
        only_ops=tuple(certificate["only_ops"]),
        ended=recording.ended,
        compiled_code=bool(certificate.get("compiled", {}).get("calls_not_visible")),
        not_hooked=len(certificate["not_hooked"]),
        lost_entries=len(certificate["lost_entries"]),
        not_stopped=len(certificate["not_stopped"]),
        no_steps=no_steps,
        cuda=tuple(cuda.dropped) if cuda else (),
        **{name: certificate[name] for name in counted},
    )


def _not_stopped(stated: dict[int, dict[str, Any]], recording: Contents) -> list[int]:
    """The processes that ended without a stop, except a fork server, which runs no ops."""
    replaced = _replaced(recording)
    return [
        process
        for process in _processes(recording)
        if process not in stated
        and process not in replaced
        and not _still_runs(recording, process)
        and not (process == 0 and recording.header.executed)
        and not _is_fork_server(recording, process)
    ]


def _outlived(stated: dict[int, dict[str, Any]], recording: Contents) -> int:
    """How many processes continued after the recording had ended."""
    replaced = _replaced(recording)
    return sum(
        process not in replaced
        and (stated.get(process, {}).get("outlived") is True or _still_runs(recording, process))
        and not _is_fork_server(recording, process)
        for process in _processes(recording)
    )


def _replaced(recording: Contents) -> set[int]:
    """The programs whose process joined once more, as another one (exec)."""
    processes = recording.definitions.processes.values()
    last: dict[tuple[int, int], int] = {}
    for known in processes:
        if known.how == "joined":
            place = known.pid, known.parent_pid
            last[place] = max(last.get(place, 0), known.process)
    return {one.process for one in processes if one.process < last.get((one.pid, one.parent_pid), 0)}


def _still_runs(recording: Contents, process: int) -> bool:
    pid = recording.pids.get(process)
    if process == 0 and recording.header.executed:
        return False
    return recording.written and recording.ended == STOPPED and os.path.exists(f"/proc/{pid}")


def _processes(recording: Contents) -> list[int]:
    return sorted(recording.pids.keys() | recording.definitions.processes.keys())


def _is_fork_server(recording: Contents, process: int) -> bool:
    """Whether it is multiprocessing's fork server, not a child of it: those have the same command."""
    known = recording.definitions.processes.get(process)
    if known is None or known.how != "joined" or FORK_SERVER not in known.command:
        return False
    others = recording.definitions.processes.values()
    return any(o.pid == known.parent_pid and FORK_SERVER not in o.command for o in others)


def _only_ops(recording: Contents) -> list[str]:
    """The patterns of --ops; empty: every op was to be recorded."""
    documents = recording.definitions.documents.values()
    options = (of.get("environment", {}).get("options", {}) for of in documents)
    return next((ops for given in options if (ops := given.get("ops"))), [])


def _remarks(certificate: dict[str, Any], ended: str, findings: Findings) -> list[str]:
    """What is uncertain, although no hop is lost."""
    lines = []
    closed = certificate["closed_in_order"]
    not_stopped = certificate["not_stopped"]
    if not_stopped and ended not in (STOPPED, DUMPED):  # the verdict says so; of a dump, they went on
        names = ", ".join(map(str, not_stopped))
        lines.append(f"{not_stopped_in_words(len(not_stopped))}: {names}")
    if any(closed.values()) and not certificate["call_sites"]:
        lines.append("return addresses were not classified: kind is derived from the enclosing hop alone")
    if others := certificate["other_signatures"]:
        lines.append(other_signatures_in_words(others))
    lines += _remarks_on_steps(certificate["steps"])
    for name, works in certificate["guards"].items():
        if not works:
            lines.append(f"tracer could not set its guard of {name}")
    if findings.clock_tick_ns is None:
        lines.append("the clock was not calibrated: times are in ticks, not in nanoseconds")
    if certificate["only_ops"]:
        lines.append(OTHER_OPS)
    if certificate["unresolved_kernels"]:
        unresolved = in_words(certificate["unresolved_kernels"], "kernel function")
        reasons = "; ".join(findings.unresolved_why)
        lines.append(f"{unresolved} without a name" + (f": {reasons}" if reasons else ""))
    return lines


def _remarks_on_source(recording: Contents, stated: dict[int, dict[str, Any]]) -> list[str]:
    """Why requested source lines are missing."""
    unknown = any(document.get("source_lines") is False for document in stated.values())
    if not unknown or not recording.header.flags & fmt.SOURCE:
        return []
    environments = (documents.get("environment") for documents in recording.definitions.documents.values())
    versions = (document.get("python") for document in environments if isinstance(document, dict))
    python = next((f"Python {version}" for version in versions if isinstance(version, str)), "that Python")
    return [f"no source lines recorded: tracer did not know the frames of {python}"]


def _steps(stated: dict[int, dict[str, Any]]) -> dict[str, Any] | None:
    """The steps document of the first process that recorded only some steps."""
    documents = [document["steps"] for document in stated.values() if _is(document, "steps", dict)]
    return next((steps for steps in documents if _is(steps, "wanted", list)), None)


def _remarks_on_steps(steps: dict[str, Any] | None) -> list[str]:
    if steps is None:
        return []
    if _no_steps(steps):
        return []
    first, end = _wanted(steps)
    wanted = f"{first}:{'' if end is None else end}"
    ended = in_words(count_in(steps, "ended"), "step")
    return [
        f"only steps {wanted} were recorded (--steps); {ended} ended, counted by {steps.get('counted_by')}"
    ]


def _no_steps(steps: dict[str, Any] | None) -> str | None:
    return no_steps_in_words(*_wanted(steps), count_in(steps, "ended")) if steps else None


def _wanted(steps: dict[str, Any]) -> tuple[int, int | None]:
    first, end = (*steps["wanted"], None, None)[:2]
    return first if isinstance(first, int) else 0, end if isinstance(end, int) else None


def _out_of_space(header: fmt.FileHeader, stated: dict[int, dict[str, Any]]) -> str | None:
    for document in stated.values():
        if _is(document, "out_of_space", str):
            return str(document["out_of_space"])
    if header.state == fmt.OUT_OF_SPACE:
        return os.strerror(header.error_number) if header.error_number else "no space"
    return None


def _union(stated: dict[int, dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The entries of all processes without repeats: forked processes repeat those of their parent."""
    entries: dict[str, dict[str, Any]] = {}
    for document in stated.values():
        for entry in document[name] if _is(document, name, list) else []:
            if isinstance(entry, dict):
                entries.setdefault(repr(sorted(entry.items())), entry)
    return list(entries.values())


def _operators(stated: dict[int, dict[str, Any]], name: str) -> set[str]:
    return {op for document in stated.values() if _is(document, name, list) for op in document[name]}


def _is(document: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> bool:
    return isinstance(document.get(name), kind)
