"""What an experiment runs: the recorded work as it was, and changed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from tracer.advice.experiments import Attention, Experiment, OptimizerStep, Recorded, Sized, SparseTable
from tracer.base.boundary import is_here, torch_dtype
from tracer.compare.timing import Run
from tracer.experiments.optimizers import kind_of, variant
from tracer.replay.recipe import tensor as make_tensor
from tracer.replay.replay_errors import CannotReplayError

_OPTIONS: dict[str, dict[str, bool]] = {
    "foreach=False": {"foreach": False},
    "foreach=True": {"foreach": True},
    "fused=True": {"fused": True},
}

_SAMPLE_NS, _MOST_CALLS = 300_000, 64
_DROPPED = 0.1  # of the weights; what it costs is not less or more with another share


@dataclass(frozen=True)
class Pair:
    """Work as it was, changed, and as it was with tensors of its own.

    `ns`: what it takes of a step; `times`: how many runs a step has.
    """

    before: Run
    after: Run
    again: Run
    ns: float = 1.0
    device: str = "cpu"
    times: float = 1.0


def pairs_of(experiment: Experiment, trace: str) -> list[Pair]:
    """Raises what making the tensors or the first calls raises, and CannotReplayError."""
    device = getattr(experiment, "device", "cpu").partition(":")[0]
    if not is_here(device):
        raise CannotReplayError(f"torch finds no {device.upper()} device here")
    match experiment:
        case OptimizerStep():
            return [_optimizer(experiment)]
        case SparseTable():
            return [_table(experiment)]
        case Attention():
            return [_attention(experiment)]
        case Recorded():
            return _recorded(experiment, trace)
    raise TypeError(f"{type(experiment).__name__} is not measured in pairs")


def _optimizer(experiment: OptimizerStep) -> Pair:

    now, to = _OPTIONS[experiment.now], _OPTIONS[experiment.to]
    flags = variant(experiment.name, now, experiment.ops, experiment.device)

    def of(option: dict[str, bool]) -> Run:
        parameters = [_parameter(sized, experiment.device) for sized in experiment.parameters]
        made = kind_of(experiment.name)(parameters, lr=1e-4, **flags, **option)
        made.step()
        return cast("Run", made.step)

    return Pair(of(now), of(to), of(now), device=experiment.device)


def _parameter(sized: Sized, device: str) -> Any:
    import torch

    shape, dtype = sized
    found = torch.nn.Parameter(torch.randn(tuple(shape), device=device, dtype=torch_dtype(dtype)))
    found.grad = torch.randn_like(found)
    return found


def _table(experiment: SparseTable) -> Pair:
    import torch

    rows, width = experiment.rows, experiment.width
    where = {"device": experiment.device, "dtype": torch_dtype(experiment.dtype)}
    indices = torch.randint(0, rows, (experiment.indices,), device=experiment.device)

    now = _OPTIONS[experiment.now]
    flags = variant(experiment.name, now, experiment.ops, experiment.device)
    dense = partial(kind_of(experiment.name), lr=1e-4, **flags, **now)
    sparsely = {"SGD": torch.optim.SGD, "Adagrad": torch.optim.Adagrad}.get(
        experiment.name, torch.optim.SparseAdam
    )

    def of(sparse: bool) -> Run:
        table = torch.nn.Embedding(rows, width, sparse=sparse, **where)
        optimizer = (partial(sparsely, lr=1e-4) if sparse else dense)(table.parameters())

        def run() -> None:
            table(indices).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    return Pair(of(False), of(True), of(False), device=experiment.device, times=experiment.times)


def _attention(experiment: Attention) -> Pair:
    import torch
    from torch.nn.functional import dropout, scaled_dot_product_attention

    def operands() -> list[Any]:
        dtype = torch_dtype(experiment.dtype)
        made = [
            make_tensor(tuple(shape), tuple(stride), dtype, experiment.device)
            for shape, stride in (experiment.query, experiment.key, experiment.value)
        ]
        return [one.requires_grad_(experiment.backward) for one in made]

    masked, mask = _mask(experiment)
    share = _DROPPED if experiment.dropout else 0.0

    def by_hand(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k
        if experiment.scaled:
            scores = scores / math.sqrt(q.shape[-1])
        weights = masked(scores).softmax(-1)
        return (dropout(weights, share) if share else weights) @ v

    def fused(q: Any, k: Any, v: Any) -> Any:
        k = k.transpose(-1, -2)
        given = mask
        if q.ndim == 3:
            q, k, v = (one[:, None] for one in (q, k, v))
            given = mask[:, None] if mask is not None and mask.ndim == 3 else mask
        scale = None if experiment.scaled else 1.0
        return scaled_dot_product_attention(q, k, v, attn_mask=given, dropout_p=share, scale=scale)

    def of(function: Callable[..., Any]) -> Run:
        values = operands()

        def run() -> None:
            found = function(*values)
            if experiment.backward:
                found.backward(torch.ones_like(found))
                for one in values:
                    one.grad = None

        return run

    return Pair(of(by_hand), of(fused), of(by_hand), device=experiment.device, times=experiment.times)


def _mask(experiment: Attention) -> tuple[Callable[[Any], Any], Any]:
    """What masks scores by hand, and the mask for the fused kernel: it hides nothing, and costs the same."""
    import torch

    if experiment.mask is None:
        return (lambda scores: scores), None
    op, shape, dtype = experiment.mask
    shape = tuple(shape)
    if op.startswith("add"):
        added = torch.zeros(shape, dtype=torch_dtype(dtype), device=experiment.device)
        return (lambda scores: scores + added), added
    seen = torch.ones(shape, dtype=torch.bool, device=experiment.device)
    hidden = ~seen
    if op == "where":
        least = torch.tensor(float("-inf"), dtype=torch_dtype(experiment.dtype), device=experiment.device)
        return (lambda scores: torch.where(seen, scores, least)), seen
    return (lambda scores: scores.masked_fill(hidden, float("-inf"))), seen


def _recorded(experiment: Recorded, path: str) -> list[Pair]:
    from tracer.analysis.recorded_call import recorded_call
    from tracer.replay.call import runner
    from tracer.replay.fitting import rebuilt
    from tracer.trace import load

    trace = load(path)
    found = []
    for hop, ns, calls in zip(experiment.calls, experiment.ns, experiment.times, strict=True):
        call = rebuilt(recorded_call(trace, hop), nullcontext)
        changed = _changed(call, experiment)
        device = "cuda" if any(one.startswith("cuda") for one in call.devices) else "cpu"
        before, again = (runner(call, None, None) for _ in range(2))
        times = _times(before)
        after = _several(runner(changed, None, None), times, lambda: _setting(experiment))
        before, again = (_several(run, times, nullcontext) for run in (before, again))
        found.append(Pair(before, after, again, ns, device, calls / times))
    return found


def _changed(call: Any, experiment: Recorded) -> Any:
    """The same call with other strides or dtypes, where that is the change."""
    from tracer.replay.arguments import TensorPlan

    def planned(value: Any) -> Any:
        if isinstance(value, list):
            return [planned(one) for one in value]
        if not isinstance(value, TensorPlan):
            return value
        if experiment.change == "channels_last" and len(value.shape) == 4:
            _, channels, height, width = value.shape
            return replace(value, stride=(channels * height * width, 1, width * channels, channels))
        if experiment.change == "dtype" and value.dtype == "float64":
            return replace(value, dtype=experiment.to)
        return value

    arguments = [replace(one, value=planned(one.value)) for one in call.arguments]
    return replace(call, arguments=arguments)


def _setting(experiment: Recorded) -> AbstractContextManager[Any]:
    import torch

    from tracer.replay.change import recorded_threads, set_tf32, set_threads

    match experiment.change:
        case "threads":
            return set_threads(recorded_threads(int(experiment.to)))
        case "tf32":
            return set_tf32(True)
        case "no_grad":
            return torch.inference_mode()
    return nullcontext()


def _times(run: Run) -> int:
    """Calls a sample: enough that changing a setting, once a sample, is little of it."""
    run()
    begin = time.perf_counter_ns()
    run()
    return max(1, min(_MOST_CALLS, _SAMPLE_NS // max(time.perf_counter_ns() - begin, 1)))


def _several(run: Run, times: int, context: Callable[[], AbstractContextManager[Any]]) -> Run:
    def several() -> None:
        with context():
            for _ in range(times):
                run()

    return several
