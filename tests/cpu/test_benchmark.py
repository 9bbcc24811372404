"""The benchmark runs, and its table and its JSON are complete. What it measures is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

OVERHEAD = Path(__file__).resolve().parents[2] / "benchmarks" / "overhead.py"
WORKLOADS = [
    "add 4x4",
    "mm 4x4",
    "matmul 4x4 grad",
    "empty(4)",
    "view",
    "cat 2 of 4x4",
    "transformer",
    "seq2seq",
]
VARIANTS = ["bare", "hops", "default", "prof", "prof+", "mode", "stopped", "twin"]
ROUNDS = 2


def overhead(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # torch 2.11 warns about its own profiler
    command = [sys.executable, "-W", "ignore", str(OVERHEAD), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    """What the benchmark printed and saved. Its traces go beside these tests: /tmp may be memory."""
    folder = tmp_path_factory.mktemp("overhead")
    traces = OVERHEAD.parents[1] / "build"
    traces.mkdir(exist_ok=True)
    before = set(traces.iterdir())
    done = overhead(
        folder, "--quick", "--rounds", str(ROUNDS), "--json", "saved.json", "--folder", str(traces)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not [path for path in set(traces.iterdir()) - before if path.name.startswith("overhead-")]
    return done.stdout, json.loads((folder / "saved.json").read_text())


def test_every_table_has_every_workload(ran: tuple[str, dict]) -> None:
    printed, _ = ran
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 100
    for name in WORKLOADS:
        assert sum(line.startswith(f"  {name} ") for line in lines) == 3, name
    headers = [line.split() for line in lines if line.split()[:2] == ["bare", "hops"]]
    assert headers[0] == [*VARIANTS[:-1], "hops/call", "ns/hop", "h/prof", "d/prof+"]
    assert headers[1:] == [VARIANTS, VARIANTS]
    assert "1 thread" in printed
    assert "traces on " in printed


def test_every_goal_has_a_verdict(ran: tuple[str, dict]) -> None:
    printed, saved = ran
    assert len(saved["goals"]) == 12
    for goal in saved["goals"]:
        assert goal["verdict"] in ("met", "met, aim too", "missed", "not measured")
        line = next(line for line in printed.splitlines() if line.startswith(f"  {goal['name']} "))
        assert line.endswith(goal["verdict"])


def test_the_json_is_complete(ran: tuple[str, dict]) -> None:
    _, saved = ran
    assert {"cpu", "cores", "platform", "python", "torch", "tracer", "date"} <= saved["machine"].keys()
    assert saved["settings"]["rounds"] == ROUNDS
    assert saved["settings"]["file_system"]
    assert [row["workload"] for row in saved["workloads"]] == WORKLOADS
    for row in saved["workloads"]:
        assert list(row["means"]) == list(row["longest"]) == list(row["samples"]) == VARIANTS
        assert list(row["added"]) == VARIANTS[1:]
        assert all(len(samples) == ROUNDS for samples in row["samples"].values())
        assert all(low <= middle <= high for low, middle, high in row["means"].values())
        assert all(row["longest"][key] > 0 < min(row["samples"][key]) for key in VARIANTS)
    for figures in saved["once"]:
        assert figures["first_arming_s"] > 0
        assert figures["one_mm_bytes"] > 0
        assert 55.9 <= figures["bytes_per_hop"] < 57  # what records.h says, and chunk headers


def test_hops_are_counted_by_the_recording(ran: tuple[str, dict]) -> None:
    """An op's hops are a whole number, the same in each call; a step has hundreds."""
    _, saved = ran
    for row in saved["workloads"]:
        assert row["hops"] == round(row["hops"])
        assert (1 <= row["hops"] <= 10) if row["small"] else row["hops"] > 300


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no folder in memory here")
def test_a_folder_in_memory_is_refused(tmp_path: Path) -> None:
    done = overhead(tmp_path, "--quick", "--folder", "/dev/shm")
    assert done.returncode == 1
    assert "in memory" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
