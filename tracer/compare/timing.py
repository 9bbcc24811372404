"""Measures host, wall and GPU time of a call with stock kernels and with overrides, in turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tracer.compare.cases import CUDA

Run = Callable[[], object]
Timed = Callable[[Run], tuple[float, float]]
"""Makes one call; its host and its wall time in nanoseconds"""
Switch = Callable[[], AbstractContextManager[Any]]
"""Makes the context in which the overrides are on"""

GRAPH_CALLS = 20
"""Captured in one CUDA graph, or one of each run if there are more (see `cold`)"""
_FEWEST_PAIRS = 5
_UNTIMED_NS, _LEAST_UNTIMED = 1_000_000, 2
"""How long calls are made after each switch before they are timed"""
CLOCKS_NS = 300_000_000
"""Until a GPU's clocks have risen"""
_SAMPLE_NS = 500_000
_MOST_CALLS = 10


@dataclass
class Samples:
    """Nanoseconds a call; sample i of stock and sample i of the override were taken side by side."""

    stock: list[float] = field(default_factory=list)
    override: list[float] = field(default_factory=list)


@dataclass
class Times:
    """What was measured of a case.

    host    from the call until it returned
    wall    until the result was there: on a GPU between CUDA events around one call
    gpu     of one of GRAPH_CALLS in a CUDA graph, without the host; empty where it cannot be captured
    cold    the same, but calls take turns with inputs of their own, which L2 cannot hold all; may be empty
    why_no_gpu    says why `gpu` is empty
    """

    host: Samples
    wall: Samples
    gpu: Samples
    calls: int
    why_no_gpu: str = ""
    cold: Samples = field(default_factory=Samples)


def measure(
    run: Run,
    on: Switch,
    device: str,
    *,
    pairs: int,
    seconds: float,
    graph: bool = True,
    cold: Sequence[Run] = (),
    clocks_ns: int = CLOCKS_NS,
) -> Times:
    """Takes `pairs` samples of both, in turns that change their order.

    A sample is the mean of up to 10 calls, each timed by itself with nothing before it under way. Where
    `seconds` would not do, fewer pairs are taken, 5 at least. On a GPU the graphs are timed after that, for
    as many seconds again at most. `cold`: the same call with other tensors each, for `Times.cold`.
    """
    timed = stopwatch(device)
    if device == CUDA:
        _warm_up(run, timed, clocks_ns)
    stock_ns = _estimate(run, timed)
    with on():
        override_ns = _estimate(run, timed)
    calls = max(1, min(_MOST_CALLS, int(_SAMPLE_NS / max(stock_ns, override_ns, 1.0))))
    a_pair = sum((calls + _LEAST_UNTIMED) * ns + _UNTIMED_NS for ns in (stock_ns, override_ns))
    most, pairs = pairs, _pairs_within(seconds, a_pair, pairs)
    host, wall = Samples(), Samples()
    with uncollected():
        for number in range(pairs):
            turns = [(False, host.stock, wall.stock), (True, host.override, wall.override)]
            for overridden, of_host, of_wall in turns if number % 2 == 0 else turns[::-1]:
                of_call = _sample(run, on, timed, calls, overridden)
                of_host.append(of_call[0])
                of_wall.append(of_call[1])
    times = Times(host, wall, Samples(), calls)
    if device != CUDA:
        times.why_no_gpu = "on the CPU"
    elif not graph:
        times.why_no_gpu = "a backward pass is not captured in a graph"
    else:
        _measure_graphs(times, run, on, most, seconds, cold)
    return times


def _pairs_within(seconds: float, ns_of_a_pair: float, most: int) -> int:
    return max(min(most, _FEWEST_PAIRS), min(most, int(seconds * 1e9 / max(ns_of_a_pair, 1.0))))


def _sample(run: Run, on: Switch, timed: Timed, calls: int, overridden: bool) -> tuple[float, float]:
    """Host and wall time of a call. Both kinds come after a switch, since that leaves caches cold."""
    with on():
        if overridden:
            return _mean(run, timed, calls)
    return _mean(run, timed, calls)


def _mean(run: Run, timed: Timed, calls: int) -> tuple[float, float]:
    _warm_up(run, timed)
    taken = [timed(run) for _ in range(calls)]
    return sum(host for host, _ in taken) / calls, sum(wall for _, wall in taken) / calls


def _estimate(run: Run, timed: Timed) -> float:
    """Nanoseconds a call, after it was warmed up."""
    _warm_up(run, timed)
    return min(timed(run)[1] for _ in range(3))


def _warm_up(run: Run, timed: Timed, ns: int = _UNTIMED_NS) -> None:
    """Calls whose times are left out: for so long, two at least."""
    end = time.perf_counter_ns() + ns
    count = 0
    while count < _LEAST_UNTIMED or time.perf_counter_ns() < end:
        timed(run)
        count += 1


def stopwatch(device: str) -> Timed:
    """Times one call on the CPU or on a GPU."""
    return _timed_cuda if device == CUDA else _timed


def _timed(run: Run) -> tuple[float, float]:
    begin = time.perf_counter_ns()
    run()
    taken = float(time.perf_counter_ns() - begin)
    return taken, taken


def _timed_cuda(run: Run) -> tuple[float, float]:
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()  # makes the events
    end.record()
    torch.cuda.synchronize()
    start.record()
    begin = time.perf_counter_ns()
    run()
    host = float(time.perf_counter_ns() - begin)
    end.record()
    end.synchronize()
    return host, start.elapsed_time(end) * 1e6


def _measure_graphs(
    times: Times, run: Run, on: Switch, pairs: int, seconds: float, cold: Sequence[Run]
) -> None:
    import torch

    graphs: list[tuple[Any, int, list[float]]] = []
    try:
        for runs, samples in (([run], times.gpu), (cold, times.cold)):
            if runs:
                graphs.append((*_captured(runs), samples.stock))
                with on():
                    graphs.append((*_captured(runs), samples.override))
    except RuntimeError as error:
        torch.cuda.synchronize()
        first = next(iter(str(error).splitlines()), "")
        times.why_no_gpu = f"it cannot be captured in a CUDA graph: {first}"
        return
    for graph, _, _ in graphs:
        graph.replay()
    pairs = _pairs_within(seconds, sum(_timed_cuda(graph.replay)[1] for graph, _, _ in graphs), pairs)
    with uncollected():
        for number in range(pairs):
            for graph, calls, taken in graphs if number % 2 == 0 else graphs[::-1]:
                taken.append(_timed_cuda(graph.replay)[1] / calls)


def graph_ns(runs: Sequence[Run]) -> float:
    """GPU time of a call: the median of 9 replays of a graph in which the calls take turns."""
    graph, calls = _captured(runs)
    graph.replay()
    graph.replay()
    return median(_timed_cuda(graph.replay)[1] for _ in range(9)) / calls


def _captured(runs: Sequence[Run]) -> tuple[Any, int]:
    """A graph of calls that take turns, and how many they are."""
    import torch

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):  # what is set up at a first call must not be captured
        for _ in range(_LEAST_UNTIMED):
            runs[0]()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    calls = max(GRAPH_CALLS, len(runs))
    with torch.cuda.graph(graph):
        for number in range(calls):
            runs[number % len(runs)]()
    return graph, calls


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected in the middle of a timed call."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
