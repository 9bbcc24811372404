"""`tracer tree --module`, `--exclude`, `--min-time`, `--sort time` and lines of `--source`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import test_cli_tree
from frames import FakeTrace, TraceBuilder, hop
from typer.testing import CliRunner, Result

from tracer.cli.selection import fits_module, fits_source

folder = test_cli_tree.folder
FILE = "/home/user/project/train.py"


def made() -> FakeTrace:
    builder = TraceBuilder()

    def call(op: str, line: int, module: str, self_ns: int) -> None:
        below = (hop("aten::t", "CPU", hop("aten::view", "CPU")), hop("aten::mm", "CPU", self_ns=self_ns))
        outer = hop(op, "AutogradCPU", *below, module=module, source=f"{FILE}:{line}")
        outer.columns["called_from"] = f"{FILE}:{line}"
        builder.calls(outer)

    call("aten::embedding", 7, "encoder.embedding", 1000)
    call("aten::linear", 8, "encoder", 9000)
    call("aten::matmul", 12, "decoder", 50_000)
    call("aten::linear", 12, "decoder", 3000)
    return builder.trace()


@pytest.fixture(autouse=True)
def trace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: made())


def tree(*words: str) -> Result:
    from tracer.cli.app import app

    return CliRunner().invoke(app, ["tree", "run.trace", *words])


def ops(*words: str) -> list[str]:
    result = tree(*words)
    assert result.exit_code == 0, result.output
    return re.findall(r"aten::(\w+) \[", result.stdout)


LINEAR = ["linear", "t", "view", "mm"]


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        (["--module", "encoder"], ["embedding", "t", "view", "mm", *LINEAR]),
        (["--module", "*.embedding"], ["embedding", "t", "view", "mm"]),
        (["--module", "decoder", "--op", "linear"], LINEAR),
        (["--source", "train.py:7-8"], ["embedding", "t", "view", "mm", *LINEAR]),
        (["--source", "train.py:7,9-11"], ["embedding", "t", "view", "mm"]),
        (["--exclude", "t", "--source", "train.py:8"], ["linear", "mm"]),
        (["--exclude", "t", "--exclude", "mm", "--source", "train.py:8"], ["linear"]),
        (["--min-time", "40us"], ["matmul", "mm"]),
        (["--min-time", "0.012ms"], ["linear", "matmul", "mm"]),
    ],
)
def test_filters(filters: list[str], shown: list[str]) -> None:
    assert ops(*filters) == shown


def test_the_longest_lines_come_first() -> None:
    assert ops("--sort", "time", "--depth", "1") == ["matmul", "linear", "linear", "embedding"]
    assert ops("--depth", "1") == ["embedding", "linear", "matmul", "linear"]
    lines = json.loads(tree("--sort", "time", "--json").stdout)["lines"]
    for line in lines:
        assert (line["parent"] is None) == (line["level"] == 0)
        if line["parent"] is not None:
            above = lines[line["parent"]]
            assert above["level"] == line["level"] - 1


@pytest.mark.parametrize(
    ("filters", "status", "said"),
    [
        (["--module", "encodr"], 1, "no module matches 'encodr'; did you mean encoder"),
        (["--exclude", "nosuch"], 1, "no op matches 'nosuch'"),
        (["--source", "train.py:20-30"], 1, "no op is at train.py:20-30; the nearest lines of train.py: "),
        (["--min-time", "1s"], 1, "no hop meets all of these conditions"),
        (["--min-time", "soon"], 2, "--min-time soon: give a time with its unit, e.g. 100us or 1.5ms"),
        (["--min-time", "3"], 2, "--min-time 3: give a time with its unit, e.g. 3us or 3ms"),
        (["--sort", "total"], 2, "--sort total: choose order or time"),
    ],
)
def test_what_fits_nothing_is_said_in_one_line(filters: list[str], status: int, said: str) -> None:
    result = tree(*filters)
    assert (result.exit_code, result.stdout) == (status, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_lines_and_modules() -> None:
    assert fits_source("/a/train.py:41", "train.py:40-45")
    assert not fits_source("/a/train.py:4", "train.py:40-45")
    assert not fits_source("/a/retrain.py:41", "train.py:41")
    assert fits_source("/a/b:7.py:41", "b:7.py")
    assert fits_module("layers.3.attention.query", "layers.*.attention")
    assert not fits_module("decoder.encoder2", "encoder*")
