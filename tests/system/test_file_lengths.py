"""Files stay short enough to be read at one sitting."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 500
SOURCES = (".py", ".cpp", ".h", ".cu", ".cuh", ".sh", ".cmake")


def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name.endswith(SOURCES)]


def test_no_source_file_is_too_long() -> None:
    lines = {
        name: len((ROOT / name).read_bytes().splitlines()) for name in tracked() if (ROOT / name).exists()
    }
    assert len(lines) > 300
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}
