"""A call of a script made again alone, for `tracer compare SCRIPT`: errors, memory and the device's limit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from tracer import overrides
from tracer.analysis.op_work import work_of
from tracer.analysis.recorded_call import RecordedCall, recorded_call
from tracer.base.boundary import StrangeTextError
from tracer.compare.accuracy import Deviation, different_form
from tracer.compare.bounds import loose
from tracer.compare.call_memory import Memory, memory_of
from tracer.compare.cases import CPU, CUDA, STRICT, TF32, Case
from tracer.compare.chains import facts_of_gpu
from tracer.compare.forks import end_of
from tracer.compare.private_results import seen
from tracer.compare.program import Alone
from tracer.compare.roof import CpuRoof, GpuRoof, Limit, Roof, limit_of
from tracer.compare.switch import CannotCompareError, Switch
from tracer.compare.trial_samples import OF_SCRIPT, Sample
from tracer.compare.trials import Trials, run_trials
from tracer.replay.call import Call, runner, why_not_here
from tracer.replay.fitting import rebuilt
from tracer.replay.make import plans, tensors_in
from tracer.replay.replay_errors import CannotReplayError
from tracer.replay.results import errors, exact_results, same_results
from tracer.trace import Trace


class MakesAgain:
    """Makes op calls of a script's own trace again, and trials. `names`: the overrides; the rest as in
    `tracer compare`."""

    def __init__(
        self, names: Sequence[str], bandwidth: float | None, flops: float | None, quick: bool = False
    ) -> None:
        self._names = tuple(names)
        self._peaks = bandwidth, flops
        self._quick = quick
        self._samples: dict[str, list[Sample]] = {}
        self._roofs: dict[str, Roof | None] = {}

    def __call__(self, trace: Trace, hop: int) -> Alone:
        recorded = recorded_call(trace, hop)
        try:
            # The user's own script has just run it.
            call = rebuilt(recorded, nullcontext, imported=True, unsafe=True)
            call = replace(call, op=seen(call.op))
            if why := why_not_here(call):
                return Alone(why=why)
            self._samples.setdefault(recorded.op, []).append(_sample(call))
            return self._made(call, self._limit(trace, recorded, call))
        except (CannotReplayError, StrangeTextError) as error:
            return Alone(why=str(error))
        except Exception as error:  # of stock: values are random
            return Alone(why=f"stock raised {_said(error)} with random values")

    def trials(self, operators: Collection[str]) -> Trials:
        try:
            switch = Switch(self._names)
        except CannotCompareError as error:
            return Trials(not_tried=(("all kinds", str(error)),))
        of_script = {operator: self._samples.get(operator, []) for operator in operators}
        return run_trials(switch, quick=self._quick, of_script=of_script)

    def _made(self, call: Call, limit: Limit | None) -> Alone:
        run = runner(call, None, None)
        stock, memory = tensors_in(run()), memory_of(run, _device(call))
        repeats = same_results(stock, tensors_in(run()))  # else they are random, or not initialised
        exact = exact_results(call) if repeats else None
        of_stock = errors(stock, exact)
        ours: list[Deviation | None] = []
        memories: tuple[Memory | None, Memory | None] = (memory, None)
        wrong = ""
        if _device(call) == CPU:
            with overrides.use(*self._names):
                wrong = end_of(run)
        if wrong:
            return Alone((_worst(of_stock), None), memories, limit, wrong=wrong)
        try:
            with overrides.use(*self._names):
                results = tensors_in(run())
                memories = memory, memory_of(run, _device(call))
            ours = errors(results, exact)
            wrong = _other_form(stock, results)
            if repeats and not wrong:
                wrong = _other_values(stock, results, of_stock, ours)
        except Exception as error:
            wrong = f"it raised {_said(error)}"
        return Alone((_worst(of_stock), _worst(ours)), memories, limit, wrong=wrong)

    def _limit(self, trace: Trace, recorded: RecordedCall, call: Call) -> Limit | None:
        rows = [
            {"shape": tensor.shape, "stride": tensor.stride, "dtype": tensor.dtype}
            for tensors in (recorded.tensors or {}).values()
            for tensor in tensors
        ]
        device = _device(call)
        if device not in self._roofs:
            self._roofs[device] = self._roof(trace, device)
        roof = self._roofs[device]
        case = Case("", recorded.op, (), mode=TF32 if _in_tf32() else STRICT)
        return limit_of(roof, case, work_of(recorded.op, rows)) if roof else None

    def _roof(self, trace: Trace, device: str) -> Roof | None:
        if device == CPU:
            return CpuRoof(*self._peaks)
        facts = facts_of_gpu(trace)
        return GpuRoof(facts, *self._peaks) if facts else None


def _sample(call: Call) -> Sample:
    sizes = ", ".join("x".join(map(str, plan.shape)) or "1" for plan in plans(call.values))
    return Sample(OF_SCRIPT, sizes or "no tensors", lambda: call.split(call.made(seed=None)), call.op)


def _device(call: Call) -> str:
    return CUDA if any(device.startswith("cuda") for device in call.devices) else CPU


def _in_tf32() -> bool:
    import torch

    return bool(torch.backends.cuda.matmul.allow_tf32)


def _said(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "").rstrip(".")
    return f"{type(error).__name__}: {first}"


def _worst(found: list[Deviation | None]) -> Deviation | None:
    """NaN is the worst."""
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: (one.relative != one.relative, one.relative), default=None)


def _other_form(stock: list[Any], ours: list[Any]) -> str:
    if len(stock) != len(ours):
        return f"it returned {len(ours)} tensors, but stock {len(stock)}"
    return next(filter(None, map(different_form, stock, ours)), "")


def _other_values(
    stock: list[Any], ours: list[Any], of_stock: list[Deviation | None], of_ours: list[Deviation | None]
) -> str:
    for one, other, theirs, here in zip(stock, ours, of_stock, of_ours, strict=True):
        if theirs is not None and here is not None:
            if not here.relative <= loose(str(one.dtype).removeprefix("torch."), theirs.relative):
                return f"relative error {here.relative:.2g}, but stock has {theirs.relative:.2g}"
        elif not one.is_floating_point() and same_results([one], [other]) is False:
            return "other values than stock's"
    return ""
