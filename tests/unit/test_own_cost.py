"""What a hop costs, from what the process timed."""

from __future__ import annotations

from typing import Any

import pytest

from tracer.analysis.own_cost import HopCost, own_cost


def events(number: int, before: float, after: float) -> dict[str, Any]:
    return {"events": number, "slow": 0, "before_ns": before, "after_ns": after}


def timed(number: int, outermost: float, inner: float) -> dict[str, Any]:
    return {
        "outermost": events(number, outermost, 10),
        "inner": events(number, inner, 10),
        "exit": events(2 * number, 10, 10),
    }


def stated(program: dict[str, Any]) -> dict[str, Any]:
    loop = {"outermost": {**timed(500, 70, 20), "ns": 150.0}, "inner": {**timed(500, 70, 20), "ns": 60.0}}
    return {"own_cost": {0: {"program": program, "loop": loop}}}


def test_a_loop_is_scaled_by_what_its_events_take_in_the_program() -> None:
    found = own_cost(stated(timed(100, 170, 70)), 0)
    assert found is not None
    # Outermost: events take 200 in the program, 100 in the loop. Inner: 100 and 50.
    assert found.outermost == HopCost(inside_ns=20, around_ns=150 * 2 - 20)
    assert found.inner == HopCost(inside_ns=20, around_ns=60 * 2 - 20)
    assert (found.outermost.ns, found.timed) == (300, 400)


def test_few_events_say_nothing_and_the_loop_stays() -> None:
    found = own_cost(stated(timed(3, 170, 70)), 0)
    assert found is not None
    assert (found.outermost.ns, found.inner.ns, found.timed) == (150, 60, 0)


@pytest.mark.parametrize(
    "certificate", [{}, {"own_cost": {}}, {"own_cost": {0: {}}}, {"own_cost": {1: {"loop": {}}}}]
)
def test_a_process_that_measured_nothing_has_no_cost(certificate: dict[str, Any]) -> None:
    assert own_cost(certificate, 0) is None


def test_what_a_damaged_document_lacks_counts_as_nothing() -> None:
    certificate = stated(timed(100, 170, 70))
    certificate["own_cost"][0]["loop"]["inner"] = {"ns": 60.0}
    assert own_cost(certificate, 0) is None


@pytest.mark.parametrize("ns", [1e308, -1e308, float("nan"), 1e10])
def test_what_is_no_cost_of_a_hop_is_not_known(ns: float) -> None:
    """A ledger of such a document ended in `cannot convert float NaN to integer`."""
    document = stated(timed(100, 170, 70))
    document["own_cost"][0]["loop"]["inner"]["ns"] = ns
    assert own_cost(document, 0) is None
