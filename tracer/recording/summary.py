"""The closing summary of a recording."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracer.base.quoting import quoted
from tracer.base.visible import visible
from tracer.trace.certificate.counts import in_words
from tracer.trace.certificate.verdict import Evidence, Verdict, judge, no_steps_in_words

_WIDTH = 80


@dataclass(frozen=True)
class Summary:
    """The closed recording in figures.

    `api_calls` counts CUDA calls, `activities` kernels, copies and fills of GPUs. `size` is in bytes.
    `ns_per_hop` is the lower bound of what recording a hop costs, in nanoseconds, measured in a loop
    (None: not measured). `dropped` has one phrase for each kind of thing that the trace lacks.
    """

    path: str
    shown: str
    op_calls: int
    hops: int
    threads: int
    processes: int
    open_hops: int
    size: int
    api_calls: int
    activities: int
    ns_per_hop: float | None
    dropped: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    """One phrase for each enabled override: how often this process ran it"""
    steps: str = ""
    """Which steps were recorded; "" if all were"""
    head: str = "complete"

    @property
    def complete(self) -> bool:
        return not self.dropped

    @property
    def verdict(self) -> str:
        if self.dropped:
            return "incomplete: " + "; ".join(self.dropped)
        return f"{self.head}: nothing dropped"

    def text(self, colour: bool = False) -> str:
        """A few lines of at most 80 columns (except paths), each with its newline."""
        bold, warn, plain = ("\x1b[1m", "\x1b[33m", "\x1b[0m") if colour else ("", "", "")
        counts = (
            f"{in_words(self.op_calls, 'op call')}, {in_words(self.hops, 'hop')}, "
            f"{in_words(self.threads, 'thread')}, "
            f"{in_words(self.processes, 'process', 'processes')}, {_bytes(self.size)}"
        )
        lines = [f"tracer: {bold}{visible(self.shown)}{plain}", *_folded(counts)]
        if self.api_calls or self.activities:
            lines += _folded(
                f"{in_words(self.api_calls, 'CUDA call')}, "
                f"{in_words(self.activities, 'GPU activity', 'GPU activities')}"
            )
        if self.ns_per_hop is not None:
            lines.append(f"  cost: at least {self.ns_per_hop:.0f} ns per hop")
        if self.steps:
            lines += _folded(self.steps)
        for override in self.overrides:
            lines += _folded(override)
        if self.open_hops:
            lines.append(f"  {in_words(self.open_hops, 'hop')} still open at the end")
        mark = warn if self.dropped else ""
        lines += [f"{mark}{line}{plain if mark else ''}" for line in _folded(self.verdict)]
        name = visible(quoted(self.shown))
        if self.hops or self.api_calls or self.activities:
            tracer = _command()
            tree, report = f"{tracer} tree {name}", f"{tracer} report {name}"
            if len(f"  next: {tree}   or   {report}") <= 80:
                lines.append(f"  next: {bold}{tree}{plain}   or   {report}")
            else:
                lines += [f"  next: {bold}{tree}{plain}", f"    or: {report}"]
        return "\n".join(lines) + "\n"


def _command() -> str:
    """How the shell that began this calls tracer: an environment need not be activated."""
    # os.get_exec_path() imports warnings, which a program may have taken away.
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = any(os.access(os.path.join(folder, "tracer"), os.X_OK) for folder in folders)
    return "tracer" if found or not sys.executable else f"{quoted(sys.executable)} -m tracer"


def summary_of(
    shown: str,
    closed: dict,
    certificate: dict,
    overrides: list[dict],
    *,
    ops: Sequence[str] = (),
) -> Summary:
    """Makes the summary from what `close()` and `certificate()` of the extension returned.

    `ops`: the patterns of the operators that were hooked; empty: all.
    """
    judged = _judged(closed, certificate, ops)
    return Summary(
        path=closed["path"],
        shown=shown,
        op_calls=closed["op_calls"],
        hops=closed["hops"],
        threads=closed["threads"],
        processes=closed["processes"],
        open_hops=closed["open_hops"],
        size=closed["bytes"],
        api_calls=closed["api_calls"],
        activities=closed["activities"],
        ns_per_hop=certificate.get("ns_per_hop"),
        dropped=judged.missing,
        steps=_steps(certificate.get("steps")),
        overrides=tuple(_of_overrides(overrides)),
        head=judged.head,
    )


def summary_of_nothing(path: str, shown: str, outer: str) -> Summary:
    """The summary of a recording inside the one to `outer`, which has the hops of both."""
    why = (f"empty: this process was recorded to {outer}",)
    return Summary(path, shown, 0, 0, 0, 0, 0, 0, 0, 0, None, why)


def _of_overrides(documents: list[dict]) -> Iterator[str]:
    figures: dict[tuple[str, str], list[int]] = {}
    for document in documents:
        figure = figures.setdefault((document["name"], document["operator"]), [0, 0])
        figure[0] += document["ran"]
        figure[1] += sum(document["handed_over"].values())
    for (name, operator), (ran, handed_over) in figures.items():
        left = f", {in_words(handed_over, 'call')} handed over to stock" if handed_over else ""
        yield f"override {name}: {operator} {in_words(ran, 'call') if ran else 'never ran'}{left}"


def _judged(closed: dict, certificate: dict, ops: Sequence[str]) -> Verdict:
    no_steps = _no_steps(certificate.get("steps"))
    counted = (
        *("max_size", "overwritten_hops", "overwritten_calls", "overwritten_activities"),
        *("other_definitions", "lost_hops", "damaged_chunks", "compiled_code", "still_running"),
        *("not_stopped", "not_joined", "replaced"),
    )
    return judge(
        Evidence(
            recorded=closed["hops"] + closed["api_calls"] + closed["activities"],
            only_ops=tuple(ops),
            out_of_space=closed["error"],
            stopped_at_max_size=closed["full"],
            not_hooked=len(certificate.get("not_hooked", ())),
            lost_entries=len(certificate.get("lost_entries", ())),
            no_steps=no_steps,
            cuda=tuple(_dropped_of_cuda(certificate.get("cuda") or {})),
            **{name: closed[name] for name in counted},
        )
    )


def _no_steps(steps: dict | None) -> str | None:
    if not steps or not steps["wanted"]:
        return None
    first, end = steps["wanted"]
    return no_steps_in_words(first, end, steps["ended"])


def _steps(steps: dict | None) -> str:
    if not steps or not steps["wanted"] or _no_steps(steps):
        return ""
    first, end = steps["wanted"]
    return (
        f"recorded only steps {first}:{'' if end is None else end} ({in_words(steps['ended'], 'step')} ended)"
    )


def _dropped_of_cuda(cuda: dict) -> Iterator[str]:
    if cuda.get("state") in ("held", "failed"):
        yield f"no CUDA: {cuda['why']}"
    if cuda.get("dropped_activities"):
        yield f"{in_words(cuda['dropped_activities'], 'GPU activity', 'GPU activities')} dropped"
    missing = cuda.get("launches", 0) - (cuda.get("kernels", 0) - cuda.get("graph_kernels", 0))
    if missing > 0:
        yield f"{in_words(missing, 'kernel')} launched without a recorded end"


def _bytes(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    amount, unit = size / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if amount < 1000:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"


def _folded(text: str) -> list[str]:
    lines = [" "]
    for word in visible(text).split():
        if len(lines[-1]) + 1 + len(word) > _WIDTH and lines[-1].strip():
            lines.append("   ")
        lines[-1] += " " + word
    return lines
