"""Compares the built-in cases: times first, then one recording for the chains of all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.base.errors import RecordingError
from tracer.compare.accuracy import check
from tracer.compare.bounds import bound_of
from tracer.compare.call_memory import memory_of
from tracer.compare.cases import CPU, CUDA, Case
from tracer.compare.chains import ChainTables, certificate_of, facts_of_gpu
from tracer.compare.forks import end_of
from tracer.compare.kept import INPUT, TWICE, Inputs, shared_memory
from tracer.compare.model import CaseResult, Chains, Comparison, Timing
from tracer.compare.roof import CpuRoof, GpuRoof, Roof, limit_of
from tracer.compare.switch import Switch
from tracer.compare.timing import CLOCKS_NS, measure
from tracer.compare.trials import Trials, run_trials
from tracer.compare.workload import Results, Workload, cold_runs, precision, prepare, without_warnings
from tracer.report.text import count
from tracer.trace import Trace, load

Watching = Callable[[str], AbstractContextManager[object]]
"""Shows what is done while a block runs"""


@dataclass(frozen=True)
class Settings:
    """How much is measured: pairs of samples a case, seconds a case, and peaks that the user knows.

    graph_backward    capture backward passes in graphs too
    quick             fewer trials
    clocks_ns         how long each case keeps a GPU busy first, until its clocks have risen
    """

    pairs: int = 50
    seconds: float = 60.0
    bandwidth: float | None = None
    flops: float | None = None
    graph_backward: bool = False
    quick: bool = False
    clocks_ns: int = CLOCKS_NS


def compare_cases(
    title: str,
    cases: Sequence[Case],
    switch: Switch,
    settings: Settings,
    watching: Watching,
    trials: bool = False,
) -> Comparison:
    """Runs every case with stock kernels and with the overrides; the overrides are off afterwards.

    `trials`: also make the trials of the overrides' operators.

    A case that raises has the traceback in its result, and the next one goes on.
    """
    results, works = [], []
    for number, case in enumerate(cases, 1):
        with watching(f"{case.name} ({number} of {len(cases)})"), without_warnings():
            result, work = _measured(case, switch, settings)
            results.append(result)
            works.append(work)
    tried = Trials()
    if trials:
        with watching("calls of many kinds"):
            tried = run_trials(switch, quick=settings.quick)
    remarks: list[str] = []
    with (
        watching("recording the chains"),
        tempfile.TemporaryDirectory() as folder,
        without_warnings(),
    ):
        trace = _recorded(Path(folder) / "compare.trace", cases, results, switch, remarks)
    if trace:
        _add_chains(results, trace)
    roof = _roof(switch.device, trace, settings)
    if roof is None:
        remarks.append("No limits: neither the recording nor the driver tells what the GPU can do")
    for case, result, work in zip(cases, results, works, strict=True):
        result.limit = limit_of(roof, case, work) if roof else None
    return Comparison(
        title=title,
        overrides=switch.names,
        device=switch.device,
        facts=_facts(switch.device, trace),
        roof=roof.source if roof else "",
        cases=results,
        certificate=certificate_of(trace) if trace else {},
        remarks=remarks,
        trials=tried,
    )


def compare_one(case: Case, switch: Switch, settings: Settings) -> CaseResult:
    """The results and times of one case, without chains and limit."""
    with without_warnings():
        return _measured(case, switch, settings)[0]


def _measured(case: Case, switch: Switch, settings: Settings) -> tuple[CaseResult, Any]:
    result = CaseResult(case.name)
    work = None
    try:
        with precision(case):
            workload = prepare(case, switch.device)
            work = workload.work
            result.note = workload.note
            if switch.device == CPU:
                with switch.on():
                    result.broken = end_of(workload.run)
                if result.broken:
                    return result, work
            _check(result, workload, switch)
            stock = memory_of(workload.run, switch.device)
            with switch.on():
                result.memory = (stock, memory_of(workload.run, switch.device))
            times = measure(
                workload.run,
                switch.on,
                switch.device,
                pairs=settings.pairs,
                seconds=settings.seconds,
                graph=settings.graph_backward or not case.backward,
                clocks_ns=settings.clocks_ns,
                cold=cold_runs(workload, switch.device)
                if switch.device == CUDA and not case.backward
                else (),
            )
    except (Exception, SystemExit) as error:
        result.fail(error)
        return result, work
    result.host, result.wall, result.gpu = map(Timing.of, (times.host, times.wall, times.gpu))
    result.cold = Timing.of(times.cold)
    result.why_no_gpu, result.calls = times.why_no_gpu, times.calls
    return result, work


def _check(result: CaseResult, workload: Workload, switch: Switch) -> None:
    import torch

    stock = workload.named(workload.run())
    exact = workload.exact()
    inputs = Inputs(list(workload.inputs))
    with switch.on():
        before = switch.counts()
        override = workload.named(workload.run())
        result.ran, result.handed_over = switch.counts().since(before)
        result.broken = inputs.changed()
        if result.broken:
            inputs.restore()
        again = workload.named(workload.run())
    result.broken = result.broken or _broken(workload.inputs, stock, override, again)
    for name, (wide, scale) in exact.items():
        bound = bound_of(workload.case, name)
        result.checks.append(check(name, bound, stock[name], override[name], wide, scale))
    result.repeats = all(
        torch.equal(first.nan_to_num(), again[name].nan_to_num()) for name, first in override.items()
    )


def _broken(inputs: Sequence[Any], stock: Results, override: Results, again: Results) -> str:
    """What is wrong with results beside their values; of gradients autograd decides."""
    for name, ours in override.items():
        if name.startswith("grad"):
            continue
        if ours.shape == stock[name].shape and ours.stride() != stock[name].stride():
            return f"strides {ours.stride()}, but stock has {stock[name].stride()}"
        if shared_memory(ours, inputs):
            return INPUT
        if shared_memory(ours, [again[name]]):
            return TWICE
    return ""


def _recorded(
    path: Path, cases: Sequence[Case], results: Sequence[CaseResult], switch: Switch, remarks: list[str]
) -> Trace | None:
    """One recording of a call of each case on each side: steps 1 and 3, then 5 and 7..."""
    from tracer.recording.recording import record

    try:
        with record(path):
            for case, result in zip(cases, results, strict=True):
                for on in (nullcontext, switch.on):
                    with precision(case), on():
                        _step(case, result, switch.device)
    except RecordingError as error:
        remarks.append(f"No chains: {error}")
        return None
    return load(path)


def _step(case: Case, result: CaseResult, device: str) -> None:
    """Two steps of the recording: what comes before, and the call with nothing else under way."""
    import torch

    from tracer.recording.recording import step

    wait = torch.cuda.synchronize if device == CUDA else lambda: None

    run = None
    try:
        if result.returned:
            run = prepare(case, device).run
            run()
            run()
    except (Exception, SystemExit) as error:
        result.fail(error)
        run = None
    wait()
    step()
    try:
        if run is not None:
            run()
    except (Exception, SystemExit) as error:
        result.fail(error)
    wait()
    step()


def _add_chains(results: Sequence[CaseResult], trace: Trace) -> None:
    tables = ChainTables(trace)
    for number, result in enumerate(results):
        if result.returned:
            result.chains = Chains.of(*(tables.of_step(4 * number + side) for side in (1, 3)))


def _roof(device: str, trace: Trace | None, settings: Settings) -> Roof | None:
    if device == CPU:
        return CpuRoof(settings.bandwidth, settings.flops)
    facts = facts_of_gpu(trace) if trace else None
    return GpuRoof(facts, settings.bandwidth, settings.flops) if facts else None


def _facts(device: str, trace: Trace | None) -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = dict(trace.environment) if trace else {"torch": torch.__version__}
    facts["device"] = (
        f"CPU, {count(torch.get_num_threads(), 'thread')}" if device == CPU else torch.cuda.get_device_name()
    )
    return facts
