"""What an experiment runs is the recorded work: the optimizer's variant, the attention's mask and dropout."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from launching import Launcher
from lazily import torch

import tracer
from tracer.advice.experiments import Attention, OptimizerStep, Recorded, SparseTable
from tracer.advice.rules import attention, dense_gradient, optimizer
from tracer.advice.steady import Steady
from tracer.experiments.optimizers import variant
from tracer.experiments.pairs import _setting, pairs_of
from tracer.experiments.run import told
from tracer.replay.replay_errors import CannotReplayError
from tracer.trace import Trace

DECAY, MAX = {"weight_decay": 0.1}, {"maximize": True}
FLAGS: dict[str, list[dict[str, Any]]] = {
    "SGD": [
        {},
        {"momentum": 0.8},
        {"momentum": 0.8, "nesterov": True},
        DECAY,
        {"momentum": 0.8, **DECAY},
        MAX,
    ],
    "Adam": [{}, {"amsgrad": True}, DECAY, {"amsgrad": True, **DECAY, **MAX}],
    "AdamW": [DECAY, {"weight_decay": 0.0}, {"amsgrad": True, **DECAY}, {**DECAY, **MAX}],
    "RMSprop": [{}, {"momentum": 0.8}, {"centered": True}, {"momentum": 0.8, "centered": True, **DECAY}],
    "Adagrad": [{}, DECAY, MAX],
}
CASES = [(name, flags, foreach) for name in FLAGS for flags, foreach in product(FLAGS[name], (False, True))]
STEPS = f"""
import torch
from torch.profiler import record_function
for number, (name, flags, foreach) in enumerate({CASES!r}):
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    for one in parameters:
        one.grad = torch.ones(3)
    made = getattr(torch.optim, name)(parameters, foreach=foreach, **flags)
    made.step()
    made.step()
    with record_function(f"case {{number}}"):
        made.step()
"""
ATTENTION = """
import torch
from torch.nn.functional import dropout
torch.manual_seed(0)
q, k, v = (torch.randn(2, 4, 96, 16, requires_grad=True) for _ in range(3))
hidden, bias = torch.ones(96, 96, dtype=torch.bool).triu(1), torch.zeros(2, 1, 1, 96)
seen, least = ~hidden, torch.tensor(-9.0)
for _ in range(9):
    scores = q @ k.transpose(-1, -2) / 4
    {mask}
    weights = torch.softmax(scores, -1)
    {dropout}
    (weights @ v).sum().backward()
    torch.zeros(3)
    import tracer; tracer.step()
