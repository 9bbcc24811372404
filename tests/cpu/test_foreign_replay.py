"""`tracer replay` of a trace that somebody else made: it computes, or says in one line why not."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lazily import torch
from one_op import one_op
from typer.testing import CliRunner, Result

import tracer
from tracer.analysis.recorded_call import RecordedCall, RecordedTensor
from tracer.base import boundary
from tracer.cli.app import app
from tracer.dispatch import attention
from tracer.replay.allowed import check_allowed
from tracer.replay.replay_errors import CannotReplayError


def replay(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def refused(run: Result, status: int, words: str) -> None:
    assert (run.exit_code, run.stdout) == (status, ""), run.stderr
    assert words in run.stderr
    assert len(run.stderr.splitlines()) == 1, run.stderr


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ({"dtype": "torch.nosuch"}, 1, "has no dtype nosuch"),
        ({"dtype": "torch.save"}, 1, "has no dtype save"),
        (
            {"dtype": "torch.float32), exit(7"},
            2,
            "argument 0 'self' of aten::mm: the trace has 'float32), exit(7' ",
        ),
        (
            {"device": "weird"},
            1,
            "the call ran on weird, which the torch here does not have; if a package makes it: --import",
        ),
        ({"device": 'cpu" if exit(7) else "'}, 2, "where a device must be"),
        (
            {"stride": (-3, 1)},
            2,
            "argument 0 'self' of aten::mm: no tensor has the shape (2, 2) with the strides",
        ),
        (
            {"shape": (1 << 40, 2)},
            1,
            "the tensors of aten::mm need 32.0 TiB of memory, and this machine has ",
        ),
        ({"shape": (2, 1 << 40), "stride": (0, 0)}, 1, "aten::mm raised RuntimeError: "),
        ({"key": "Autocast"}, 1, "aten::mm raised "),
        ({"key": "BackendSelect", "below": 'Autocast"); exit(7); ("'}, 1, "ran at the key "),
        ({"op": "aten::nosuch"}, 1, "has no operator aten::nosuch"),
        ({"op": "aten::__init__"}, 1, "has no operator aten::__init__"),
        ({"op": "load_library::x"}, 1, "has no operator load_library::x"),
        ({"op": "__class__::mro"}, 1, "has no operator __class__::mro"),
        ({"op": "::"}, 2, "the trace has '::' where an operator must be"),
        ({"op": "quantized::linear"}, 1, "quantized::linear is not an operator of aten or prims"),
    ],
)
def test_what_is_not_there_is_one_line(
    tmp_path: Path, given: dict[str, Any], status: int, words: str
) -> None:
    path = one_op(tmp_path / "x.trace", **given)
    refused(replay(path, "--hop", "0"), status, words)
    if "raised" not in words and "of memory" not in words:
        refused(replay(path, "--hop", "0", "--script", tmp_path / "r.py"), status, words)
        assert not (tmp_path / "r.py").exists()


def test_names_of_files_stay_in_the_comment(tmp_path: Path) -> None:
    file = "/home/m/x\nimport os; os.mkdir('pwned')\n#.py"
    path = one_op(tmp_path / "x.trace", file=file, environment={"torch": f"2\n{file}"})
    script = tmp_path / "r.py"
    assert replay(path, "--hop", "0", "--script", script).exit_code == 0
    subprocess.run([sys.executable, "r.py"], cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "pwned").exists()
    shown = replay(path, "--hop", "0")
    assert shown.exit_code == 0, shown.stderr
    assert "recorded with torch 2\\n/home/m/x\\nimport os" in shown.stdout


def test_an_operator_that_opens_files(tmp_path: Path) -> None:
    victim = tmp_path / "victim.bin"
    victim.write_bytes(bytes(4000))
    with tracer.record(tmp_path / "x.trace", values="scalars"):
        torch.from_file(str(victim), shared=True, size=1000)
    victim.write_text("ssh-rsa AAAA me")
    for more in ([], ["--script", tmp_path / "r.py"], ["--import", "torch"]):
        refused(
            replay(tmp_path / "x.trace", "--hop", "0", *more),
            1,
            "aten::from_file may do more than compute: its argument 'filename' is a text",
        )
    assert victim.read_text() == "ssh-rsa AAAA me"
    assert replay(tmp_path / "x.trace", "--hop", "0", "--unsafe").exit_code == 0
    assert victim.stat().st_size == 4000


def test_operators_of_packages_need_an_import(tmp_path: Path) -> None:
    library = torch.library.Library("foreign_replay", "FRAGMENT")
    library.define("twice(Tensor self) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    try:
        path = one_op(tmp_path / "x.trace", "foreign_replay::twice", tensors=1)
        refused(replay(path, "--hop", "0"), 1, "it may do anything; if you trust the trace: --import PACKAGE")
        run = replay(path, "--hop", "0", "--import", "json")
        assert run.exit_code == 0, run.stderr
    finally:
        library._destroy()


def test_operators_of_torch_with_a_text_are_known() -> None:
    """Only from_file names a file. A text that a later torch adds is refused until it is known."""
    refused_names = set()
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        if space not in ("aten", "prims"):
            continue
        base, _, overload = rest.partition(".")
        op = getattr(getattr(torch.ops, space), base)
        try:
            check_allowed(getattr(op, overload or "default"), imported=False, unsafe=False)
        except CannotReplayError:
            refused_names.add(name.partition(".")[0].removeprefix("aten::"))
    assert refused_names == {"from_file", "_print", "_test_string_default", "_test_ambiguous_defaults"}


TENSOR = RecordedTensor(
    shape=(1, 2, 4, 8),
    stride=(64, 32, 8, 1),
    dtype="torch.float32",
    device="cpu",
    requires_grad=False,
    layout="torch.strided",
    keys=("CPU",),
)


def call_of_attention(query: RecordedTensor, scalars: dict[int, Any]) -> RecordedCall:
    return RecordedCall(
        hop=0,
        call=0,
        op=attention.OP,
        key="CPU",
        runs_at="CPU",
        line="",
        text="",
        torch=None,
        tensors={0: [query], 1: [TENSOR], 2: [TENSOR]},
        scalars=scalars,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "torch.save"},
        {"dtype": "a b"},
        {"device": "cpu:x"},
        {"stride": (64, -32, 8, 1)},
        {"shape": (1 << 62, 2, 4, 8)},
    ],
)
def test_why_of_attention_asks_torch_about_real_tensors_only(wrong: dict[str, Any]) -> None:
    strange = replace(TENSOR, **wrong)
    choice = attention.ask(call_of_attention(strange, {}), None)
    assert choice.missing.startswith("the torch here cannot make such inputs: ")
    assert len(choice.missing.splitlines()) == 1


@pytest.mark.parametrize(
    "scalars",
    [
        {},
        {at: {"unknown": "SymFloat"} for at in (4, 5, 6, 7)},
        {4: True, 5: 1, 6: "2", 7: None},
        {4: 10**400, 5: "False", 6: [1.0], 7: 0.0},
    ],
)
def test_attention_is_asked_about_values_of_the_schema_only(scalars: dict[int, Any]) -> None:
    choice = attention.ask(call_of_attention(TENSOR, scalars), "math")
    assert choice.unrecorded == ("dropout_p", "is_causal", "scale", "enable_gqa")
    assert choice.asked == {"dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}


def test_a_value_of_attention_that_the_trace_has_is_not_said_to_lack() -> None:
    scalars = {4: 0.5, 5: False, 6: {"unknown": "SymFloat"}, 7: False}
    choice = attention.ask(call_of_attention(TENSOR, scalars), "math")
    assert choice.refused == {"flash": "Both fused kernels do not support non-zero dropout"}
    assert "  assumed       scale: the trace does not have the values" in list(attention.choice_lines(choice))


def test_the_devices_that_are_no_names_of_a_package_are_those_of_torch() -> None:
    with pytest.raises(RuntimeError, match=r"Expected one of .* device type at start") as error:
        torch.device("weird")
    types = str(error.value).partition("one of ")[2].partition(" device type")[0].split(", ")
    assert len(types) > 10
    assert set(types) <= boundary.DEVICES
    assert all(boundary.device(f"{name}:0") == f"{name}:0" for name in (*types, "name_of_a_package"))
