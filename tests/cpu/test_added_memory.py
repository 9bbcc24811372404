"""A recorded process needs at most 40 MB more than one that records nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOST = 40e6  # bytes; 32 measured on torch 2.13.0, of which 26 for 295,000 hops of 88 bytes
SCRIPT = """
import re, sys, torch, tracer, tracer._C

def anonymous():
    with open("/proc/self/status") as file:
        return int(re.search(r"RssAnon:\\s+(\\d+)", file.read())[1]) * 1024

torch.ones(4) + 1
before = anonymous()
with tracer.record(sys.argv[1]):
    torch.ones(4) + 1
    print(anonymous() - before)
"""


@pytest.mark.promise("tracer.record", "docs/cost.md")
def test_a_recording_adds_at_most_40_mb(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "x.trace")]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert 10e6 < int(said.split()[0]) <= MOST
