"""The text of each line that a real recording names."""

from __future__ import annotations

import os
import signal

import polars as pl
import pytest
from launching import Launcher

import tracer
from tracer.analysis.source_lines import SourceLines

SCRIPT = """\
import os, sys, torch

def scaled(x):
    return x * 2  # twice

y = scaled(torch.ones(2))
{end}
"""


def texts(launcher: Launcher) -> dict[str, str]:
    trace = tracer.load(launcher.folder / "run.trace")
    lines = SourceLines.of(trace)
    named = trace.hops["source"].drop_nulls().cast(pl.String).unique().to_list()
    return {lines.name(source): lines.text(source) for source in named}


def test_each_line_has_its_text(launcher: Launcher) -> None:
    launcher.write(SCRIPT.format(end=""))
    launcher.record("-o", "run.trace", "script.py")
    (launcher.folder / "script.py").write_text("# another program\n" * 9)
    assert texts(launcher) == {
        "script.py:4": "return x * 2  # twice",
        "script.py:6": "y = scaled(torch.ones(2))",
    }


def test_a_script_that_was_changed_meanwhile_has_no_text(launcher: Launcher) -> None:
    launcher.write(SCRIPT.format(end="open(__file__, 'w').write('another = 1\\n' * 20)"))
    launcher.record("-o", "run.trace", "script.py")
    assert texts(launcher) == {"script.py:4": "", "script.py:6": ""}


def test_without_sources_there_are_no_texts(launcher: Launcher) -> None:
    launcher.write(SCRIPT.format(end=""))
    launcher.record("--no-source", "-o", "run.trace", "script.py")
    assert len(tracer.load(launcher.folder / "run.trace").source_lines) == 0


def test_children_have_texts_too(launcher: Launcher) -> None:
    launcher.write("import torch\n\ndef work():\n    torch.neg(torch.ones(2))\n", "worker.py")
    end = "pid = os.fork()\nif not pid:\n    import worker\n    worker.work()\nelse:\n    os.wait()"
    launcher.write(SCRIPT.format(end=end))
    launcher.record("-o", "run.trace", "script.py")
    assert texts(launcher)["worker.py:4"] == "torch.neg(torch.ones(2))"


def record_killed(launcher: Launcher) -> None:
    launcher.write(SCRIPT.format(end="os.kill(os.getpid(), 9)"))
    os.utime(launcher.folder / "script.py", (0, 0))
    assert launcher.record("-o", "run.trace", "script.py").status == -signal.SIGKILL
    assert len(tracer.load(launcher.folder / "run.trace").source_lines) == 0


def test_a_killed_process_has_the_texts_of_files_that_did_not_change(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_killed(launcher)
    monkeypatch.setenv("XDG_CACHE_HOME", launcher.environment["XDG_CACHE_HOME"])
    assert texts(launcher)["script.py:4"] == "return x * 2  # twice"
    monkeypatch.setenv("XDG_CACHE_HOME", str(launcher.folder))
    assert texts(launcher)["script.py:4"] == "", "the user who reads it has another key"


def test_without_a_place_for_the_key_the_script_runs_as_ever(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that is read-only, and which even root cannot write to."""
    launcher.environment["XDG_CACHE_HOME"] = "/proc"
    record_killed(launcher)
    assert tracer.load(launcher.folder / "run.trace").environment["own"] == ""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    assert texts(launcher)["script.py:4"] == ""
    launcher.write(SCRIPT.format(end="print(y)"))
    run = launcher.record("-o", "whole.trace", "script.py")
    assert (run.status, run.out, run.own_err) == (0, "tensor([2., 2.])\n", "")


def test_recordings_that_begin_at_once_have_the_same_key(launcher: Launcher) -> None:
    launcher.environment["XDG_CACHE_HOME"] = str(launcher.folder / "cache")
    launcher.write(
        "import os\nfrom tracer.base.own import is_own, mark\n"
        "pids = []\nfor _ in range(16):\n    pid = os.fork()\n    if not pid:\n"
        "        os._exit(not is_own({'own': mark({})}))\n    pids.append(pid)\n"
        "print({os.waitpid(pid, 0)[1] for pid in pids}, os.listdir('cache/tracer'))\n"
    )
    assert launcher.python("script.py").out == "{0} ['own.key']\n"


def test_a_second_recording_has_no_lines_of_the_first(launcher: Launcher) -> None:
    launcher.write(
        "import torch, tracer\n"
        "with tracer.record('a.trace'):\n    torch.ones(2)\n"
        "with tracer.record('run.trace'):\n    torch.zeros(2)\n"
    )
    launcher.python("script.py")
    assert texts(launcher) == {"script.py:5": "torch.zeros(2)"}
    assert "torch.ones(2)" not in tracer.load(launcher.folder / "run.trace").source_lines["text"].to_list()
