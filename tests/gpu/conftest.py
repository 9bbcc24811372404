"""These tests need a CUDA GPU; elsewhere each is skipped and says why."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from lazily import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "gdb"), str(HERE.parent / "cpu")]  # how tests there run tracer

import launching  # noqa: E402
from override_calls import dtype_of  # noqa: E402

if Path("/dev/nvidiactl").exists():  # the driver's; torch is not imported to find out
    launching.TIMEOUT = 120  # seconds: a script that hangs must not take all the time there is on a GPU
    # Else the first test that compiles in this process leaves the workers of Inductor behind.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def pytest_itemcollected(item: pytest.Item) -> None:
    """pytest asks for tests of this folder only."""
    item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True, scope="session")
def gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA GPU here")
    launching.cache_folder()  # of all tests: the first one that needs it does not leave it behind


@pytest.fixture
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return dtype_of(request.param)
