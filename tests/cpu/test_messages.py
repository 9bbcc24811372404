"""Sends and receives of real ranks on gloo: matched, with what the receiver waited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launching import Launcher
from stored import recorded_once

import tracer

SCRIPT = """\
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
back = dist.new_group([2, 1])
dist.new_group([0, 2], group_desc="ends")
x = torch.ones(4)
for i in range(4):
    if rank == 0:
        time.sleep(0.1)
        dist.send(x, 1, tag=i)
    elif rank == 1:
        dist.recv(x, 0, tag=i)
        x.add_(1)
        y = torch.ones(8)
        asked = [dist.P2POp(dist.isend, y, 2, back), dist.P2POp(dist.irecv, x, 2, back)]
        for work in dist.batch_isend_irecv(asked):
            work.wait()
        x.neg()
    else:
        y = torch.ones(8)
        dist.irecv(y, 1, back).wait()
        y.neg()
        time.sleep(0.03)
        dist.isend(x, 1, back).wait()
if rank == 2:
    dist.recv(x)
elif rank == 1:
    dist.send(x, 2)
dist.barrier()
dist.destroy_process_group()
"""


def make(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    done = launcher.job(3, "-o", "job/", "script.py")
    assert done.status == 0, done.err


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return recorded_once(tmp_path_factory.mktemp("messages"), make)


@pytest.fixture(scope="module")
def document(recorded: Launcher) -> dict[str, Any]:
    return dict(json.loads(recorded.run([str(recorded.tracer), "report", "job", "--json"]).out))


@pytest.mark.promise("docs/jobs.md")
def test_the_rank_that_starves_another_is_named_with_both_lines(recorded: Launcher) -> None:
    page = recorded.run([str(recorded.tracer), "report", "job"]).out
    assert "**Rank 1 waited for messages**: " in page
    assert "most for rank 0: `script.py:13` -> `script.py:15`. There `script.py:" in page
    assert "-> script.py:13` (`dist.send(x, 1, tag=i)`) took " in page
    assert "No collective of two ranks or more" not in page


def test_messages_are_matched_by_group_tag_and_number(document: dict[str, Any]) -> None:
    rows = {(row["sender"], row["receiver"]): row for row in document["messages"]}
    assert {pair: (row["times"], row["bytes"]) for pair, row in rows.items()} == {
        (0, 1): (4, 16),
        (1, 2): (4, 32),
        (2, 1): (4, 16),
    }
    assert rows[0, 1]["total_ns"] == pytest.approx(4 * 100e6, rel=0.5)
    assert rows[2, 1]["total_ns"] == pytest.approx(4 * 30e6, rel=0.8)
    stages = {row["rank"]: row for row in document["stages"]}
    assert [stages[rank]["unmatched"] for rank in range(3)] == [0, 0, 1], "one from any rank"
    assert stages[1]["most_from"] == 0


def test_groups_have_their_ranks_in_their_order(recorded: Launcher) -> None:
    found = {}
    for path in sorted(Path(recorded.folder, "job").glob("*.trace")):
        for row in tracer.load(path).process_groups.iter_rows(named=True):
            found.setdefault(path.stem, []).append((row["ranks"], row["description"]))
    everyone = ([0, 1, 2], "default_pg")
    assert found["rank0"] == [everyone, ([0, 2], "ends")]
    assert found["rank1"] == [everyone, ([1, 2], "undefined")]
    assert found["rank2"] == [everyone, ([1, 2], "undefined"), ([0, 2], "ends")]


def test_a_fleet_has_the_same_messages(recorded: Launcher, document: dict[str, Any]) -> None:
    command = [str(recorded.tracer), "fleet", "job", "-o", "out", "-j", "1", "--json"]
    fleet = json.loads(recorded.run(command).out)
    assert fleet["messages"] == document["messages"]
    assert fleet["stages"] == document["stages"]
