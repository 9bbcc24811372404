"""Recordings of some operators only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launching import Launcher
from lazily import torch

import tracer


def recorded(path: Path, *patterns: str) -> tracer.Trace:
    a = torch.randn(4, 4, requires_grad=True)
    with tracer.record(path, ops=patterns, force=True):
        (a @ a).sum().backward()
        a.detach().add(a.detach())
    return tracer.load(path)


def kernels_of(name: str) -> int:
    """Of all overloads of an operator, the entries of its dispatch table that call a function: torch's own
    count. It differs from release to release, and with CUDA."""
    overloads = [op for op in torch._C._dispatch_get_all_op_names() if op.partition(".")[0] == name]
    lines = [line for op in overloads for line in torch._C._dispatch_dump_table(op).splitlines()]
    return sum("fallthrough" not in line for line in lines)


def ops(trace: tracer.Trace) -> set[str]:
    return set(trace.hops["op"].to_list())


def test_only_what_matches_is_recorded(tmp_path: Path) -> None:
    assert ops(recorded(tmp_path / "x.trace", "aten::*mm*")) == {"aten::mm"}


def test_a_pattern_is_asked_of_the_name_with_and_without_its_overload(tmp_path: Path) -> None:
    assert ops(recorded(tmp_path / "x.trace", "aten::add")) == {"aten::add.Tensor"}
    assert ops(recorded(tmp_path / "x.trace", "aten::add.Tensor")) == {"aten::add.Tensor"}
    assert ops(recorded(tmp_path / "x.trace", "aten::add.Scalar")) == set()


def test_several_patterns(tmp_path: Path) -> None:
    found = ops(recorded(tmp_path / "x.trace", "aten::mm", "aten::s[u]m"))
    assert found == {"aten::mm", "aten::sum", "aten::sum.dim_IntList"}


def test_others_are_not_hooked_and_hooked_again_by_the_next_recording(tmp_path: Path) -> None:
    few = recorded(tmp_path / "few.trace", "aten::mm").certificate
    assert few["entries"] == few["hooked"] == kernels_of("aten::mm")
    everything = recorded(tmp_path / "all.trace").certificate
    assert everything["entries"] == everything["hooked"] > 100_000
    assert few["lost_entries"] == []


def test_registrations_of_others_are_left_alone(tmp_path: Path) -> None:
    library = torch.library.Library("ops_test", "FRAGMENT")
    library.define("one(Tensor x) -> Tensor")
    library.define("two(Tensor x) -> Tensor")
    with tracer.record(tmp_path / "x.trace", ops=["ops_test::two"]):
        library.impl("one", lambda x: x + 1, "CPU")
        library.impl("two", lambda x: x + 2, "CPU")
        torch.ops.ops_test.one(torch.ones(1))
        torch.ops.ops_test.two(torch.ones(1))
    trace = tracer.load(tmp_path / "x.trace")
    assert ops(trace) == {"ops_test::two"}
    assert trace.certificate["lost_entries"] == []
    library._destroy()


@pytest.mark.parametrize("pattern", ["", 7])
def test_what_is_no_pattern(tmp_path: Path, pattern: object) -> None:
    with pytest.raises(tracer.RecordingError, match="give a pattern of operator names"):
        tracer.record(tmp_path / "x.trace", ops=[pattern])


@pytest.mark.promise("record", "docs/record.md#fewer-operators")
def test_the_command(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.write("import torch\na = torch.randn(3, 3)\n(a @ a).sum()\n")
    run = launcher.record("-o", "x.trace", "--ops", "aten::m*", "--ops", "aten::sum", "script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "x.trace")
    assert ops(trace) == {"aten::matmul", "aten::mm", "aten::sum", "aten::sum.dim_IntList"}
    assert trace.environment["options"]["ops"] == ["aten::m*", "aten::sum"], json.dumps(trace.environment)


def test_a_pattern_that_nothing_matches_is_said(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.write("import torch\ntorch.ones(3)\n")
    run = launcher.record("-o", "x.trace", "--ops", "aten::mmm", "script.py")
    assert run.status == 0, run.err
    assert "tracer: no operator matches aten::mmm" in run.err
