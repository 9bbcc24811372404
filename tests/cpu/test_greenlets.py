"""Programs with greenlets: each has modules of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from lazily import torch

import tracer

greenlet = pytest.importorskip("greenlet")


def modules(path: Path, op: str) -> Counter[str | None]:
    calls = tracer.load(path).hops.filter((pl.col("op") == op) & (pl.col("kind") == "call"))
    return Counter(calls["module"].cast(pl.String).to_list())


def take_turns(*functions: object) -> None:
    """Run them as greenlets that switch to the next one after each step."""
    running = [greenlet.greenlet(function) for function in functions]
    while running:
        for one in running:
            one.switch()
        running = [one for one in running if not one.dead]


def pause() -> None:
    greenlet.getcurrent().parent.switch()


def pausing_model() -> torch.nn.Module:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pause()
            x = x.neg()
            pause()
            return x.neg()

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x.neg()).neg()

    return Outer()


def test_modules_belong_to_their_greenlet(tmp_path: Path) -> None:
    model, ones = pausing_model(), torch.ones(2)

    def outside() -> None:
        for _ in range(5):
            ones.cos()
            pause()

    def other() -> None:
        relu = torch.nn.ReLU()
        for _ in range(5):
            pause()
            relu(ones)

    with tracer.record(tmp_path / "run.trace"):
        take_turns(lambda: model(ones), outside, lambda: model(ones), other, outside)
        model.inner.forward = torch.neg
        model(ones)
    assert modules(tmp_path / "run.trace", "aten::cos") == {None: 10}
    assert modules(tmp_path / "run.trace", "aten::relu") == {"ReLU": 5}
    assert modules(tmp_path / "run.trace", "aten::neg") == {"Outer": 6, "inner": 5}


def test_the_main_greenlet_too(tmp_path: Path) -> None:
    ones = torch.ones(2)

    class Switches(torch.nn.Module):
        def forward(self, other: object) -> None:
            other.switch()  # type: ignore[attr-defined]
            ones.neg()

    with tracer.record(tmp_path / "run.trace"):
        Switches()(greenlet.greenlet(lambda: ones.cos()))
    assert modules(tmp_path / "run.trace", "aten::cos") == {None: 1}
    assert modules(tmp_path / "run.trace", "aten::neg") == {"Switches": 1}


def test_a_greenlet_that_is_killed_in_a_module(tmp_path: Path) -> None:
    model, ones = pausing_model(), torch.ones(2)
    with tracer.record(tmp_path / "run.trace"):
        one = greenlet.greenlet(model)
        one.switch(ones)
        ones.cos()
        one.throw()
        ones.cos()
        del one
        for _ in range(100):
            greenlet.greenlet(ones.cos).switch()
    assert modules(tmp_path / "run.trace", "aten::cos") == {None: 102}


def test_the_programs_trace_function_is_called_and_put_back(tmp_path: Path) -> None:
    seen = []
    before = greenlet.settrace(lambda event, switched: seen.append(event))
    try:
        mine = greenlet.gettrace()
        with tracer.record(tmp_path / "run.trace"):
            torch.nn.Identity()(torch.ones(2))
            greenlet.greenlet(torch.ones(2).cos).switch()
        assert seen == ["switch", "switch"]
        assert greenlet.gettrace() is mine
    finally:
        greenlet.settrace(before)
    assert greenlet.gettrace() is None


def test_a_trace_function_in_the_place_of_ours_makes_modules_null(tmp_path: Path) -> None:
    ones = torch.ones(2)
    with tracer.record(tmp_path / "run.trace"):
        torch.nn.ReLU()(ones)
        before = greenlet.settrace(lambda event, switched: None)
        torch.nn.ReLU()(ones)
        greenlet.settrace(before)
    assert modules(tmp_path / "run.trace", "aten::relu") == {"ReLU": 1, None: 1}
    trace = tracer.load(tmp_path / "run.trace")
    assert any("greenlet.settrace" in line for line in trace.certificate["not_visible"])
    with tracer.record(tmp_path / "next.trace"):
        torch.nn.ReLU()(ones)
    trace = tracer.load(tmp_path / "next.trace")
    assert not any("greenlet.settrace" in line for line in trace.certificate["not_visible"])


def test_modules_that_await(tmp_path: Path) -> None:
    """A call of an `async def forward` ends at once; what it calls when it is awaited has its own module."""
    import asyncio

    ones = torch.ones(2)

    class Awaits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = torch.nn.ReLU()

        async def forward(self, x: torch.Tensor) -> torch.Tensor:
            await asyncio.sleep(0)
            x = self.relu(x.neg())
            await asyncio.sleep(0)
            return x

    async def outside() -> None:
        for _ in range(4):
            ones.cos()
            await asyncio.sleep(0)

    async def main() -> None:
        model = Awaits()
        await asyncio.gather(model(ones), outside(), model(ones))

    with tracer.record(tmp_path / "run.trace"):
        asyncio.run(main())
    assert modules(tmp_path / "run.trace", "aten::cos") == {None: 4}
    assert modules(tmp_path / "run.trace", "aten::neg") == {None: 2}
    assert modules(tmp_path / "run.trace", "aten::relu") == {"relu": 2}
