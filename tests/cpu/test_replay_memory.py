"""What a replay allocates is counted before it runs: the trace chooses the sizes, and may be a stranger's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lazily import torch
from typer.testing import CliRunner

import tracer
from tracer.cli.app import app
from tracer.replay import memory
from tracer.replay.arguments import Argument, TensorPlan
from tracer.replay.call import Call, Returned
from tracer.replay.replay_errors import CannotReplayError

LARGE = 1 << 40
MIB = 1 << 20


def plan(*shape: int, stride: tuple[int, ...] | None = None, device: str = "cpu") -> TensorPlan:
    strides = stride or (1,) * len(shape)
    return TensorPlan(shape, strides, "float32", device, False, False, False, False)


def call(name: str, *values: Any) -> Call:
    op = getattr(torch.ops.aten, name.partition(".")[0])
    chosen = getattr(op, name.partition(".")[2] or "default")
    names = [argument.name for argument in chosen._schema.arguments]
    arguments = [Argument(name, value, "recorded", False) for name, value in zip(names, values, strict=False)]
    return Call(chosen, arguments, "CPU")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("full", [[LARGE], 1.5]),
        ("zeros", [[LARGE]]),
        ("empty.memory_format", [[LARGE]]),
        ("randn", [[LARGE]]),
        ("arange.start", [0.0, float(LARGE)]),
        ("repeat", [plan(4), [LARGE // 4]]),
        ("clone", [plan(LARGE, stride=(0,))]),
        ("cat", [[plan(LARGE // 4)] * 4]),
        ("constant_pad_nd", [plan(2), [0, LARGE - 2]]),
        ("add.Tensor", [plan(LARGE // 2, 1), plan(2)]),
        ("split.Tensor", [plan(LARGE), LARGE // 8]),
    ],
)
def test_what_a_call_returns_is_known_without_running_it(name: str, values: list[Any]) -> None:
    assert call(name, *values).returned == Returned(LARGE, 4 * LARGE)
    with pytest.raises(CannotReplayError, match=r"need [0-9.]+ TiB of memory, and this machine has "):
        call(name, *values).made()


def test_a_call_of_a_gpu_is_counted_where_it_runs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "most", lambda: 0)
    of_gpu = call("repeat", plan(4, device="cuda:0"), [LARGE // 4])
    assert of_gpu.returned.elements == LARGE
    assert [of_gpu.is_on_cpu(device) for device in (None, "cuda", "cpu", "meta")] == [
        False,
        False,
        True,
        False,
    ]
    assert memory.check_copies(of_gpu, 0) == ""
    with pytest.raises(CannotReplayError, match=r"^the tensors of aten::repeat need "):
        of_gpu.made("cpu")
    assert of_gpu.made("meta")[0].shape == (4,)


def test_what_depends_on_values_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    for one in (call("nonzero", plan(3)), call("cat", [plan(3), plan(2, 2)]), call("bincount", plan(3))):
        assert one.returned == Returned()
        assert len(one.made()) == 1
    assert not caplog.records, "torch says what does not fit together, with a traceback"


def test_copies_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of 4 MiB is there 3 times with one side, 4 times with two; with float64, 56 MiB more are."""
    made = call("full", [MIB], 1.5)
    for most, sides, compared, words in (
        (100, 2, True, ""),
        (68, 1, True, ""),
        (67, 1, False, "that would take 68.0 MiB of memory, and a replay takes up to 67.0 MiB, half of "),
        (12, 1, False, "that would take 68.0 MiB"),
        (16, 2, False, "that would take 72.0 MiB"),
    ):
        monkeypatch.setattr(memory, "most", lambda most=most: most * MIB)
        why = memory.check_copies(made, sides)
        assert (not why) == compared
        assert why.startswith(words)
    for most, sides in ((11, 1), (15, 2)):
        monkeypatch.setattr(memory, "most", lambda most=most: most * MIB)
        with pytest.raises(CannotReplayError) as refused:
            memory.check_copies(made, sides)
        assert str(refused.value) == (
            "aten::full takes 0 B for its inputs and 4.0 MiB for its results. A replay has these "
            f"{sides} and {sides + 2} times at once, and takes up to {most}.0 MiB, half of the memory of "
            "this machine; to run it once: --script OUT.py"
        )
    wide = call("sum", plan(4, MIB, stride=(0, 1)))
    monkeypatch.setattr(memory, "most", lambda: 39 * MIB)
    assert memory.check_copies(wide, 1).startswith("that would take 40.0 MiB")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    with tracer.record(tmp_path / "x.trace", values="scalars"):
        torch.full((30,), 1.5)
    return tmp_path / "x.trace"


def test_a_replay_that_does_not_fit_is_one_line(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["replay", str(trace), "--hop", "0", "--arg"]
    run = CliRunner().invoke(app, [*given, f"size=[{LARGE}]"])
    assert (run.exit_code, run.stdout) == (1, "")
    assert run.stderr.startswith("tracer: the tensors of aten::full need 4.0 TiB of memory, and this machine")
    monkeypatch.setattr(memory, "most", lambda: 4 << 30)
    run = CliRunner().invoke(app, [*given, f"size=[{100 * MIB}]", "--json"])
    assert run.exit_code == 0
    assert "that would take 6.6 GiB of memory, and a replay takes up to 4.0 GiB" in run.stdout


def test_what_cannot_be_counted_has_a_limit(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "x.trace", values="scalars"):
        torch.bincount(torch.tensor([1, 2]), minlength=7)
    hop = tracer.load(tmp_path / "x.trace").hops.filter(op="aten::bincount")["id"][0]
    code = f"""
from tracer.replay import memory
memory.most = lambda: 1 << 30
import sys
sys.argv = ["tracer", "replay", "x.trace", "--hop", "{hop}", "--arg", "minlength={1 << 27}"]
from tracer.cli.app import main
main()
"""
    env = os.environ | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}  # each has a stack
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == ("tracer: the call needs more than 1.0 GiB, half of the memory of this machine\n")
