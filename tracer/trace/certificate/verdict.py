"""Whether a recording is complete: one decision, for the closing summary and for every reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracer.trace.bytes.endings import DUMPED, KILLED, STOPPED, WRITTEN
from tracer.trace.certificate.counts import in_words

COMPILED_CODE = "code of torch.compile or AOTInductor ran, and its kernels are not recorded as hops"
NOT_JOINED = "a child Python was started with -I, -E or -S, or without its TRACER_JOIN, and is not recorded"
EXECUTED = "the process began another program (exec), which is not recorded"
_MOST_PATTERNS = 3
_HEADS = {
    KILLED: "killed, or ended without a stop",
    DUMPED: "a dump, made while the recording went on",
    WRITTEN: "still being written",
}


@dataclass(frozen=True)
class Evidence:
    """The known facts of a recording; the defaults describe a complete one."""

    recorded: int
    """Hops, CUDA calls and GPU activities in the trace"""
    only_ops: tuple[str, ...] = ()
    """The patterns of --ops; empty: every op was to be recorded"""
    no_steps: str | None = None
    """Why no requested step was recorded"""
    ended: str = STOPPED
    """STOPPED, KILLED (or ended by os._exit or exec), DUMPED while it went on, or still WRITTEN"""
    executed: bool = False
    """The process that tracer attached to has begun another program"""
    out_of_space: str | None = None
    max_size: int | None = None
    stopped_at_max_size: bool = False
    overwritten_hops: int = 0
    overwritten_calls: int = 0
    overwritten_activities: int = 0
    other_definitions: int = 0
    lost_hops: int = 0
    damaged_chunks: int = 0
    missing_chunks: int = 0
    missing_bytes: int = 0
    torn_events: int = 0
    lost_exits: int = 0
    unmatched_exits: int = 0
    undefined_hops: int = 0
    not_hooked: int = 0
    lost_entries: int = 0
    compiled_code: bool = False
    """Compiled code was called whose kernels are not recorded"""
    still_running: int = 0
    """Processes of the recording that still run after its end"""
    outlived: int = 0
    """Processes that were stopped, but after the end of the recording"""
    not_stopped: int = 0
    """Processes that ended without a stop"""
    replaced: int = 0
    """Programs that began another one in their process (exec), which joined"""
    not_joined: bool = False
    """A process started a Python that could not join"""
    cuda: tuple[str, ...] = ()
    """What is missing of CUDA, one clause each"""


@dataclass(frozen=True)
class Verdict:
    complete: bool
    missing: tuple[str, ...]
    """What the trace lacks, one clause each"""
    ended: str
    only_ops: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """`complete`, `complete of the ops that match --ops aten::mm`, `incomplete`, ..."""
        of = f" of {only_ops_in_words(self.only_ops)}" if self.only_ops else ""
        return _HEADS.get(self.ended, f"complete{of}" if self.complete else "incomplete")


def judge(evidence: Evidence) -> Verdict:
    """A recording is complete if it was stopped, has something in it, and lacks nothing that is known."""
    missing = (*_of_the_recording(evidence), *_of_processes(evidence), *_of_hops(evidence), *evidence.cuda)
    return Verdict(evidence.ended == STOPPED and not missing, missing, evidence.ended, evidence.only_ops)


def _of_the_recording(evidence: Evidence) -> list[str]:
    clauses = []
    if not evidence.recorded:
        none = "no op ran that matches --ops" if evidence.only_ops else "no op ran"
        clauses.append(f"nothing was recorded: {evidence.no_steps or none}")
    elif evidence.no_steps:
        clauses.append(evidence.no_steps)
    if evidence.executed:
        clauses.append(EXECUTED)
    if evidence.out_of_space:
        clauses.append(f"the recording stopped early: {evidence.out_of_space}")
    if evidence.stopped_at_max_size:
        clauses.append(f"the recording stopped at --max-size ({size_in_words(evidence.max_size)})")
    if evidence.compiled_code:
        clauses.append(COMPILED_CODE)
    overwritten = [
        in_words(count, *noun)
        for count, *noun in (
            (evidence.overwritten_hops, "hop"),
            (evidence.overwritten_calls, "CUDA call"),
            (evidence.overwritten_activities, "GPU activity", "GPU activities"),
        )
        if count
    ]
    if overwritten:
        size = size_in_words(evidence.max_size)
        clauses.append(f"{' and '.join(overwritten)} overwritten (--max-size {size} keeps the newest)")
    if evidence.other_definitions:
        times = in_words(evidence.other_definitions, "time")
        clauses.append(f"{times} the ring had no space for a string, source line or shape: shown as (other)")
    return clauses


def _of_processes(evidence: Evidence) -> list[str]:
    clauses = []
    if count := evidence.still_running:
        processes = in_words(count, "process still runs", "processes still run")
        clauses.append(f"{processes}; what {_they(count, 'does', 'do')} from now on is not recorded")
    if count := evidence.outlived:
        processes = in_words(count, "process", "processes")
        clauses.append(
            f"{processes} continued after the recording ended; "
            f"what {_they(count, 'did', 'did')} then is not recorded"
        )
    if evidence.not_stopped and evidence.ended == STOPPED:
        clauses.append(not_stopped_in_words(evidence.not_stopped))
    if evidence.replaced and evidence.ended == STOPPED:
        programs = in_words(evidence.replaced, "program")
        clauses.append(f"{programs} became another one (exec) without a stop")
    if evidence.not_joined:
        clauses.append(NOT_JOINED)
    return clauses


def _of_hops(evidence: Evidence) -> list[str]:
    return [
        f"{in_words(count, *noun.split('/'))} {text}"
        for count, noun, text in (
            (evidence.lost_hops, "hop", "not written (no memory, or the recording had ended)"),
            (evidence.damaged_chunks, "chunk", "damaged"),
            (evidence.missing_chunks, "chunk", "missing"),
            (evidence.missing_bytes, "byte", "missing at the end of the file"),
            (evidence.torn_events, "record", "incomplete"),
            (evidence.lost_exits, "hop", "without a recorded exit"),
            (evidence.unmatched_exits, "exit", "without a recorded enter"),
            (evidence.undefined_hops, "hop", "of an unknown op"),
            (evidence.not_hooked, "table entry/table entries", "not hooked"),
            (evidence.lost_entries, "table entry/table entries", "no longer hooked at the stop"),
        )
        if count
    ]


def only_ops_in_words(patterns: Sequence[str]) -> str:
    """`the ops that match --ops aten::mm, aten::add`"""
    shown = ", ".join(patterns[:_MOST_PATTERNS]) + ", ..." * (len(patterns) > _MOST_PATTERNS)
    return f"the ops that match --ops {shown}"


def no_steps_in_words(first: int, end: int | None, ended: int) -> str | None:
    """Why no step of first:end was recorded, if `ended` steps ended; None if some was."""
    if not ended:
        steps = f"{first}:{'' if end is None else end}"
        return f"no step ended, so steps {steps} were not recorded: call tracer.step() after each"
    if ended <= first:
        return f"step {first} was not reached: only {in_words(ended, 'step')} ended"
    return None


def other_signatures_in_words(operators: list[str]) -> str:
    """That these are recorded otherwise than the rest."""
    has = in_words(len(operators), "operator has", "operators have")
    names = ", ".join(operators[:5]) + (", ..." if len(operators) > 5 else "")
    return f"{has} another C++ signature than tracer was built for, so boxed hops record them: {names}"


def not_stopped_in_words(count: int) -> str:
    return f"{in_words(count, 'process', 'processes')} ended without a stop"


def size_in_words(size: int | None) -> str:
    """The size as the user gave it: 256M."""
    size = size or 0
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >> shift:
            return f"{size / (1 << shift):.4g}{unit}"
    return str(size)


def _they(count: int, singular: str, plural: str) -> str:
    return f"it {singular}" if count == 1 else f"they {plural}"
