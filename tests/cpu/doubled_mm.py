"""An override of mm that doubles its result, and what the dispatch table says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lazily import torch

from tracer.overrides import register, registered, unregister


@pytest.fixture(autouse=True)
def _table_as_it_was() -> Iterator[None]:
    """Each test leaves the dispatcher and the registry as it found them."""
    watched = ("aten::mm", "aten::addmm", "aten::mm.out", "aten::neg", "aten::topk")
    before = {name: table(name) for name in watched}
    yield
    for name in set(registered()) - {"mm", "gru", "cat"}:
        unregister(name)
    assert {name: table(name) for name in watched} == before
    torch._C._dispatch_check_all_invariants()


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices that can be multiplied."""
    return torch.linspace(-1, 1, 12).view(3, 4), torch.linspace(2, 3, 20).view(4, 5)


def table(operator: str = "aten::mm") -> tuple[str, str]:
    """What each key runs, and everything that is registered."""
    return torch._C._dispatch_dump_table(operator), torch._C._dispatch_dump(operator)


def doubled(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """Twice the product: to be told from stock."""
    return torch.mm(self, mat2) * 2  # inside the override aten::mm is stock's


def registered_doubled(name: str = "doubled") -> Callable:
    return register("aten::mm", "CPU", doubled, name=name)


def ran(name: str, operator: str = "aten::mm") -> int:
    return registered()[name].ran()[operator]
