"""Tensors that are spread over ranks: tracer counts the op calls that torch's own profiler counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_witness import unobserved_operators

RANK = Path(__file__).with_name("rank.py")


RANKS = 2


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank of one job counted, by program."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    folder = tmp_path_factory.mktemp("ranks")
    running = [
        subprocess.Popen(
            [sys.executable, RANK, str(rank), str(RANKS), folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(RANKS)
    ]
    finished = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * RANKS, finished
    return [json.loads(out.splitlines()[-1]) for out, _ in finished]


@pytest.mark.parametrize("program", ["dtensor", "fsdp2", "tensor_parallel"])
def test_op_calls_of_each_rank(counted: list[dict[str, Any]], program: str) -> None:
    unobserved = unobserved_operators()
    assert len(counted) == RANKS
    for counts in (each[program] for each in counted):
        traced = {op: n for op, n in counts["tracer"].items() if op.partition(".")[0] not in unobserved}
        assert sum(traced.values()) > 30
        assert traced == counts["profiler"]
