"""tests/README.md names each test file that asks for fresh interpreters, and no other."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_the_readme_lists_what_runs_in_fresh_interpreters() -> None:
    asks = re.compile(r"mark\.fresh|fresh=True\)  #")
    marked = {path.stem for path in (TESTS / "cpu").glob("test_*.py") if asks.search(path.read_text())}
    text = (TESTS / "README.md").read_text()
    rows = text.partition("| tests | why |\n")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`(test_\w+)`", rows))
    automatic = {"test_pip"}  # its runs are fresh by themselves
    assert marked <= listed
    assert listed - automatic == marked
