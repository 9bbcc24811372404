"""Runs a script with stock kernels and with overrides: in turns, each in its own recorded process."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from tracer.base.interpreter import own_command
from tracer.compare.chains import ChainTables
from tracer.compare.measurement import Watching
from tracer.compare.model import Chains, Timing
from tracer.compare.switch import forced
from tracer.compare.timing import Samples
from tracer.overrides import builtin
from tracer.overrides import names as given_names
from tracer.trace import Trace, TraceError, load

_Key = tuple[str, str]
"""An operator, and the tensors that it was given as text"""
_MOST_CHAINS = 10
_SHOWN_OF_STDERR = 15


class ProgramError(Exception):
    """The message is one line for the user."""


@dataclass(frozen=True)
class OpComparison:
    """The calls of one operator with the same inputs. Times are sums over a run."""

    op: str
    inputs: str
    calls: tuple[int, int]
    total: Timing
    gpu_ns: tuple[int, int]
    chains: Chains | None = None
    other_chains: tuple[int, int] = (0, 0)
    """Calls that became another chain than the one shown"""


@dataclass(frozen=True)
class ProgramComparison:
    """Of a script. Times are of whole runs, all of them recorded.

    process          from the start of the process to its end
    elapsed          from the first hop to the last
    in_ops           the sum of the outermost op calls
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


@dataclass(frozen=True)
class _Run:
    """One run of the script: how long the process took, what it wrote, and its trace."""

    seconds: float
    output: str
    path: Path


@dataclass
class _Side:
    """The figures of all runs of one side in ns, in order; `tables` and `calls` are those of the last."""

    trace: Trace
    tables: ChainTables
    elapsed: list[float] = field(default_factory=list)
    in_ops: list[float] = field(default_factory=list)
    gpu: list[float] = field(default_factory=list)
    totals: list[dict[_Key, int]] = field(default_factory=list)
    calls: dict[_Key, pl.DataFrame] = field(default_factory=dict)


def compare_program(
    command: Sequence[str], names: Sequence[str], runs: int, watching: Watching
) -> ProgramComparison:
    """Runs a script with its arguments `runs` times on each side.

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
        with watching("reading the traces"):
            try:
                return _compared(list(command), stock, override)
            except (TraceError, OSError) as error:
                raise ProgramError(f"cannot read the trace of {command[0]}: {error}") from None


def _run(command: Sequence[str], names: Sequence[str], path: Path, which: str) -> _Run:
    override = ["--override", ",".join(names)] if names else []
    record = own_command("record", "-o", str(path), *override)
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
    if done.returncode:
        how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        print("\n".join(said), file=sys.stderr)
        raise ProgramError(f"{command[0]} ended with {how} ({which}); see its output above")
    if not path.exists():
        print("\n".join(said), file=sys.stderr)
        raise ProgramError(f"{command[0]} was not recorded ({which}); see the reason above")
    return _Run(seconds, done.stdout, path)


def _without_summary(lines: list[str], path: Path) -> list[str]:
    """Without the closing summary of the recording: its trace is deleted with the folder."""
    title = f"tracer: {path}"
    if title not in lines:
        return lines
    first = lines.index(title)
    after = next((at for at in range(first + 1, len(lines)) if not lines[at].startswith("  ")), len(lines))
    return lines[:first] + lines[after:]


def _compared(command: list[str], stock: list[_Run], override: list[_Run]) -> ProgramComparison:
    states: list[dict[str, Any]] = load(override[-1].path).certificate.get("overrides", [])
    operators = list(dict.fromkeys(state["operator"] for state in states))
    left, right = _figures(stock, operators), _figures(override, operators)
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
        gpu=_timing(Samples(left.gpu, right.gpu)) if min(*left.gpu, *right.gpu) else None,
        ops=_ops(left, right),
        hops=(len(left.trace.hops), len(right.trace.hops)),
        output=difference,
        output_lines=len(lines),
        steady_output=len({run.output for run in stock}) == 1,
        states=states,
        facts=right.trace.environment,
        certificates=(left.trace.certificate, right.trace.certificate),
    )


def _figures(runs: list[_Run], operators: list[str]) -> _Side:
    side: _Side | None = None
    for run in runs:
        trace = load(run.path)
        side = _Side(trace, ChainTables(trace)) if side is None else side
        side.trace, side.tables = trace, ChainTables(trace)
        hops, activities = trace.hops, trace.gpu_activities
        outermost = hops.filter(pl.col("parent").is_null())
        elapsed = int(hops["end_ns"].max() or 0) - int(hops["start_ns"].min() or 0)  # type: ignore[arg-type]
        side.elapsed.append(float(elapsed))
        side.in_ops.append(float((outermost["end_ns"] - outermost["start_ns"]).sum()))
        side.gpu.append(float((activities["end_ns"] - activities["start_ns"]).sum()))
        side.calls = {
            (op, str(key[0])): calls
            for op in operators
            for key, calls in side.tables.calls(op).partition_by("inputs", as_dict=True).items()
        }
        side.totals.append({key: int(calls["duration_ns"].sum()) for key, calls in side.calls.items()})
    assert side is not None
    return side


def _ops(stock: _Side, override: _Side) -> list[OpComparison]:
    """Of each operator and inputs that both sides called, those with the most time in stock first."""
    both = [key for key in stock.calls if key in override.calls]
    both.sort(key=lambda key: -stock.totals[-1][key])
    found = []
    for place, key in enumerate(both):
        sides = stock, override
        totals = Samples(*([float(run.get(key, 0)) for run in side.totals] for side in sides))
        tables = [side.calls[key] for side in sides]
        chains, others = None, (0, 0)
        if place < _MOST_CHAINS:
            usual = [_usual(calls) for calls in tables]
            chains = Chains.of(*(side.tables.below(at) for side, (at, _) in zip(sides, usual, strict=True)))
            others = usual[0][1], usual[1][1]
        found.append(
            OpComparison(
                op=key[0],
                inputs=key[1],
                calls=(len(tables[0]), len(tables[1])),
                total=_timing(totals),
                gpu_ns=(int(tables[0]["gpu_ns"].sum()), int(tables[1]["gpu_ns"].sum())),
                chains=chains,
                other_chains=others,
            )
        )
    return found


def _usual(calls: pl.DataFrame) -> tuple[int, int]:
    """The place of the first call with the most frequent chain, and how many calls have others."""
    structures = calls.group_by("structure", maintain_order=True).agg(pl.col("place").first(), count=pl.len())
    row = structures.sort("count", descending=True, maintain_order=True).row(0, named=True)
    return int(row["place"]), len(calls) - int(row["count"])


def _timing(samples: Samples) -> Timing:
    timing = Timing.of(samples)
    assert timing is not None  # a script has one run at least
    return timing
