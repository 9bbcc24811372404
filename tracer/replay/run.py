"""Runs an op call as it was and changed: chains, times, errors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tracer.analysis.recorded_call import result_of
from tracer.base.boundary import is_here
from tracer.compare.accuracy import Deviation
from tracer.compare.cases import CPU, CUDA
from tracer.compare.chains import Chain, ChainTables
from tracer.compare.model import Timing
from tracer.compare.spread import Ratio
from tracer.compare.timing import Times, measure
from tracer.replay.call import Call, runner, why_not_here
from tracer.replay.change import Change, cut
from tracer.replay.make import plans, tensors_in
from tracer.replay.memory import check_copies, is_for_want_of_memory
from tracer.replay.replay_errors import CannotReplayError, WrongOptionError
from tracer.replay.results import errors, exact_results, same_results

_NOT_OF_VALUES = (NotImplementedError, ImportError, AttributeError, TypeError, AssertionError)
"""Errors that no other values avoid: torch or a package lacks what the call needs"""
_PAIRS = 30
_SECONDS = 2.0
_PAIRS_AGAIN, _SECONDS_AGAIN = 15, 1.0
BUSY_BELOW, BUSY_ABOVE = 0.8, 1.25
"""Where the interval of a ratio of the same work to itself leaves this, the machine is busy"""


@dataclass
class Side:
    """One way of making the call. If it did not run, `chain` is None and `why` says why."""

    title: str
    chain: Chain | None = None
    why: str = ""
    errors: list[Deviation | None] = field(default_factory=list)
    """How far each result is from float64; see results.errors"""
    no_error: str = ""
    """Why errors are not known; "" if that is not known either"""
    repeats: bool | None = None
    """Two runs returned the same; if not, the results are random or not initialised, and have no error"""
    as_recorded: bool | None = None
    """The results have the recorded hash; None: no hash was recorded, or inputs are not the recorded ones"""


@dataclass(frozen=True)
class Replay:
    """`same`: both sides returned equal tensors; None if unknown. `times`: of one side alone, it is both.

    `tf32_on_cpu`: TF32 was changed for a call on the CPU.
    """

    stock: Side
    changed: Side | None
    times: Times
    same: bool | None
    tf32_on_cpu: bool = False
    again: Ratio | None = None
    """The time of the call as it was over that of the same again, in turns; None: one side alone"""

    @cached_property
    def timings(self) -> dict[str, Timing | None]:
        """By kind of time: host, wall and gpu; None if it was not measured."""
        return {name: Timing.of(getattr(self.times, name)) for name in ("host", "wall", "gpu")}

    @property
    def ran(self) -> list[Side]:
        return [side for side in (self.stock, self.changed) if side is not None and side.chain is not None]


def replay(call: Call, change: Change, recorded: int | None = None) -> Replay:
    """Makes the call as it was and, if something is changed, with the change. Raises CannotReplayError.

    `recorded`: the hash of the values that the recorded call returned.
    """
    stock = Side("stock", why=why_not_here(call))
    changed = Side(change.title) if change.title else None
    if stock.why and change.device not in ("cpu", "meta"):
        raise CannotReplayError(f"{stock.why}; --key CPU replays it on the CPU")
    if change.device is not None and not is_here(change.device):
        raise CannotReplayError(f"--key {change.key}: torch finds no {change.device.upper()} device here")
    runs: dict[str, Callable[[], Any]] = {}
    if not stock.why:
        runs[stock.title] = _tried(call, lambda: runner(call, None, None))
    if changed is not None:
        runs[changed.title] = _tried(call, lambda: runner(call, change.key, change.device, change.of))
    sides = {side.title: side for side in (stock, changed) if side is not None}
    devices = {stock.title: None, change.title: change.device}
    exact = check_copies(call, sum(call.is_on_cpu(devices[side]) for side in runs)) or exact_results(call)
    results: dict[str, list[Any]] = {}
    for title, run in runs.items():
        with _with(change, title == change.title):
            results[title] = tensors_in(_tried(call, run))
            if change.pad is not None and "stock" in results:
                results[title] = cut(results[title], [one.shape for one in results["stock"]])
            again = cut(tensors_in(_tried(call, run)), [one.shape for one in results[title]])
            sides[title].repeats = same_results(results[title], again)
            sides[title].errors = errors(results[title], exact if sides[title].repeats else None)
            sides[title].no_error = _no_error(sides[title].repeats, exact)
            as_it_was = title == stock.title or change.of_settings
            hashed = recorded is not None and call.whole and bool(sides[title].repeats) and as_it_was
            sides[title].chain, result = _recorded(call, run, hashed)
            sides[title].as_recorded = None if result is None else result == recorded
    repeat = all(side.repeats for side in sides.values())
    same = same_results(*results.values()) if len(results) == 2 and repeat else None
    on_cpu = not any(device.startswith("cuda") for device in call.devices) or change.device == "cpu"
    return Replay(
        stock,
        changed,
        _times(call, change, runs),
        same,
        tf32_on_cpu=on_cpu and change.tf32 is not None,
        again=_again(runs[stock.title], _clock(call, change)) if len(runs) == 2 else None,
    )


@contextmanager
def _with(change: Change, on: bool) -> Iterator[None]:
    if not on:
        yield
        return
    with change.on():
        yield


def _tried(call: Call, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except (CannotReplayError, WrongOptionError):
        raise
    except Exception as error:
        if is_for_want_of_memory(error):
            raise
        first = next(iter(str(error).splitlines()), "").rstrip(".")
        random = any(True for _ in plans(call.values)) and not isinstance(error, _NOT_OF_VALUES)
        why = "; the values are random, so it may run with others: --arg NAME=@FILE.pt" if random else ""
        raise CannotReplayError(f"{call.name} raised {type(error).__name__}: {first}{why}") from error


def _times(call: Call, change: Change, runs: dict[str, Callable[[], Any]]) -> Times:
    """In turns; of one side alone, both samples are of it."""
    first, last = next(iter(runs.values())), list(runs.values())[-1]
    current = [first]

    @contextmanager
    def on() -> Iterator[None]:
        with _with(change, change.title in runs):
            current[0] = last
            try:
                yield
            finally:
                current[0] = first

    clock, graph = _clock(call, change), not call.writes
    return measure(lambda: current[0](), on, clock, pairs=_PAIRS, seconds=_SECONDS, graph=graph)


def _clock(call: Call, change: Change) -> str:
    """Whether times are of a GPU."""
    on_gpu = not why_not_here(call) and any(device.startswith("cuda") for device in call.devices)
    return CUDA if on_gpu and change.device in (None, "cuda") else CPU


def _again(run: Callable[[], Any], clock: str) -> Ratio | None:
    """How far two runs of the same call are apart here and now."""
    again = measure(run, nullcontext, clock, pairs=_PAIRS_AGAIN, seconds=_SECONDS_AGAIN, graph=False)
    timing = Timing.of(again.wall)
    return None if timing is None else timing.ratio


def _recorded(call: Call, run: Callable[[], Any], hashed: bool) -> tuple[Chain, int | None]:
    """What the call becomes once it is warm; with `hashed` also the hash of its results."""
    from tracer.base.errors import RecordingError
    from tracer.recording.recording import record
    from tracer.trace import load

    folder = tempfile.mkdtemp(prefix="tracer-replay-")
    path = os.path.join(folder, "replay.trace")
    try:
        with record(path, source=False, values="hash" if hashed else "none"):
            run()
        if not os.path.exists(path):
            raise CannotReplayError("this process is already being recorded; replay without tracer record")
        trace = load(path)
        chain = ChainTables(trace).last(call.name)
    except RecordingError as error:
        raise CannotReplayError(f"the replay cannot be recorded: {error}") from error
    finally:
        if os.path.exists(path):
            os.unlink(path)
        os.rmdir(folder)
    if chain is None:
        raise CannotReplayError(f"the replay of {call.name} recorded no hop of it; please report this")
    return chain, result_of(trace, chain.nodes["hop"][0]) if hashed else None


def _no_error(repeats: bool | None, exact: list[Any] | str) -> str:
    if repeats is None:
        return "its results have no elements to compare"
    if not repeats:
        return "two runs of the call returned different values"
    return exact if isinstance(exact, str) else ""
