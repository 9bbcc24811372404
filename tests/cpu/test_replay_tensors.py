"""`tracer replay --strides --dtype --pad`: the same values, in other tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lazily import torch
from test_replay import hop_of
from typer.testing import CliRunner, Result

import tracer
from tracer.cli.app import app
from tracer.replay.change import Change, cut
from tracer.replay.replay_errors import WrongOptionError


def program() -> None:
    torch.manual_seed(0)
    torch.mm(torch.randn(30, 13), torch.randn(13, 7))
    torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3))
    torch.arange(6).neg()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "run.trace"
    program()
    with tracer.record(path, values="scalars"):
        program()
    return path


def replay(trace: Path, op: str, *words: str) -> Result:
    hop = str(hop_of(tracer.load(trace), op))
    return CliRunner().invoke(app, ["replay", str(trace), "--hop", hop, *words])


def document(trace: Path, op: str, *words: str) -> dict[str, Any]:
    run = replay(trace, op, *words, "--json")
    assert run.exit_code == 0, run.stderr
    return dict(json.loads(run.stdout))


@pytest.mark.promise("replay", "docs/replay.md")
def test_a_convolution_in_channels_last(trace: Path) -> None:
    found = document(trace, "aten::convolution", "--strides", "channels_last")
    assert found["changed"]["title"] == "channels_last"
    assert found["changed"]["errors"][0]["relative"] < 1e-5
    assert found["again"]["low"] <= found["again"]["value"] <= found["again"]["high"]


def test_a_product_in_other_numbers_is_as_wrong_as_they_are(trace: Path) -> None:
    found = document(trace, "aten::mm", "--dtype", "bfloat16")
    assert found["stock"]["errors"][0]["relative"] < 1e-5 < found["changed"]["errors"][0]["relative"] < 0.1
    assert found["same_results"] is False
    assert document(trace, "aten::mm", "--dtype", "float64")["changed"]["errors"][0]["relative"] < 1e-7


def test_a_padded_product_has_the_results_of_the_sizes_that_were(trace: Path) -> None:
    run = replay(trace, "aten::mm", "--pad", "8")
    assert run.exit_code == 0, run.stderr
    assert "sizes in 8s" in run.stdout
    assert "the same call twice: " in run.stdout
    found = document(trace, "aten::mm", "--pad", "8")
    assert found["changed"]["errors"][0]["relative"] < 1e-5


def test_values_stay_and_only_what_is_asked_for_changes() -> None:
    image, whole = torch.randn(2, 3, 4, 5, requires_grad=True), torch.arange(3)
    (last, (kept,)) = Change(strides="channels_last").of([image, [whole]])
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last, image)
    assert last.requires_grad
    assert kept is whole
    (flat,) = Change(strides="contiguous").of([image.detach().transpose(0, 1)])
    assert flat.is_contiguous()
    (padded,) = Change(pad=4, dtype="float16").of([image.detach()])
    assert (padded.shape, padded.dtype) == ((2, 3, 4, 8), torch.float16)
    assert torch.equal(padded[..., :5], image.half())
    assert not padded[..., 5:].any()


def test_results_of_padded_tensors_are_cut() -> None:
    assert cut([torch.ones(8, 8)], [(3, 7)])[0].shape == (3, 7)
    assert cut([torch.ones(8)], [(3, 7)])[0].shape == (8,), "results of another kind stay"


@pytest.mark.parametrize("change", [Change(strides="channels_last"), Change(dtype="float16"), Change(pad=8)])
def test_what_changes_nothing_is_refused(change: Change) -> None:
    with pytest.raises(WrongOptionError, match=r"^--\S+ \S+: changes no tensor of this call"):
        change.of([torch.arange(3), None, [torch.arange(2)]])


def test_the_command_refuses_it_too(trace: Path) -> None:
    run = replay(trace, "aten::neg", "--dtype", "float16")
    assert run.exit_code == 2
    assert run.stderr.startswith("tracer: --dtype float16: changes no tensor of this call")
