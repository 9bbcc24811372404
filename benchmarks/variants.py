"""Ways to run a workload: bare, recorded by tracer, under torch.profiler, ..."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from workloads import Sample, Workload

import tracer


@dataclass(frozen=True)
class Visit:
    """A sample, and for recordings the hops of one call."""

    sample: Sample
    hops: float | None = None


@dataclass(frozen=True)
class Variant:
    """`key` names it in tables and JSON, `meaning` in the legend."""

    key: str
    meaning: str
    visit: Callable[[Workload], Visit]


class Twin:
    """A process forked before the first recording: the same addresses, and never a hook.

    It shows what a recording leaves behind after its stop, which this process cannot show alone.
    """

    def __init__(self, workloads: list[Workload]) -> None:
        context = get_context("fork")
        self._pipe, pipe = context.Pipe()
        self._process = context.Process(target=self._serve, args=(pipe, workloads), daemon=True)
        self._process.start()
        pipe.close()

    def visit(self, workload: Workload) -> Visit:
        self._pipe.send(workload.name)
        return Visit(self._pipe.recv())

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join()

    @staticmethod
    def _serve(pipe, workloads: list[Workload]) -> None:
        by_name = {workload.name: workload for workload in workloads}
        while (name := pipe.recv()) is not None:
            pipe.send(by_name[name].measure())


class Nothing(TorchDispatchMode):
    """A mode that passes every op on."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def all_variants(folder: Path, twin: Twin) -> list[Variant]:
    """Every variant. Recordings go into `folder`, one file that each of them replaces."""
    trace = folder / "overhead.trace"

    def recorded(workload: Workload, **options: bool) -> Visit:
        trace.unlink(missing_ok=True)
        recording = tracer.record(trace, **options)
        with recording:
            sample = workload.measure()
        if recording.summary.dropped:
            raise RuntimeError(f"the recording of {workload.name} is {recording.summary.verdict}")
        return Visit(sample, recording.summary.hops / (2 * workload.calls))

    def hops_only(workload: Workload) -> Visit:
        return recorded(workload, shapes=False, source=False, modules=False)

    def stopped(workload: Workload) -> Visit:
        trace.unlink(missing_ok=True)
        with tracer.record(trace):
            pass
        return Visit(workload.measure())

    def profiled(workload: Workload, **options: bool) -> Visit:
        # processing happens in stop() and later: it is not in the sample
        with profile(activities=[ProfilerActivity.CPU], **options):
            return Visit(workload.measure())

    def profiled_fully(workload: Workload) -> Visit:
        return profiled(workload, record_shapes=True, with_stack=True)

    def dispatched(workload: Workload) -> Visit:
        with Nothing():
            return Visit(workload.measure())

    return [
        Variant("bare", "no tool", lambda workload: Visit(workload.measure())),
        Variant("hops", "tracer, shapes=False, source=False, modules=False", hops_only),
        Variant("default", "tracer, defaults", recorded),
        Variant("prof", "torch.profiler, CPU activity", profiled),
        Variant("prof+", "the same, record_shapes, with_stack", profiled_fully),
        Variant("mode", "an empty TorchDispatchMode", dispatched),
        Variant("stopped", "after a recording, hooks restored", stopped),
        Variant("twin", "a process that never recorded", twin.visit),
    ]
