"""What was measured last of a recording, kept for the next command that reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracer.advice.finding import BOUNDED, DROPPED, MEASURED, Finding, Gain, bounded
from tracer.advice.remembered import recalled, remember
from tracer.base.own import mark

SLOW = bounded("optimizer", Finding("a.py:1", "do it", "seen", 50.0, 50.0))
OTHER = bounded("threads", Finding("a.py:2", "do that", "seen", 20.0, 20.0))
FOUND = Gain(MEASURED, 25.0, 20.0, 30.0, 2.0, 1.6, 2.5)


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    environment: dict[str, Any] = {"cwd": "/work", "argv": ["a.py"], "started_at": "2026-11-27T00:00:00"}
    environment["own"] = mark(environment)
    return SimpleNamespace(environment=environment, hops=[1, 2, 3], began_ns=7)


def test_what_was_measured_last_is_known_later(trace: Any) -> None:
    dropped = replace(OTHER, gain=Gain(DROPPED, 0.0, note="no gain"))
    remember(trace, [replace(SLOW, gain=FOUND), dropped])
    assert recalled(trace, [SLOW, OTHER]) == [replace(SLOW, gain=FOUND), dropped]
    remember(trace, [SLOW, dropped])
    assert recalled(trace, [SLOW])[0].gain.known == BOUNDED, "the machine was busy this time"


@pytest.mark.parametrize("change", [{"hops": [1, 2]}, {"began_ns": 8}])
def test_another_recording_has_gains_of_its_own(trace: Any, change: dict[str, Any]) -> None:
    remember(trace, [replace(SLOW, gain=FOUND)])
    assert recalled(SimpleNamespace(**{**vars(trace), **change}), [SLOW]) == [SLOW]


def test_another_finding_of_the_rule_is_not_the_one_that_was_measured(trace: Any) -> None:
    remember(trace, [replace(SLOW, gain=FOUND)])
    others = [replace(SLOW, finding=replace(SLOW.finding, **{name: "x"})) for name in ("line", "do")]
    assert recalled(trace, others) == others


def test_of_a_stranger_nothing_is_kept_or_told(trace: Any, tmp_path: Path) -> None:
    strange = SimpleNamespace(**{**vars(trace), "environment": {**trace.environment, "cwd": "/other"}})
    remember(strange, [replace(SLOW, gain=FOUND)])
    assert recalled(strange, [SLOW]) == [SLOW]
    assert [path.name for path in (tmp_path / "cache" / "tracer").iterdir()] == ["own.key"]


@pytest.mark.parametrize(
    "change",
    [{"ns": "25"}, {"known": "sure"}, {"ns": None}, {"note": 3}, {"more": 1}],
)
def test_a_file_that_another_program_wrote_is_not_used(
    trace: Any, tmp_path: Path, change: dict[str, Any]
) -> None:
    remember(trace, [replace(SLOW, gain=FOUND)])
    (file,) = (tmp_path / "cache" / "tracer").glob("advice-*")
    key, _, text = file.read_text().partition("\n")
    (gain,) = json.loads(text).values()
    for written in (json.dumps({name: {**gain, **change} for name in json.loads(text)}), "[1]", "{"):
        file.write_text(f"{key}\n{written}")
        assert recalled(trace, [SLOW]) == [SLOW]
