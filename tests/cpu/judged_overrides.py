"""By which trial each wrong override is found:

python tests/cpu/judged_overrides.py [--key CUDA] [NAME]...      a table in markdown
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tracer import overrides
from tracer.compare.switch import Switch
from tracer.compare.trial_runs import Missing, TrialResult
from tracer.compare.trials import made_trials


class Wrong(NamedTuple):
    """`how`: in what it is wrong."""

    operator: str
    how: str
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.function.__name__


Add = Callable[[str, str], Callable[[Callable[..., Any]], Callable[..., Any]]]


def decorator(into: list[Wrong]) -> Add:
    """It adds a function with its operator, and in what it is wrong."""

    def wrong(operator: str, how: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            into.append(Wrong(operator, how, function))
            return function

        return add

    return wrong


def first_found(one: Wrong, *, quick: bool = False, key: str = "CPU") -> TrialResult | None:
    """The first trial that finds it; the override is registered and enabled only here."""
    overrides.register(one.operator, key, one.function, name="wrong")
    try:
        with closing(made_trials(Switch(["wrong"]), Missing(), quick=quick)) as results:
            return next((result for result in results if result.wrong), None)
    finally:
        overrides.unregister("wrong")


def floats(*tensors: torch.Tensor) -> bool:
    return all(tensor.dtype == torch.float32 for tensor in tensors)


def number(value: Any) -> torch.Tensor:
    """torch hands a number that stands for a tensor over as a number."""
    return value if isinstance(value, torch.Tensor) else torch.tensor(value)


def known() -> list[Wrong]:
    """All that the repository has, those of test_compare_trials.py too."""
    import further_wrong_overrides
    import paired_wrong_overrides
    import subtly_wrong_overrides
    import test_compare_trials as others
    import wrong_overrides

    parametrized = (others.test_each_wrong_override_is_found, others.test_a_difference_of_one_kind_is_found)
    marks = [test.pytestmark[0] for test in (*parametrized, others.test_many_calls_find_what_one_does_not)]
    functions = dict.fromkeys(given[0] for mark in marks for given in mark.args[1])
    return [Wrong("aten::mm", function.__doc__ or "", function) for function in functions] + [
        *wrong_overrides.WRONG,
        *subtly_wrong_overrides.WRONG,
        *paired_wrong_overrides.WRONG,
        *further_wrong_overrides.WRONG,
    ]


def table(names: list[str], key: str) -> None:
    print("| override | wrong in | found by | trial | what it says | s |\n|---|---|---|---|---|--:|")
    for one in known():
        if names and one.name not in names:
            continue
        begin = time.monotonic()
        found = first_found(one, key=key)
        seconds = time.monotonic() - begin
        cells = (found.kind, found.name, found.wrong[:60]) if found else ("**not found**", "", "")
        title = f"`{one.name}` {one.operator.removeprefix('aten::')}"
        print(f"| {' | '.join((title, one.how, *cells))} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    here = Path(__file__).parent
    sys.path += map(str, (here, here.parent, here.parent / "unit"))  # as pytest has them
    of_cuda = sys.argv[1:3] == ["--key", "CUDA"]
    table(sys.argv[3 if of_cuda else 1 :], "CUDA" if of_cuda else "CPU")
