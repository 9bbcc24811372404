"""A terminal of 80 columns loses no number and no name of a table: every command that prints one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import gpu_trace
import pytest
import test_cli_diff
import test_cli_tree
from synthetic import one_hop
from typer.testing import CliRunner

from tracer.analysis.groups import GROUPS

folder, traces = test_cli_tree.folder, test_cli_diff.traces
NUMBER = re.compile(r"(?<![\w.:])\d[\d,]*(?:\.\d+)?(?![\w.])")
QUERY = "select op, key, source, start_ns, end_ns, self_ns, 12345.678 as a, 98765.25 as b from hops"
NAMES = re.compile(r"\w+::\w+|\[\w+\]")
GPU = [
    *(f"top --by {by} --limit 12" for by in GROUPS if by != "source"),
    "steps",
    "ledger",
    "ledger --op conv2d --path",
    "advise",
    "certificate",
    "report --section ops --section steps --section paths",
]


def shown(words: list[str], monkeypatch: pytest.MonkeyPatch, columns: int | None = None) -> str:
    """What the command prints: in a pipe, or on a terminal of so many columns."""
    from tracer.cli import output
    from tracer.cli.app import app

    with monkeypatch.context() as here:
        if columns:
            for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", str(columns))):
                here.setenv(name, value)
            here.setattr(output, "for_stdout", lambda text: fitted(text, columns))
        result = CliRunner().invoke(app, words)
    assert result.exit_code in (0, 1), result.output
    return re.sub(r"\x1b\[[\d;]*m", "", result.stdout)


def fitted(text: str, columns: int) -> str:
    from tracer.report.fitted import fitted

    return fitted(text, columns)


def check(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole, narrow = shown(words, monkeypatch), shown(words, monkeypatch, 80)
    rows = [line for line in narrow.splitlines() if re.match(r"\| | *\d[\d.]* .?s ", line)]
    assert max(map(len, rows), default=0) <= 80
    for what in (NUMBER, NAMES):
        lost = set(what.findall(whole)) - set(what.findall(narrow))
        assert lost == set(), narrow


@pytest.mark.parametrize("command", GPU)
def test_of_a_recording_from_a_gpu(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = shutil.copy(gpu_trace.PATH, tmp_path / "gpu.trace.xz")
    verb, *rest = command.split()
    check([verb, str(path), *rest], monkeypatch)


@pytest.mark.parametrize("by", ["line", "op"])
def test_diff(by: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "diff --before a1.trace a2.trace --after b1.trace b2.trace --by".split()
    check([*words, by], monkeypatch)


def test_memory_and_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = one_hop(environment={"options": {"memory": True}})
    lane = writer.lane(0)
    for number, (address, size) in enumerate(((0x1000, 123_456), (0x2000, 7_890_123), (0x3000, 41))):
        lane.define_source(number + 1, f"/home/a_folder/training_of_a_model_{number}.py", 10 + number)
        lane.enter(0, source=number + 1)
        lane.memory(address, size)
        lane.exit()
    path = writer.write(tmp_path / "run.trace")
    check(["memory", str(path)], monkeypatch)
    check(["sql", str(path), QUERY], monkeypatch)
