"""An optimizer that takes each step in many small ops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import cycle, islice

import polars as pl

from tracer.advice.experiments import OptimizerStep, Sized
from tracer.advice.finding import Finding
from tracer.advice.lines import commonest
from tracer.advice.often import often
from tracer.advice.optimizers import Group, groups_of, last_step, of_steps, option_of
from tracer.advice.steady import Steady
from tracer.analysis.phases import OF_STEPS
from tracer.trace.tables.schema import MOST_TENSORS

looks_for = (
    "steps of Adam, AdamW, SGD or Adagrad that run ops for each parameter, or lists of them, not fused"
)
threshold = "2 % of a step: what remains of a fused step is not known without an experiment"
needs: tuple[str, ...] = ("shapes", "sources")

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
LEAST = 0.02
_RATE = r"^aten::(div|neg|mul)\b"
_LAST_OPS = ("addcdiv_", "add_")
"""What changes a parameter: of each it runs once"""
_MOST = 1 << 14
"""Parameters, of a trace that may be a stranger's"""


def find(steady: Steady) -> Iterator[Finding]:
    for (name,), ops in of_steps(steady).group_by("optimizer", maintain_order=True):
        cost = _time(steady, str(name))
        now = option_of(ops)
        groups = groups_of(steady, str(name))
        if (
            name not in FUSED
            or not _is_of_torch(steady, ops, groups)
            or now == "fused=True"
            or any(group.options.get("fused") or group.options.get("differentiable") for group in groups)
            or cost < LEAST * steady.step_ns
        ):
            continue
        foreach = now == "foreach=True"
        parameters, device, more, guessed = _parameters(steady, ops)
        evidence = (
            f"{often(steady.a_step(len(ops)), 'op call')}{_of_all(parameters, more, guessed)}, "
            f"{'in lists (foreach)' if foreach else 'one after another'}{_set_up(str(name), groups)}"
        )
        ran = last_step(steady, ops)
        for to, words in _choices(foreach, *_kinds(steady, ops, groups)):
            experiment = OptimizerStep(str(name), ran, parameters, device, now, to) if parameters else None
            yield Finding(
                line=commonest(ops["source"]),
                do=f"{name}(..., {to}): {words}",
                evidence=evidence,
                cost_ns=cost,
                most_ns=cost,
                hops=frozenset(ops["id"].to_list()),
                experiment=experiment,
            )


def _of_all(parameters: tuple[Sized, ...], more: str, guessed: bool) -> str:
    """` for 3 parameters of 1,234 numbers`; "" if the recording does not tell.

    `more` and `guessed` as _parameters tells them.
    """
    if not parameters:
        return ""
    numbers = sum(math.prod(shape) for shape, _ in parameters)
    noun = "parameter" if len(parameters) == 1 else "parameters"
    return f" for {len(parameters):,}{more} {noun} of {'about ' if guessed else ''}{numbers:,} numbers"


def _choices(foreach: bool, sparse: bool, rate_is_tensor: bool) -> list[tuple[str, str]]:
    """What torch's optimizers take: fused no sparse gradient, foreach no learning rate that is a tensor."""
    fused, one_op = (
        ("fused=True", "one kernel for all parameters"),
        ("foreach=True", "one op for a list of parameters"),
    )
    return [fused] * (not sparse) + [one_op] * (not foreach and not rate_is_tensor)


def _set_up(name: str, groups: list[Group]) -> str:
    """`; it is Adam(foreach=None, fused=None)`: of most parameters; "" if the recording does not tell."""
    if not groups:
        return ""
    options = groups[0].options
    said = [f"{flag}={options.get(flag)}" for flag in ("foreach", "fused")]
    said += ["capturable=True"] * (options.get("capturable") is True)
    said += ["lr=Tensor"] * (options.get("lr") == "tensor")
    return f"; it is {name}({', '.join(said)})"


def _kinds(steady: Steady, ops: pl.DataFrame, groups: list[Group]) -> tuple[bool, bool]:
    """Whether a gradient is sparse, and whether a learning rate is a tensor.

    Where that is not recorded: then it is divided by a number.
    """
    used = ops["inputs"].drop_nulls().unique()
    layouts = steady.trace.signatures.filter(pl.col("id").is_in(used.implode()))["layout"].cast(pl.String)
    sparse = bool(layouts.str.contains("sparse").any())
    if groups:
        return sparse, any(group.options.get("lr") == "tensor" for group in groups)
    alone = steady.with_inputs(lambda of: bool(of) and all(one.shape == () for one in of))
    rates = ops.filter(pl.col("op").str.contains(_RATE) & pl.col("inputs").is_in(alone))
    return sparse, len(rates) > 0


def _is_of_torch(steady: Steady, ops: pl.DataFrame, groups: list[Group]) -> bool:
    """Where the class is not recorded: torch's own step has one line, that of the call; others have more."""
    if groups:
        return all(group.kind.startswith("torch.optim.") for group in groups)
    lines = ops.group_by("step", "range").agg(lines=pl.col("source").n_unique())
    ranges = steady.window(steady.trace.ranges).select("step", range=pl.col("name").cast(pl.String))
    steps = ranges.group_by("step", "range").agg(steps=pl.len())
    both = lines.join(steps, on=["step", "range"])
    return bool((both["lines"] <= both["steps"]).all())


def _time(steady: Steady, name: str) -> float:
    """From begin to end of its steps, without what recording their ops cost."""
    ranges = steady.window(steady.trace.ranges)
    mine = ranges.filter(pl.col("name").cast(pl.String) == f"{OF_STEPS}{name}.step")
    each = mine.group_by("step").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    whole = float(each["ns"].median() or 0.0) if len(each) else 0.0  # type: ignore[arg-type]
    return steady.without_own(whole, steady.hops.filter(pl.col("range") == f"{OF_STEPS}{name}.step"))


def _parameters(steady: Steady, ops: pl.DataFrame) -> tuple[tuple[Sized, ...], str, str, bool]:
    """Shape and dtype of each, the device, ` or more` if there may be others, and whether some are guessed.

    Of a list that was cut the others are as the recorded ones, in turn. Traces of 0.1.0 have no lengths of
    lists, and no optimizers.
    """
    last = ops.filter(pl.col("step") == steady.steps[-1])
    has_lengths = len(steady.trace.optimizers) > 0
    for name in _LAST_OPS:
        found: list[Sized] = []
        device, more, guessed = "cpu", "", False
        for inputs in last.filter(pl.col("op").str.contains(name, literal=True))["inputs"].to_list():
            tensors = steady.tensors(inputs)
            written = [one for one in tensors if one.position == 0 and one.requires_grad]
            sizes = [(one.shape, one.dtype) for one in written]
            longer = max((one.list_length or 0 for one in written), default=0)
            guessed |= longer > 0
            more = more if longer or len(tensors) < MOST_TENSORS or has_lengths else " or more"
            found += islice(cycle(sizes), max(len(sizes), min(longer, _MOST)))
            device = written[0].device if written else device
        if found:
            return tuple(found), device, more, guessed
    return (), "cpu", "", False
