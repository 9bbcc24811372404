"""The cost benchmark when it is interrupted."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")


@pytest.fixture(scope="module")
def cuda_cost():
    sys.path.insert(0, BENCHMARKS)
    try:
        import cuda_cost as module
    finally:
        sys.path.remove(BENCHMARKS)
    return module


def test_the_end_is_not_taken_for_a_visit_that_was_interrupted(cuda_cost):
    answers = '{"ns": 1.0}\\n{"verdict": "complete"}\\n'
    visited = object.__new__(cuda_cost.Visited)
    visited.error, visited.figures = None, {}
    visited._process = subprocess.Popen(
        [sys.executable, "-c", f"input(); print('{answers}', end='', flush=True)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    visited.end()
    assert visited.figures == {"verdict": "complete"}
