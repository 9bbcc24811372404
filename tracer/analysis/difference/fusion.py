"""What fusing saved: the op calls of an eager run that the kernels of a compiled run took the place of."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.difference.times import Times


@dataclass(frozen=True)
class FusedOp:
    """Calls of one op at one line of the eager run.

    calls     of a step that count for the kernel: an op that two kernels compute is shared out by their runs
    by_line   no node has this op: its line alone says that the kernel replaced it
    """

    line: str
    text: str
    op: str
    calls: float
    by_line: bool


@dataclass(frozen=True)
class Cost:
    """Of a step on both sides; None: not known.

    calls      op calls before, runs of kernels (and op calls of compiled code) after
    launches   kernels on the GPU; None without a GPU
    bytes      read and written
    times      on the GPU for what ran there, else on the host
    """

    calls: tuple[float, float]
    launches: tuple[float, float] | None
    bytes: tuple[float | None, float | None]
    times: Times


@dataclass(frozen=True)
class FusedKernel:
    """A kernel of compiled code beside the op calls that it replaced.

    known   whether it is known what the kernel computes
    """

    name: str
    function: str | None
    backward: bool
    known: bool
    ops: list[FusedOp]
    cost: Cost


@dataclass(frozen=True)
class FusedLine:
    """One line, forward or backward: all of its op calls beside what compiled code spends on it.

    A kernel of several lines is shared out by the time that their ops took in the eager run.
    """

    line: str
    text: str
    backward: bool
    kernels: list[str]
    times: Times


@dataclass(frozen=True)
class FusedModule:
    """One nn.Module and those within it: op calls of the eager run beside what took their place.

    Compiled code does not say its module: a kernel is shared out by the time that each module's ops took in
    the eager run.
    """

    name: str
    times: Times


@dataclass(frozen=True)
class Fusion:
    """An eager and a compiled run compared, per step.

    eager_first   whether the trace named first is the eager one
    whole         whether a run counts as one step, since a trace has no steps
    fused, kept   costs of what kernels replaced, and of ops that compiled code still calls
    kernels       the most eager time first
    lines, modules    the largest change first
    own           median host time of the calls of compiled code in which neither kernel nor op ran, in ns
    unknown       kernels whose ops are not known
    bytes_unknown   kernels that `fused.bytes` leaves out, since one of the sides is not known
    hidden        calls of compiled code whose kernels are not recorded
    """

    eager_first: bool
    whole: bool
    on_gpu: bool
    fused: Cost
    kept: Cost
    kernels: list[FusedKernel]
    lines: list[FusedLine]
    modules: list[FusedModule]
    own: float | None
    unknown: int
    bytes_unknown: int
    hidden: int

    @property
    def slower(self) -> list[FusedLine]:
        """Lines that became slower by more than the noise of the steps."""
        return [line for line in self.lines if line.times.ratio and line.times.ratio.verdict == "slower"]
