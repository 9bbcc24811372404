"""cmake/checks/same_figures.py compares what two trees say of a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import one_hop

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "cmake" / "checks"
sys.path.insert(0, str(CHECKS))

import same_figures  # noqa: E402


def figures(folder: Path, trace: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", str(CHECKS / "figures.py"), str(folder), str(trace)]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def test_a_hop_more_is_seen_in_tables_trees_and_reports(tmp_path: Path) -> None:
    for name, writer in (("old", one_hop()), ("same", one_hop()), ("new", one_hop(2))):
        figures(tmp_path / name, writer.write(tmp_path / "run.trace"))
    assert list(same_figures.differences(tmp_path / "old", tmp_path / "same")) == []
    found = dict(same_figures.differences(tmp_path / "old", tmp_path / "new"))
    assert {"run/table.hops", "run/tree", "run/top", "run/report.md", "run/certificate.json"} <= found.keys()
    assert {"-1 rows", "+2 rows"} <= set(found["run/table.hops"])


def test_a_commit_that_is_none() -> None:
    with pytest.raises(same_figures.CommitError, match="nosuch is no commit of this repository"):
        same_figures.source_of("nosuch")
