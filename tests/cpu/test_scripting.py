"""docs/api.md: the exit status, the documents of `--json` and the ids, on a real recording."""

from __future__ import annotations

import json
from typing import Any

import pytest
from launching import Launcher, Run

import tracer

SCRIPT = """\
import torch

torch.set_num_threads(1)
weight = torch.randn(32, 32, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.01)
for step in range(10):
    torch.matmul(torch.randn(8, 32), weight).relu().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    launcher = Launcher(tmp_path_factory.mktemp("scripting"))
    launcher.write(SCRIPT)
    assert launcher.record("-o", "run.trace", "script.py").status == 0
    (launcher.folder / "cut.trace").write_bytes((launcher.folder / "run.trace").read_bytes()[:-200])
    return launcher


@pytest.fixture(scope="module")
def trace(recorded: Launcher) -> tracer.Trace:
    return tracer.load(recorded.folder / "run.trace")


def command(launcher: Launcher, verb: str, *words: str) -> Run:
    return launcher.run([str(launcher.tracer), verb, *words])


def document(launcher: Launcher, verb: str, *words: str) -> dict[str, Any]:
    run = command(launcher, verb, *words, "--json")
    assert (run.status, run.err) == (0, "")
    return dict(json.loads(run.out))


@pytest.mark.promise("certificate", "docs/api.md#exit-status")
@pytest.mark.parametrize(("name", "status"), [("run.trace", 0), ("cut.trace", 1), ("none.trace", 2)])
def test_the_exit_status_says_whether_the_trace_is_complete(
    recorded: Launcher, name: str, status: int
) -> None:
    run = command(recorded, "certificate", name)
    assert run.status == status
    assert run.out.startswith(f"{name}: complete: ") is (status == 0)


@pytest.mark.promise("certificate", "docs/api.md#json")
def test_the_document_of_a_certificate(recorded: Launcher, trace: tracer.Trace) -> None:
    found = document(recorded, "certificate", "run.trace")
    assert found["complete"] is True
    assert found["verdict"] == trace.certificate["verdict"]
    assert found["hops"] == len(trace.hops)


@pytest.mark.promise("top", "docs/tree.md#as-a-table-tracer-top", "docs/api.md#json")
def test_the_document_of_a_table(recorded: Launcher, trace: tracer.Trace) -> None:
    rows = document(recorded, "top", "run.trace", "--by", "op", "--limit", "0")["rows"]
    assert sum(row["hops"] for row in rows) == len(trace.hops)
    assert sum(row["self_ns"] for row in rows) == trace.hops["self_ns"].sum()
    assert {row["op"] for row in rows} == set(trace.hops["op"])


@pytest.mark.promise("steps", "docs/tree.md#where-the-wall-time-goes-tracer-steps")
def test_the_document_of_steps(recorded: Launcher, trace: tracer.Trace) -> None:
    found = document(recorded, "steps", "run.trace")
    steps = [row for row in found["steps"] if row["step"] is not None]
    assert [row["step"] for row in steps] == trace.steps["step"].to_list()
    lengths = (trace.steps["end_ns"] - trace.steps["start_ns"]).to_list()
    assert [row["wall_ns"] for row in steps] == lengths
    for row in steps:
        parts = [row[f"{name}_ns"] or 0 for name in ("forward", "backward", "optimizer", "outside")]
        assert sum(parts) == row["wall_ns"]


@pytest.mark.promise("tree", "docs/tree.md", "docs/api.md#ids")
def test_an_id_of_the_tree_is_a_row_of_the_table(recorded: Launcher, trace: tracer.Trace) -> None:
    lines = document(recorded, "tree", "run.trace", "--op", "aten::mm", "--limit", "0")["lines"]
    lines = [line for line in lines if line["table"] == "hops"]
    rows = [trace.hops.row(line["id"], named=True) for line in lines]
    assert len(rows) > 2
    assert [line["op"] for line in lines] == [row["op"] for row in rows]
    folded = next(line for line in lines if line["op"] == "aten::mm")
    assert folded["members"] == 10
    assert folded["id"] == trace.hops.filter(op="aten::mm")["id"].min(), "of the first of them"


@pytest.mark.promise("ledger", "docs/ledger.md")
def test_the_rows_of_a_ledger_add_up_to_the_step(recorded: Launcher, trace: tracer.Trace) -> None:
    found = document(recorded, "ledger", "run.trace", "--step", "9")
    step = trace.steps.row(9, named=True)
    assert found["wall_ns"] == step["end_ns"] - step["start_ns"]
    assert sum(row["ns"] or 0 for row in found["rows"]) == pytest.approx(found["wall_ns"])
    times = {row["layer"]: row["ns"] for row in found["rows"]}
    assert all(times[layer] > 0 for layer in ("python", "engine", "kernel", "tracer"))
    assert 0 < found["bare_ns"] < found["wall_ns"]
