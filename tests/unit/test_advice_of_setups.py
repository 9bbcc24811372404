"""What advice says of optimizers and loaders whose options were recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from test_ledger import row, table, trace

from tracer.advice.finding import Finding
from tracer.advice.rules import data_loader, optimizer
from tracer.advice.steady import Steady
from tracer.trace.tables import schema

ADAM = "Optimizer.step#Adam.step"
LOADING = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"
LINE = "/work/train.py:7"


def steady(name: str, op: str, options: list[dict[str, Any]] | None, loaders: list[dict[str, Any]]) -> Steady:
    """Three steps of 1,000 ns with ten ops of 60 ns in a range of this name; the optimizer is torch's."""
    ops, ranges = [], []
    for step in range(3):
        first = 1000 * step
        ops += [
            row(
                10 * step + n,
                f"aten::{op}",
                "CPU",
                first + 80 * n,
                first + 80 * n + 60,
                step=step,
                kind="call",
                range=name,
                source=LINE,
            )
            for n in range(10)
        ]
        ranges.append(
            {"id": step, "name": name, "process": 0, "start_ns": first, "end_ns": first + 900, "step": step}
        )
    kinds = [
        (0, 0, "torch.optim.adam.Adam", 10 + number, json.dumps(one))
        for number, one in enumerate(options or [])
    ]
    made = trace(
        ops,
        (1000, 2000, 3000),
        certificate={},
        ranges=table([dict.fromkeys(schema.RANGES) | one for one in ranges], schema.RANGES),
        optimizers=pl.DataFrame(kinds, schema.OPTIMIZERS, orient="row"),
        loaders=pl.DataFrame([{"process": 0, **one} for one in loaders], schema.LOADERS),
    )
    return Steady.of(made)  # type: ignore[arg-type]


def of_optimizer(op: str, *options: dict[str, Any]) -> list[Finding]:
    return list(optimizer.find(steady(ADAM, op, list(options), [])))


def test_the_class_and_the_flags_that_ran_are_said() -> None:
    found = of_optimizer("addcdiv_", {"foreach": None}, {"foreach": False, "fused": None, "capturable": True})
    assert [one.do.partition(":")[0] for one in found] == ["Adam(..., fused=True)", "Adam(..., foreach=True)"]
    assert {one.evidence.partition("; ")[2] for one in found} == {
        "it is Adam(foreach=False, fused=None, capturable=True)"
    }
    assert "it is" not in of_optimizer("addcdiv_")[0].evidence


@pytest.mark.parametrize("options", [{"fused": True}, {"differentiable": True}])
def test_nothing_is_said_of_an_optimizer_that_is_fused_or_cannot_be(options: dict[str, Any]) -> None:
    assert not of_optimizer("addcdiv_", options)


def test_a_learning_rate_that_is_a_tensor_is_known_without_its_ops() -> None:
    (found,) = of_optimizer("addcdiv_", {"lr": "tensor"})
    assert found.do.startswith("Adam(..., fused=True)")
    assert found.evidence.endswith("it is Adam(foreach=None, fused=None, lr=Tensor)")


def test_a_class_of_the_program_is_not_told_what_torch_takes() -> None:
    known = steady(ADAM, "addcdiv_", [{}], [])
    mine = known.trace.optimizers.with_columns(pl.lit("__main__.Adam").alias("class"))
    assert list(optimizer.find(known))
    assert not list(optimizer.find(replace(known, trace=replace(known.trace, optimizers=mine))))  # type: ignore[type-var]


@pytest.mark.parametrize(("length", "said"), [(None, "2 parameters of 10"), (5, "5 parameters of about 26")])
def test_of_a_list_that_was_cut_the_whole_number_is_tried(length: int | None, said: str) -> None:
    known = steady(ADAM, "_foreach_addcdiv_", [{}], [])
    rows = [(7, 0, [n], [1], "torch.float32", "cpu", True, None, None, length) for n in (6, 4)]
    signatures = pl.DataFrame(rows, dict(schema.SIGNATURES), orient="row")
    hops = known.trace.hops.with_columns(inputs=pl.when(pl.col("id") % 10 == 9).then(7).cast(pl.UInt32))
    (found,) = optimizer.find(Steady.of(replace(known.trace, hops=hops, signatures=signatures)))  # type: ignore[type-var]
    assert f"10 op calls a step for {said} numbers, in lists" in found.evidence
    assert found.experiment.parameters[:2] == (((6,), "float32"), ((4,), "float32"))  # type: ignore[union-attr]
    assert len(found.experiment.parameters) == (length or 2)  # type: ignore[union-attr]


def of_loader(kind: str, *loaders: dict[str, Any]) -> Finding:
    (found,) = data_loader.find(steady(LOADING.format(kind), "select", None, list(loaders)))
    return found


ALONE = {"num_workers": 0, "batch_size": 32, "pin_memory": False, "persistent_workers": False}


def test_the_settings_of_the_loader_are_said() -> None:
    found = of_loader("SingleProcess", ALONE, {**ALONE, "num_workers": 2, "batch_size": 8})
    assert found.evidence.endswith(
        "; it is DataLoader(num_workers=0, batch_size=32, pin_memory=False, persistent_workers=False)"
    )
    found = of_loader("MultiProcessing", ALONE, {"num_workers": 2, "prefetch_factor": 4})
    assert found.do.startswith("more workers than 2, or less work a row")
    assert (
        found.evidence == "the step waits for its workers; it is DataLoader(num_workers=2, prefetch_factor=4)"
    )


def test_of_several_loaders_none_is_said() -> None:
    several = {"num_workers": 2, "batch_size": 8}, {"num_workers": 4, "batch_size": 8}
    found = of_loader("MultiProcessing", *several)
    assert found.do.startswith("more workers than 4, or")
    assert found.evidence == "the step waits for its workers"
    assert of_loader("MultiProcessing").do.startswith("more workers, or")
