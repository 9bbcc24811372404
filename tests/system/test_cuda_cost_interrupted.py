"""The cost benchmark when it is interrupted."""

import subprocess
import sys

import pytest
from benchmark_modules import benchmark


@pytest.fixture(scope="module")
def cuda_cost():
    return benchmark("cuda_cost")


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
