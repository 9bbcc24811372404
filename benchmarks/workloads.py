"""What is timed: six small ops and two training steps, on one thread."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "seq2seq_gru.py"

# A batch by the wall clock, or by the processor time of the thread (where other work disturbs)
CLOCKS = {"wall": time.perf_counter_ns, "cpu": time.thread_time_ns}

# As timeit does it: the statement is in the loop itself, with no call around it.
_LOOPS = """
def single(n):
    longest = 0
    for _ in range(n):
        began = clock()
        {statement}
        took = clock() - began
        if took > longest:
            longest = took
    return longest

def batch(n):
    began = batch_clock()
    for _ in range(n):
        {statement}
    return (batch_clock() - began) / n
"""


@dataclass(frozen=True)
class Sample:
    """One visit to a workload.

    mean        nanoseconds a call, over a batch
    longest     nanoseconds of the longest single call
    preempted   the system gave the core to other work meanwhile
    """

    mean: float
    longest: int
    preempted: bool


@dataclass(frozen=True)
class Workload:
    """A statement to time, with the names in it.

    calls   how often a batch runs it, and how often it is timed singly before that
    small   one op, judged by the goals for small ops; else a training step
    clock   of the batch, one of CLOCKS; single calls are timed by the wall clock
    """

    name: str
    statement: str
    names: dict[str, object]
    calls: int
    small: bool
    clock: str
    _loops: dict[str, Callable] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._loops.update(self.names, clock=time.perf_counter_ns, batch_clock=CLOCKS[self.clock])
        exec(compile(_LOOPS.format(statement=self.statement), f"<{self.name}>", "exec"), self._loops)

    def measure(self) -> Sample:
        """Single calls first (they warm up what a recording fills when it begins), then the batch."""
        gc.collect()
        gc.disable()
        try:
            before = _preemptions()
            longest = self._loops["single"](self.calls)
            mean = self._loops["batch"](self.calls)
            return Sample(mean, longest, _preemptions() > before)
        finally:
            gc.enable()


def all_workloads(quick: bool, clock: str) -> list[Workload]:
    """The small ops and the steps; `quick` runs a quarter of the calls."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names = {
        "torch": torch,
        "a": torch.randn(4, 4),
        "b": torch.randn(4, 4),
        "w": torch.randn(4, 4, requires_grad=True),
    }
    # 4,000 calls of five hops fill a 1 MiB chunk: the single calls of mm see a change of chunks
    calls, steps = (1000, 5) if quick else (4000, 20)
    small = [
        Workload(name, statement, names, calls, small=True, clock=clock)
        for name, statement in (
            ("add 4x4", "torch.add(a, b)"),
            ("mm 4x4", "torch.mm(a, b)"),
            ("matmul 4x4 grad", "torch.matmul(w, b)"),
            ("empty(4)", "torch.empty(4)"),
            ("view", "a.view(16)"),
            ("cat 2 of 4x4", "torch.cat([a, b])"),
        )
    ]
    return [
        *small,
        Workload("transformer", "step()", {"step": _transformer_step()}, steps, small=False, clock=clock),
        Workload("seq2seq", "step()", {"step": _seq2seq_step()}, steps, small=False, clock=clock),
    ]


def _preemptions() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _transformer_step() -> Callable[[], None]:
    layer = nn.TransformerEncoderLayer(d_model=32, nhead=4, dim_feedforward=64, batch_first=True)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1e-3)
    batch = torch.randn(4, 16, 32)

    def step() -> None:
        optimiser.zero_grad()
        layer(batch).square().mean().backward()
        optimiser.step()

    return step


def _seq2seq_step() -> Callable[[], None]:
    example = _example()
    options = argparse.Namespace(steps=1, batch=8, length=4, vocabulary=12, hidden=16)
    model = example.Seq2Seq(options.vocabulary, options.hidden)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        example.train_epoch(model, optimiser, options)

    return step


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("seq2seq_gru", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
