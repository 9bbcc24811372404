"""`--stack N`: the innermost lines of the Python stack of an op call."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from lazily import torch

import tracer
from tracer.base.errors import RecordingError


def stacks(trace: tracer.Trace, op: str = "aten::cos") -> list[list[str]]:
    """The stacks of the outermost hops of an op."""
    hops = trace.hops.filter(pl.col("parent").is_null(), pl.col("op").cast(pl.String) == op)
    return [trace.python_stacks["frames"][number].to_list() for number in hops["python_stack"]]


@pytest.mark.promise("tracer.record", "docs/record.md#--stack-n")
@pytest.mark.parametrize("size", [2, 5, 64])
def test_lines_are_those_that_python_says(tmp_path: Path, size: int) -> None:
    """Frames inside torch and the standard library are left out, as they are of the source line."""
    from own_stack import LINES, Middle

    LINES.clear()
    model = Middle()
    with tracer.record(tmp_path / "x.trace", stack=size):
        for depth in (0, 0, 3, 100):
            model(torch.ones(2), depth)
    trace = tracer.load(tmp_path / "x.trace")
    home, library = str(Path(torch.__file__).parent), sysconfig.get_path("stdlib")

    def is_shown(line: str) -> bool:
        of_library = line.startswith(library) and "/site-packages/" not in line
        return not line.startswith((home, "<frozen ", "<string>")) and not of_library

    expected = [list(filter(is_shown, lines)) for lines in LINES]
    recorded = [[frame.rpartition(" ")[0] for frame in stack] for stack in stacks(trace)]
    assert [stack[:4] for stack in recorded] == [lines[: min(size, 4)] for lines in expected]
    wanted = [min(size, len(lines)) for lines in expected]
    assert [len(stack) for stack in recorded[:3]] == wanted[:3]
    assert size > 5 or len(recorded[3]) == wanted[3]  # no more than 128 frames are searched
    assert stacks(trace)[0][0].endswith(" innermost")
    assert stacks(trace)[0][1].endswith(" Middle.forward")
    assert trace.hops["source"].cast(pl.String).to_list()[-1] == recorded[-1][0]


def test_lines_of_torch_are_kept_on_request(tmp_path: Path) -> None:
    """The source stays the first line outside torch; the stack is what Python says, without gaps."""
    from own_stack import LINES, Middle

    LINES.clear()
    model = Middle()
    with tracer.record(tmp_path / "x.trace", stack=6, torch_frames=True):
        model(torch.ones(2), 1)
        torch.nn.functional.relu(torch.ones(2))
    trace = tracer.load(tmp_path / "x.trace")
    recorded = [frame.rpartition(" ")[0] for frame in stacks(trace)[0]]
    assert recorded == LINES[0][:6]
    assert sum("/torch/nn/modules/module.py:" in frame for frame in recorded) >= 2
    (relu,) = stacks(trace, "aten::relu")
    assert relu[0].endswith(" relu")
    assert "/torch/nn/functional.py:" in relu[0]
    sources = trace.hops.filter(pl.col("op").cast(pl.String) == "aten::relu")["source"].cast(pl.String)
    assert set(sources) == {relu[1].rpartition(" ")[0]}
    assert str(Path(__file__).name) in relu[1]


def test_torch_frames_need_a_stack() -> None:
    with pytest.raises(RecordingError, match=r"add --stack N, e\.g\. --stack 16"):
        tracer.record("x.trace", torch_frames=True)


def test_the_same_stack_is_written_once(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "x.trace", stack=3):
        for _ in range(50):
            torch.ones(2).cos()
    trace = tracer.load(tmp_path / "x.trace")
    assert len(stacks(trace)) == 50
    assert len(trace.python_stacks) == 1


def test_one_line_is_the_default(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "many.trace", stack=2):
        torch.ones(2)
    with tracer.record(tmp_path / "x.trace"):
        torch.ones(2)
    assert tracer.load(tmp_path / "many.trace").hops["python_stack"].null_count() == 0
    trace = tracer.load(tmp_path / "x.trace")
    assert trace.python_stacks.is_empty()
    assert trace.hops["source"].null_count() == 0


def test_threads_and_backward(tmp_path: Path) -> None:
    from own_stack import innermost

    x = torch.ones(2, requires_grad=True)
    with tracer.record(tmp_path / "x.trace", stack=2):
        innermost(x).sum().backward()
    trace = tracer.load(tmp_path / "x.trace")
    backward = trace.hops.filter(pl.col("backward_node").cast(pl.String) == "CosBackward0")
    assert len(backward)
    forward = trace.hops["python_stack"].gather(backward["forward_hop"])
    assert backward["python_stack"].to_list() == forward.to_list()
    assert stacks(trace)[0][0].endswith(" innermost")


@pytest.mark.fresh
def test_command_and_children(launcher: Launcher) -> None:
    launcher.write(
        "import sys, subprocess, torch\n"
        "def work():\n"
        "    torch.ones(2).cos()\n"
        "if len(sys.argv) == 1:\n"
        "    subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
        "work()\n"
    )
    assert launcher.record("-o", "x.trace", "--stack", "3", "script.py").status == 0
    trace = tracer.load(launcher.folder / "x.trace")
    script = launcher.folder / "script.py"
    assert trace.hops["process"].n_unique() == 2
    assert stacks(trace) == [[f"{script}:3 work", f"{script}:6 <module>"]] * 2
    tree = launcher.run([str(launcher.tracer), "tree", "x.trace", "--source", "script.py:3"]).out
    assert "  called from script.py:6 <module>\n" in tree


@pytest.mark.parametrize(
    "options", [["--stack", "0"], ["--stack", "65"], ["--stack", "x"], ["--no-source", "--stack", "2"]]
)
def test_what_cannot_be_is_a_usage_error(launcher: Launcher, options: list[str]) -> None:
    launcher.write("import torch\n")
    run = launcher.record(*options, "script.py")
    assert run.status == 2
    assert "stack" in run.err
    assert launcher.traces() == []


@pytest.mark.parametrize("options", [{"stack": 0}, {"stack": 65}, {"stack": 2, "source": False}])
def test_what_cannot_be_from_python(tmp_path: Path, options: dict) -> None:
    with pytest.raises(RecordingError, match="stack"):
        tracer.record(tmp_path / "x.trace", **options)
