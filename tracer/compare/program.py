"""Runs a script with stock kernels and with overrides: in turns, each in its own recorded process."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import polars as pl

from tracer.analysis.inputs_text import signature_texts
from tracer.base.interpreter import own_command
from tracer.compare.accuracy import Deviation
from tracer.compare.call_memory import Memory
from tracer.compare.chains import ChainTables
from tracer.compare.measurement import Watching
from tracer.compare.model import Chains, Timing
from tracer.compare.roof import Limit
from tracer.compare.sides import Key, OfCalls, Side, side_of
from tracer.compare.switch import forced
from tracer.compare.timing import Samples
from tracer.compare.trials import Trials
from tracer.overrides import builtin
from tracer.overrides import names as given_names
from tracer.trace import Trace, TraceError, load

_SHOWN_OF_STDERR = 15


class ProgramError(Exception):
    """The message is one line for the user."""


@dataclass(frozen=True)
class Alone:
    """A call of a script made again alone, with random values: stock's figures, then the override's.

    errors   from float64, of the result that is the furthest off; None if unknown
    memory   what a call allocates; None if unknown
    limit    the least time that the device allows; None if unknown
    why      it was not made again; "" if it was
    wrong    what is wrong with the override's results, in a phrase; "" if nothing is
    """

    errors: tuple[Deviation | None, Deviation | None] = (None, None)
    memory: tuple[Memory | None, Memory | None] = (None, None)
    limit: Limit | None = None
    why: str = ""
    wrong: str = ""


class MakesAgain(Protocol):
    """Makes op calls of a trace again, with stock and with the overrides, and trials with them."""

    def __call__(self, trace: Trace, hop: int) -> Alone: ...

    def trials(self, operators: Collection[str]) -> Trials:
        """Of these operators; the calls that were made again are samples of them."""


@dataclass(frozen=True)
class OpComparison:
    """The calls of one operator with the same inputs, that no other operator of an override encloses.

    call           the median time of a call in each run
    total          all calls of a run
    gpu_ns         of all calls of a run: the median over the runs
    other_chains   calls that became another chain than the one shown, in the last run
    """

    op: str
    inputs: str
    calls: tuple[int, int]
    call: Timing
    total: Timing
    gpu_ns: tuple[int, int]
    chains: Chains | None = None
    other_chains: tuple[int, int] = (0, 0)
    alone: Alone | None = None

    @property
    def shares(self) -> tuple[float, float] | None:
        """How near a call of each side comes to the limit (1: at it), on the GPU if its time is known."""
        if self.alone is None or self.alone.limit is None:
            return None
        times = [side.median for side in (self.call.stock, self.call.override)]
        if all(self.gpu_ns):
            times = [ns / calls for ns, calls in zip(self.gpu_ns, self.calls, strict=True)]
        limit = self.alone.limit.ns
        return (limit / times[0], limit / times[1]) if all(times) else None


@dataclass(frozen=True)
class ProgramComparison:
    """Of a script. Times are of whole runs, all of them recorded.

    process          from the start of the process to its end
    elapsed          from the first hop to the last
    in_ops           the sum of the outermost op calls
    in_calls         of the overrides' operators: number of calls x median of a call, over all inputs
    in_calls_gpu     on the GPU, the sum of their calls; None where there were none
    gpu              the sum of the GPU's activities; None where there were none
    output           what differs in stdout, as a unified diff; empty: nothing
    steady_output    whether stock wrote the same in every run
    states           what the trace says of the overrides (certificate["overrides"])
    """

    command: list[str]
    overrides: tuple[str, ...]
    runs: int
    elapsed: Timing
    in_ops: Timing
    in_calls: Timing
    in_calls_gpu: Timing | None
    gpu: Timing | None
    process: Timing
    ops: list[OpComparison]
    hops: tuple[int, int]
    output: list[str]
    output_lines: int
    steady_output: bool
    states: list[dict[str, Any]]
    facts: dict[str, Any]
    certificates: tuple[dict[str, Any], dict[str, Any]]
    trials: Trials = field(default_factory=Trials)

    @property
    def wrong_alone(self) -> list[OpComparison]:
        return [op for op in self.ops if op.alone and op.alone.wrong]


@dataclass(frozen=True)
class _Run:
    """One run of the script: how long the process took, what it wrote, and its trace."""

    seconds: float
    output: str
    path: Path


def compare_program(
    command: Sequence[str],
    names: Sequence[str],
    runs: int,
    watching: Watching,
    make_again: Callable[[list[str]], MakesAgain],
) -> ProgramComparison:
    """Runs a script with its arguments `runs` times on each side, then once for the arguments of its calls.

    `make_again`: from the names of the overrides, what makes calls again alone.

    Raises OverrideError if a name is wrong or a built-in override cannot run here, ProgramError if the
    script fails.
    """
    folder = os.path.dirname(os.path.abspath(command[0]))
    wanted = [given_names.checked(forced(name), folder) for name in names]
    if any(given_names.is_built_in(name) for name in names):
        builtin.native_module()  # before the script runs with stock, which may take long
    stock: list[_Run] = []
    override: list[_Run] = []
    with tempfile.TemporaryDirectory() as place:
        for number in range(runs):
            turns = [("stock", stock, []), ("override", override, wanted)]
            for which, of_side, switched_on in turns if number % 2 == 0 else turns[::-1]:
                with watching(f"run {number + 1} of {runs}, {which}"):
                    path = Path(place) / f"{which}{number}.trace"
                    of_side.append(_run(command, switched_on, path, which))
        try:
            with watching("reading the traces"):
                found = _compared(list(command), stock, override)
            making = make_again(wanted)
            with watching("making its calls again, alone"):
                found = _with_calls_alone(found, Path(place) / "arguments.trace", making)
        except (TraceError, OSError) as error:
            raise ProgramError(f"cannot read the trace of {command[0]}: {error}") from None
    with watching("calls of many kinds"):
        return replace(found, trials=making.trials({op.op for op in found.ops}))


def _run(
    command: Sequence[str], names: Sequence[str], path: Path, which: str, options: Sequence[str] = ()
) -> _Run:
    override = ["--override", ",".join(names)] if names else []
    record = own_command("record", "-o", str(path), *override, *options)
    begin = time.perf_counter()
    done = subprocess.run(
        [*record, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.perf_counter() - begin
    said = _without_summary(done.stderr.rstrip().splitlines(), path)[-_SHOWN_OF_STDERR:]
    how = f"status {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}"
    if call := _ending_call(path) if names and _title(path) not in done.stderr else "":
        print("\n".join(said), file=sys.stderr)
        raise ProgramError(
            f"WRONG: the override ended the process with {how}, in {call}; see its output above"
        )
    if done.returncode:
        print("\n".join(said), file=sys.stderr)
        raise ProgramError(f"{command[0]} ended with {how} ({which}); see its output above")
    if not path.exists():
        print("\n".join(said), file=sys.stderr)
        raise ProgramError(f"{command[0]} was not recorded ({which}); see the reason above")
    return _Run(seconds, done.stdout, path)


def _ending_call(path: Path) -> str:
    """The call of an override that did not return before the process ended; "": none."""
    if not path.exists():
        return ""
    trace = load(path)
    hops = trace.hops
    own = hops.filter(pl.col("open") & pl.col("override").is_not_null()).head(1)
    if not len(own) or "ended without a stop" not in trace.certificate["verdict"]:
        return ""
    op, process, thread = own.select("op", "process", "thread").row(0)
    same = (pl.col("op") == op) & (pl.col("process") == process) & (pl.col("thread") == thread)
    known = hops.filter(pl.col("open") & same)["inputs"].drop_nulls().to_list()
    texts = signature_texts(trace.signatures, known)
    return f"{op} ({texts[known[-1]]})" if known and known[-1] in texts else str(op)


def _title(path: Path) -> str:
    """The first line of what a recording says at its end."""
    return f"tracer: {path}"


def _without_summary(lines: list[str], path: Path) -> list[str]:
    """Without the closing summary of the recording: its trace is deleted with the folder."""
    title = _title(path)
    if title not in lines:
        return lines
    first = lines.index(title)
    after = next((at for at in range(first + 1, len(lines)) if not lines[at].startswith("  ")), len(lines))
    return lines[:first] + lines[after:]


def _compared(command: list[str], stock: list[_Run], override: list[_Run]) -> ProgramComparison:
    states: list[dict[str, Any]] = load(override[-1].path).certificate.get("overrides", [])
    operators = list(dict.fromkeys(state["operator"] for state in states))
    left = side_of((load(run.path) for run in stock), operators)
    right = side_of((load(run.path) for run in override), operators, left.longest)
    assert left.trace is not None
    assert right.trace is not None
    lines, others = stock[-1].output.splitlines(), override[-1].output.splitlines()
    difference = list(difflib.unified_diff(lines, others, "stock", "override", lineterm="", n=1))
    seconds = Samples([run.seconds * 1e9 for run in stock], [run.seconds * 1e9 for run in override])
    return ProgramComparison(
        command=command,
        overrides=tuple(dict.fromkeys(state["name"] for state in states)),
        runs=len(stock),
        process=_timing(seconds),
        elapsed=_timing(Samples(left.elapsed, right.elapsed)),
        in_ops=_timing(Samples(left.in_ops, right.in_ops)),
        in_calls=_timing(Samples(left.calls, right.calls)),
        in_calls_gpu=_timing_of_gpu(left.calls_gpu, right.calls_gpu),
        gpu=_timing_of_gpu(left.gpu, right.gpu),
        ops=_ops(left, right),
        hops=(len(left.trace.hops), len(right.trace.hops)),
        output=difference,
        output_lines=len(lines),
        steady_output=len({run.output for run in stock}) == 1,
        states=states,
        facts=right.trace.environment,
        certificates=(left.trace.certificate, right.trace.certificate),
    )


def _ops(stock: Side, override: Side) -> list[OpComparison]:
    """Of each operator and inputs that both sides called, those with the most time in stock first."""
    both = [key for key in stock.by_key if key in override.by_key]
    both.sort(key=lambda key: -stock.by_key[key].total[-1])
    return [_op(key, stock.by_key[key], override.by_key[key]) for key in both]


def _op(key: Key, stock: OfCalls, override: OfCalls) -> OpComparison:
    sides = stock, override
    chains, others = None, (0, 0)
    if stock.chains and override.chains:
        usual = [side.usual() for side in sides]
        chains = Chains.of(usual[0][0], usual[1][0])
        others = usual[0][1], usual[1][1]
    return OpComparison(
        op=key[0],
        inputs=key[1],
        calls=(stock.count, override.count),
        call=_timing(Samples(stock.median, override.median)),
        total=_timing(Samples(stock.total, override.total)),
        gpu_ns=(round(median(stock.gpu)), round(median(override.gpu))),
        chains=chains,
        other_chains=others,
    )


def _with_calls_alone(found: ProgramComparison, path: Path, make_again: MakesAgain) -> ProgramComparison:
    """The operators whose chains are shown are also called alone, with the arguments of one more run."""
    shown = [op for op in found.ops if op.chains]
    if not shown:
        return found
    patterns = [word for op in dict.fromkeys(op.op for op in shown) for word in ("--ops", op)]
    _run(found.command, [], path, "for arguments", ["--values", "scalars", *patterns])
    trace = load(path)
    calls = ChainTables(trace).calls([op.op for op in shown])
    hops = {(op, inputs): hop for hop, op, inputs in calls.select("hop", "op", "inputs").iter_rows()}
    ops = []
    for op in found.ops:
        hop = hops.get((op.op, op.inputs)) if op.chains else None
        ops.append(op if hop is None else replace(op, alone=make_again(trace, hop)))
    return replace(found, ops=ops)


def _timing_of_gpu(stock: list[float], override: list[float]) -> Timing | None:
    return _timing(Samples(stock, override)) if min(*stock, *override) else None


def _timing(samples: Samples) -> Timing:
    timing = Timing.of(samples)
    assert timing is not None  # a script has one run at least
    return timing
