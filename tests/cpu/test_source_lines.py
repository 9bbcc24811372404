"""The text of each line that a real recording names."""

from __future__ import annotations

import os
import signal

import polars as pl
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


def test_a_killed_process_has_the_texts_of_files_that_did_not_change(launcher: Launcher) -> None:
    launcher.write(SCRIPT.format(end="os.kill(os.getpid(), 9)"))
    os.utime(launcher.folder / "script.py", (0, 0))
    assert launcher.record("-o", "run.trace", "script.py").status == -signal.SIGKILL
    assert len(tracer.load(launcher.folder / "run.trace").source_lines) == 0
    assert texts(launcher)["script.py:4"] == "return x * 2  # twice"


def test_a_second_recording_has_no_lines_of_the_first(launcher: Launcher) -> None:
    launcher.write(
        "import torch, tracer\n"
        "with tracer.record('a.trace'):\n    torch.ones(2)\n"
        "with tracer.record('run.trace'):\n    torch.zeros(2)\n"
    )
    launcher.python("script.py")
    assert texts(launcher) == {"script.py:5": "torch.zeros(2)"}
    assert "torch.ones(2)" not in tracer.load(launcher.folder / "run.trace").source_lines["text"].to_list()
