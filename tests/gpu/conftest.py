"""These tests need a CUDA GPU; elsewhere each is skipped and says why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "gdb"), str(HERE.parent / "cpu")]  # how tests there run tracer

import launching  # noqa: E402

if torch.cuda.is_available():
    launching.TIMEOUT = 120  # seconds: a script that hangs must not take all the time there is on a GPU


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="torch finds no CUDA GPU here"))
