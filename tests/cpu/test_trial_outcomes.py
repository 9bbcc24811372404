"""What is a difference between two calls, and what is rounding, or no promise."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from lazily import torch

from tracer import overrides
from tracer.compare.lost_gpu import would_be_lost
from tracer.compare.outcomes import Form, Values, difference, unsettled, values_of
from tracer.compare.switch import Switch
from tracer.compare.ties import ties_of
from tracer.compare.trial_blame import Trial, ends_with_stock, writing_beyond
from tracer.compare.trial_runs import result_of
from tracer.compare.trial_samples import USUAL, Sample
from tracer.compare.trial_stories import input_changed_in_place


def said(stock: Any, override: Any, exact: Any = None, **known: Any) -> str:
    theirs, ours = ({"values": Values(torch.as_tensor(one), **known)} for one in (stock, override))
    wide = {} if exact is None else {"values": Values(torch.as_tensor(exact, dtype=torch.float64))}
    return difference(theirs, theirs, ours, lambda: wide)


@pytest.mark.parametrize(
    ("stock", "override", "exact", "same"),
    [
        ([-2.3e-6], [1.1e-6], [0.0], True),  # rounding of both
        ([-2.3e-6], [1.1e-6], None, False),
        ([-2.3e-6], [1.1e-5], [0.0], False),  # five times as far
        ([0.9], [0.4], [0.5], False),  # other numbers were drawn in float64
        ([1.0, 2.0], [1.0, 2.00001], None, True),
        ([1.0, float("nan")], [1.0, 2.0], [1.0, 2.0], False),
        ([0.0, 1.0], [0.7, 1.0], [0.7, 1.0], True),  # what float32 cannot square, stock loses
    ],
)
def test_rounding_where_the_exact_result_is_0(
    stock: list[float], override: list[float], exact: list[float] | None, same: bool
) -> None:
    assert (said(stock, override, exact) == "") is same


def test_zeros_are_not_moved() -> None:
    """0 times -1 is an element of inputs that are zeros, and -0.0 is not."""
    inputs = [torch.tensor([0.0, 1.0])]
    assert not values_of(torch.zeros(3), inputs).moved
    assert values_of(torch.tensor([0.0, 1.0]), inputs).moved
    assert not values_of(-torch.zeros(3), inputs).moved
    assert values_of(-torch.zeros(3), [torch.tensor([-0.0, 1.0])]).moved


def test_statistics_of_infinity_are_not_finite() -> None:
    nan, inf = float("nan"), float("inf")
    assert said([nan, 1.0], [inf, 1.0])
    assert not said([nan, 1.0], [inf, 1.0], saved=True)
    assert said([nan, 1.0], [2.0, 1.0], saved=True)
    assert said([nan, 1.0], [inf, 2.0], saved=True)


def test_a_stride_of_a_dimension_of_size_1_is_no_difference() -> None:
    def differs(first: Any, second: Any) -> str:
        forms = ({"result": Form.of(torch.zeros(60).as_strided(*one), ())} for one in (first, second))
        theirs, ours = forms
        return difference(theirs, theirs, ours)

    assert not differs(((1, 3, 4), (12, 4, 1)), ((1, 3, 4), (4, 4, 1)))
    assert differs(((2, 3, 4), (12, 4, 1)), ((2, 3, 4), (4, 4, 1))).startswith("strides")


def test_what_overflows_in_float32_only_is_unsettled() -> None:
    def found(stock: float, wide: float) -> set[str]:
        pair = (torch.tensor([stock]), torch.tensor([wide], dtype=torch.float64))
        return unsettled(*({"values": Values(one)} for one in pair))

    assert found(float("inf"), 1.5) == {"values"}
    assert found(float("inf"), 1e72) == set()  # also as a float32


def test_places_of_equal_elements() -> None:
    given = torch.tensor([0.0, -0.0, 3.0])

    def ties(values: list[float], places: list[int], sorted_too: bool = True) -> Any:
        sample = Sample(USUAL, "", lambda: ([], {}), torch.ops.aten.topk.default)
        operands = [given, len(places), -1, True, sorted_too], {}
        return ties_of(sample, operands, (torch.tensor(values), torch.tensor(places)))

    one, other = ties([3.0, 0.0], [2, 0]), ties([3.0, -0.0], [2, 1])
    assert torch.equal(one.values.signbit(), other.values.signbit())
    assert all(map(torch.equal, one.picked, other.picked))
    assert one.agree
    assert other.agree
    assert not ties([3.0, 0.0], [2, 1]).agree  # the element there is -0.0
    assert not bool(ties([0.0, 0.0], [0, 0]).picked[1])
    backwards = ties([0.0, 3.0], [0, 2], sorted_too=False)
    assert torch.equal(backwards.values, ties([3.0, 0.0], [2, 0], sorted_too=False).values)


@pytest.mark.parametrize("name", ["the same bits twice", "the same bits in all calls", "gradcheck"])
def test_a_property_is_asked_only_where_stock_has_it(name: str) -> None:
    assert difference({name: True}, {name: True}, {name: False})
    for override in (True, False):
        assert not difference({name: False}, {name: False}, {name: override})


def test_what_an_override_does_not_do_is_said() -> None:
    stock = {"what it did to its inputs": "it changes input 3"}
    said = "what it did to its inputs: nothing, but of stock: it changes input 3"
    assert difference(stock, stock, {"what it did to its inputs": ""}) == said


def test_a_way_to_call_may_end_cuda_with_values_that_it_makes() -> None:
    scores, target = torch.ones(3), torch.tensor(2)
    sample = Sample(USUAL, "", lambda: ((scores.clone(), target.clone()), {}), torch.nn.functional.nll_loss)
    assert not would_be_lost(sample)
    assert would_be_lost(sample, input_changed_in_place)  # 2 + 2 is no class


@pytest.mark.parametrize(
    ("call", "operands", "lost"),
    [
        ("gather", lambda: (torch.ones(3, 4), 0, torch.full((1, 4), 7)), True),
        ("gather", lambda: (torch.ones(3, 4), 0, torch.full((1, 4), 2)), False),
        ("gather", lambda: (torch.ones(3, 4), 5, torch.full((1, 4), 2)), False),  # refused before the kernel
        ("index_select", lambda: (torch.ones(3), 0, torch.tensor([-1])), True),
        ("embedding", lambda: (torch.ones(3, 2), torch.tensor([3])), True),
        ("bernoulli", lambda: (torch.full((3,), 1.5),), True),
        ("mm", lambda: (torch.ones(2, 3), torch.ones(2, 3)), False),
        ("mm", lambda: (torch.ones(2, 3), torch.ones(3, 2, dtype=torch.float64)), False),  # meta takes it
        ("multinomial", lambda: (torch.tensor([-1.0, 2.0]), 1), True),
        ("bitwise_not", lambda: (torch.ones(2),), False),
        ("linalg_qr", lambda: (torch.ones(2, 2, dtype=torch.float16),), False),
    ],
)
def test_values_that_end_cuda_are_told_from_what_stock_refuses_before(
    call: str, operands: Callable[[], tuple[Any, ...]], lost: bool
) -> None:
    sample = Sample(USUAL, "", lambda: (operands(), {}), lambda *given: getattr(torch, call)(*given))
    assert would_be_lost(sample) is lost


@pytest.mark.parametrize("ends", [True, False])
def test_what_stock_writes_behind_a_tensor_ends_the_process_later(ends: bool) -> None:
    """It is no fault of an override that calls stock."""
    calls = 0

    def call(x: Any) -> Any:
        nonlocal calls
        calls += 1
        if ends and calls == 9:
            os.abort()
        return x + 1

    sample = Sample(USUAL, "", lambda: ([torch.ones(2)], {}), call)
    assert ends_with_stock([Trial(USUAL, sample)] * 2, "cpu") is ends
    assert calls == 0  # it was called in a fork


@pytest.mark.parametrize("scattered", [0, 20_000])
@pytest.mark.parametrize("beyond", [True, False])
def test_what_stock_writes_behind_a_tensor_is_seen(beyond: bool, scattered: int) -> None:
    """Its kernel takes every target but the ignored one for a place in a row.

    After a long program the free memory lies in many places between what it keeps.
    """
    chance = random.Random(2)
    kept = [torch.empty(chance.choice((100, 304, 800, 3000)), dtype=torch.uint8) for _ in range(scattered)]
    kept = [one for one in kept if chance.random() < 0.5]

    def make() -> tuple[list[Any], dict[str, Any]]:
        target = torch.tensor([1, -20, 2, 3, 0])  # -100 often ends the process at once
        given = [torch.ones(5), torch.randn(5, 10), target, None, 0, 7 if beyond else -20, torch.ones(())]
        return given, {}

    sample = Sample(USUAL, "", make, torch.ops.aten.nll_loss_backward.default)
    trial = Trial(USUAL, sample)
    assert writing_beyond([Trial(USUAL, Sample(USUAL, "", make, lambda *_: None)), trial]) is (
        trial if beyond else None
    )


@pytest.mark.parametrize("each", [7, 0])
def test_what_stock_did_twice_by_chance_is_no_promise(each: int) -> None:
    """A kernel whose last bit is another one in each seventh call."""
    calls = 0

    def rarely(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return torch.nextafter(x * 0.3, x) if each and calls % each == 0 else x * 0.3

    def always(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return torch.nextafter(x * 0.3, x) if calls % 2 else x * 0.3

    with torch.library._scoped_library("tracer_tests", "DEF") as library:
        library.define("rare(Tensor x) -> Tensor")
        library.impl("rare", rarely, "CPU")
        sample = Sample(USUAL, "", lambda: ([torch.ones(3)], {}), torch.ops.tracer_tests.rare.default)
        overrides.register("tracer_tests::rare", "CPU", always, name="tested")
        try:
            found, _ = result_of(Trial(USUAL, sample), Switch(["tested"]), "rare", bytearray(1))
        finally:
            overrides.unregister("tested")
    assert found is not None
    assert found.wrong == ("" if each else "the same bits twice False, but stock True")
