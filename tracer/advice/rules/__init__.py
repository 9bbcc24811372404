"""The rules, in the order in which they are tried. A new rule is a file here, and a line below."""

from __future__ import annotations

from tracer.advice.rule import Rule
from tracer.advice.rules import (
    attention,
    channels_last,
    data_loader,
    dense_gradient,
    gpu_waits,
    inference,
    launch_bound,
    optimizer,
    python_loop,
    recompiles,
    threads,
    wide_numbers,
)

_EVERY: list[Rule] = [
    optimizer,
    data_loader,
    dense_gradient,
    gpu_waits,
    launch_bound,
    attention,
    channels_last,
    python_loop,
    threads,
    wide_numbers,
    inference,
    recompiles,
]


def name_of(rule: Rule) -> str:
    """As `tracer advise --rule` has it: its file's."""
    return rule.__name__.rpartition(".")[2].replace("_", "-")


RULES: dict[str, Rule] = {name_of(rule): rule for rule in _EVERY}
