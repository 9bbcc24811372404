"""Tensors that are spread over ranks: tracer counts the op calls that torch's own profiler counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_witness import unobserved_operators

RANK = Path(__file__).with_name("rank.py")


@pytest.mark.parametrize("program", ["dtensor", "fsdp2", "tensor_parallel"])
def test_op_calls_of_each_rank(tmp_path: Path, program: str) -> None:
    ranks = 2
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, RANK, program, str(rank), str(ranks), tmp_path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(ranks)
    ]
    finished = [process.communicate() for process in running]
    unobserved = unobserved_operators()
    for process, (out, err) in zip(running, finished, strict=True):
        assert process.returncode == 0, err
        counts = json.loads(out.splitlines()[-1])
        traced = {op: n for op, n in counts["tracer"].items() if op.partition(".")[0] not in unobserved}
        assert sum(traced.values()) > 30
        assert traced == counts["profiler"]
