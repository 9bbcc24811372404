"""The dispatcher's table, read from memory as gdb reads it, by a process in which nothing was recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from own_table import CHECKS


@pytest.fixture(scope="module")
def raised() -> dict[str, str]:
    """By check what it raised."""
    command = [sys.executable, str(Path(__file__).with_name("own_table.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, str] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("check", CHECKS)
def test_the_table(raised: dict[str, str], check: str) -> None:
    assert raised[check] == ""
