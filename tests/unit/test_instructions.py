"""benchmarks/instructions/count.py: which counts are too far from the table's; step_cost.py: its table."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def count() -> ModuleType:
    return load(BENCHMARKS / "instructions/count.py")


def test_a_count_may_be_off_by_two_percent(count: ModuleType) -> None:
    table = {"hop": 300.0, "query": 375.0}
    assert count.too_far({"hop": 305.9, "query": 367.6}, table) == []
    assert count.too_far({"hop": 306.1, "query": 375.0}, table) == ["hop"]
    assert count.too_far({"hop": 300.0, "query": 367.4}, table) == ["query"]
    assert count.too_far({"new": 1.0}, table) == ["new"]


def test_instructions_of_our_files_alone_are_counted(count: ModuleType) -> None:
    text = """
fn=(1) main
ob=(1) /usr/bin/python3
0 1000
cob=(2) /x/tracer/_C.cpython-311.so
cfn=(2) a hop
calls=2 0
0 50
ob=(2)
fn=(2)
0 30
+3 5
cob=(1)
cfn=(1)
calls=1 0
0 900
"""
    assert count.own_instructions(text, "/tracer/_C.") == 35


def test_lines_say_which_count_is_off(count: ModuleType) -> None:
    table = {"hop": 300.0}
    assert "off by more than 2 %" in count.lines({"hop": 400.0}, table, True)[1]
    assert "off by" not in count.lines({"hop": 400.0}, table, False)[1]


def test_the_committed_table_has_a_count_of_each_kind(count: ModuleType) -> None:
    table = json.loads(count.TABLE.read_text())
    assert set(table["instructions"]) == set(count.MEANINGS)
    assert all(10 < number < 10_000 for number in table["instructions"].values())


@pytest.fixture
def step_cost(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return load(BENCHMARKS / "step_cost.py")


def figures(added: float) -> dict[str, float]:
    return {
        "step_ns": 1e7 + added,
        "host_ns": 1e7 + added,
        "added_step_ns": added,
        "added_host_ns": added,
        "added_mib": 33.4,
        "hops": 2000.0,
    }


def test_a_row_has_the_part_of_the_step_and_nanoseconds_a_hop(step_cost: ModuleType) -> None:
    variants = {"bare": figures(0), "only": figures(1e5), "full": figures(-5), "ring": figures(3e5)}
    found = {"machine": {"gpu": "no GPU"}, "steps": {"seq2seq step": variants | {"prof": figures(1e6)}}}
    row = step_cost.table(found)[-1]
    assert row == (
        "| seq2seq | 2,000 | 10.00 ms | +1.0%, 50 ns a hop | not measurable | +3.0%, 150 ns a hop | +10.0% |"
    )
    assert step_cost.memory_line(found) == "hops only 33 MiB, defaults 33, ring 33"