"""
TABLE = """
import torch
table = torch.nn.Embedding(20000, 32)
optimizer = torch.optim.{made}
for _ in range(8):
    table(torch.randint(0, 20000, (16,))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def recorded(folder: Path, text: str) -> Trace:
    launcher = Launcher(folder)
    launcher.write(text)
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    return tracer.load(folder / "run.trace")


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """Of each case the outermost ops of a step of its optimizer."""
    trace = recorded(tmp_path_factory.mktemp("stepped"), STEPS)
    names = pl.col("name").cast(pl.String)
    cases = trace.ranges.filter(names.str.starts_with("case ")).with_columns(names)
    roots = trace.hops.filter(pl.col("parent").is_null())
    return {
        int(name.split()[1]): roots.filter(pl.col("start_ns").is_between(begin, end))["op"]
        .cast(pl.String)
        .to_list()
        for name, begin, end in cases.select("name", "start_ns", "end_ns").iter_rows()
    }


@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_variant_is_that_of_the_recorded_step(stepped: dict[int, list[str]], number: int) -> None:
    name, flags, foreach = CASES[number]
    found = variant(name, {"foreach": foreach}, stepped[number])
    defaults = {"weight_decay": 0.01} if name == "AdamW" else {}
    assert {flag for flag, value in found.items() if value} == {
        flag for flag, value in {**defaults, **flags}.items() if value
    }


def test_ops_of_another_optimizer_are_no_variant() -> None:
    with pytest.raises(CannotReplayError, match="of no known variant of SGD"):
        variant("SGD", {"foreach": False}, ["aten::mul_.Tensor", "aten::mul_.Tensor", "aten::add_.Tensor"])
    with pytest.raises(CannotReplayError, match="of no known variant of Adam"):
        variant("Adam", {"foreach": False}, [])


def test_most_parameters_decide_of_groups_with_other_flags() -> None:
    plain, decayed = ["aten::add_.Tensor"], ["aten::add.Tensor", "aten::add_.Tensor"]
    assert variant("SGD", {"foreach": False}, [*decayed, *plain, *decayed])["weight_decay"]
    assert not variant("SGD", {"foreach": False}, [*decayed, *plain, *plain])["weight_decay"]


def ops_of(run: Any) -> set[str]:
    """The ops that a run calls, as a profiler sees them; in the first one, buffers are made."""
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        run()
    return {event.key for event in seen.key_averages()}


MASKS = {
    "": "",
    "masked_fill": "scores = scores.masked_fill(hidden, -9.0)",
    "add": "scores = scores + bias",
    "where": "scores = torch.where(seen, scores, least)",
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("train", [None, True, False])
def test_an_attention_has_its_mask_and_its_dropout(tmp_path: Path, mask: str, train: bool | None) -> None:
    dropped = "" if train is None else f"weights = dropout(weights, 0.2, training={train})"
    trace = recorded(tmp_path, ATTENTION.format(mask=MASKS[mask], dropout=dropped))
    found = [one.experiment for one in attention.find(Steady.of(trace))]
    (experiment,) = found
    assert isinstance(experiment, Attention)
    assert (experiment.mask or [""])[0] == mask
    assert (experiment.dropout, experiment.times, experiment.backward) == (train is True, 1.0, True)
    ran = ops_of(pairs_of(experiment, trace.path)[0].before)
    assert {"aten::add", "aten::where", "aten::masked_fill"} & ran == ({f"aten::{mask}"} if mask else set())
    assert ("aten::dropout" in ran) == (train is True)


@pytest.mark.parametrize(
    ("made", "updates"),
    [
        ("SGD(table.parameters(), lr=0.1, momentum=0.9)", {"aten::mul_", "aten::add_"}),
        ("Adagrad(table.parameters(), foreach=True)", {"aten::_foreach_addcdiv_"}),
        ("Adam(table.parameters(), fused=True)", {"aten::_fused_adam_"}),
    ],
)
def test_a_table_has_the_optimizer_of_the_recording(tmp_path: Path, made: str, updates: set[str]) -> None:
    trace = recorded(tmp_path, TABLE.format(made=made))
    (experiment,) = [one.experiment for one in dense_gradient.find(Steady.of(trace))]
    assert isinstance(experiment, SparseTable)
    assert experiment.name == made.partition("(")[0]
    ran = ops_of(pairs_of(experiment, trace.path)[0].before)
    assert updates <= ran
    assert not {"aten::lerp_", "aten::_foreach_lerp_"} & ran  # of Adam, one after another and in lists


def test_a_trace_starts_no_threads_without_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", started.append)
    calls = Recorded((), (), (), "threads", "100000")
    with pytest.raises(CannotReplayError):
        _setting(calls)
    with pytest.raises(CannotReplayError):
        told({"kind": "Recorded", "experiment": asdict(calls), "threads": 100_000, "trace": ""})
    assert started == []


def test_a_step_runs_the_ops_of_the_recorded_one(tmp_path: Path) -> None:
    made = "SGD(table.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)"
    trace = recorded(tmp_path, TABLE.format(made=made))
    experiment, _ = [one.experiment for one in optimizer.find(Steady.of(trace))]
    assert isinstance(experiment, OptimizerStep)
    assert {"aten::mul_", "aten::add"} <= ops_of(pairs_of(experiment, trace.path)[0].before)
