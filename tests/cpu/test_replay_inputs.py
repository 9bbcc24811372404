"""Replays whose inputs can be trusted: memory that arguments shared, tensors of files, values that fit."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from lazily import torch
from test_replay import call_of, hop_of, replay

import tracer
from tracer.replay.call import runner
from tracer.replay.fitting import with_fitting_values
from tracer.replay.make import tensors
from tracer.replay.recipe import fitted
from tracer.replay.samples import fit_of

OWN = """\
import torch
import tracer

@tracer.overrides.register("aten::bmm", "CPU", name="apart")
def apart(self, mat2):
    shared = self.untyped_storage().data_ptr() == mat2.untyped_storage().data_ptr()
    return torch.bmm(self, mat2) + shared
"""


def program() -> None:
    b, v, w = torch.randn(3, 4, 4), torch.randn(8), torch.randn(6, requires_grad=True)
    array = np.ones(16, np.float32)
    torch.bmm(b, b.transpose(1, 2))
    torch.cat([v, torch.ones(2), v[2:5]])
    torch.sub(v[1:4], v[:3], out=v[4:7])
    torch.dot(torch.from_numpy(array)[4:8], torch.from_numpy(array)[6:10])
    torch.bitwise_or(v.view(torch.int32)[2:], v.view(torch.int16)[4::2])
    torch.mul(w, w)
    torch.maximum(v, torch.ones(8))
    torch.linspace(0, 1, 7)
    torch.zeros(5).fill_(3)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inputs") / "run.trace"
    with tracer.record(path, values="all"):
        program()
    return path


@pytest.fixture(scope="module")
def trace(path: Path) -> tracer.Trace:
    return tracer.load(path)


def places(values: list) -> list[int]:
    """The first byte of each tensor, from the lowest one of its storage."""
    found = [one for value in values for one in (value if isinstance(value, list) else [value])]
    found = [one for one in found if isinstance(one, torch.Tensor)]
    at = [(one.untyped_storage().data_ptr(), one.data_ptr()) for one in found]
    return [here - min(other for of, other in at if of == storage) for storage, here in at]


@pytest.mark.promise("replay", "docs/replay.md")
@pytest.mark.parametrize(
    ("op", "storages", "offsets"),
    [
        ("aten::bmm", 1, [0, 0]),
        ("aten::cat", 2, [0, 0, 8]),
        ("aten::sub.out", 1, [4, 0, 16]),
        ("aten::dot", 1, [0, 8]),
        ("aten::bitwise_or.Tensor", 1, [0, 0]),
        ("aten::mul.Tensor", 1, [0, 0]),
        ("aten::maximum", 2, [0, 0]),
    ],
)
def test_arguments_share_memory_as_they_did(
    path: Path, trace: tracer.Trace, tmp_path: Path, op: str, storages: int, offsets: list[int]
) -> None:
    hop = hop_of(trace, op)
    call = call_of(trace, hop)
    made = call.made()
    assert places(made) == offsets
    flat = [one for value in made for one in (value if isinstance(value, list) else [value])]
    found = [one for one in flat if isinstance(one, torch.Tensor)]
    assert len({one.untyped_storage().data_ptr() for one in found}) == storages
    assert replay(path, "--hop", hop, "--script", tmp_path / "r.py").exit_code == 0
    written = runpy.run_path(str(tmp_path / "r.py"))
    if op != "aten::sub.out":  # which changes its own inputs in each turn
        assert torch.equal(written["result"], runner(call, None, None)())
        assert places(written["arguments"]) == offsets


def test_what_is_written_into_begins_as_it_was_for_what_shares_it(trace: tracer.Trace) -> None:
    call = call_of(trace, hop_of(trace, "aten::sub.out"))
    run = runner(call, None, None)
    first = run().clone()
    assert torch.equal(run(), first)
    a, b, _ = (one for one in call.made() if isinstance(one, torch.Tensor))
    assert torch.equal(first, a - b)


def test_an_override_that_is_wrong_for_shared_memory_alone_is_found(
    path: Path, trace: tracer.Trace, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    try:
        run = replay(path, "--hop", hop_of(trace, "aten::bmm"), "--override", f"{tmp_path / 'own.py'}:apart")
    finally:
        tracer.overrides.unregister("apart")
    assert "the results differ" in run.stdout, run.stderr
    assert "  mat2 = float32 [3, 4, 4] strides [16, 1, 4] on cpu, in shared memory 0\n" in run.stdout


def test_a_recording_without_scalars_says_that_it_does_not_know(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "plain.trace"):
        program()
    plain = tracer.load(tmp_path / "plain.trace")
    said = "  whether tensors shared memory was not recorded; record with --values scalars\n"
    assert said in replay(tmp_path / "plain.trace", "--hop", hop_of(plain, "aten::bmm")).stdout
    assert (
        said
        not in replay(
            tmp_path / "plain.trace",
            "--hop",
            hop_of(plain, "aten::linspace"),
            "--arg",
            "start=0",
            "--arg",
            "end=1",
            "--arg",
            "steps=7",
        ).stdout
    )


def test_tensors_of_files(path: Path, trace: tracer.Trace, tmp_path: Path) -> None:
    torch.save(torch.arange(8.0), tmp_path / "v.pt")
    torch.save([torch.zeros(2), torch.ones(3)], tmp_path / "list.pt")
    hop = hop_of(trace, "aten::maximum")
    call = call_of(trace, hop, {"self": f"@{tmp_path / 'v.pt'}"})
    assert torch.equal(call.made()[0], torch.arange(8.0))
    script = tmp_path / "r.py"
    given = ("--hop", hop, "--arg", f"self=@{tmp_path / 'v.pt'}")
    assert replay(path, *given, "--script", script).exit_code == 0
    assert torch.equal(runpy.run_path(str(script))["arguments"][0], torch.arange(8.0))
    run = replay(path, *given)
    assert f"  self = float32 [8] of {tmp_path / 'v.pt'}  (given with --arg)\n" in run.stdout, run.stderr
    cat = hop_of(trace, "aten::cat")
    joined = call_of(trace, cat, {"tensors": f"@{tmp_path / 'list.pt'}"})
    assert runner(joined, None, None)().tolist() == [0, 0, 1, 1, 1]
    wrong = replay(path, "--hop", cat, "--arg", f"tensors=@{tmp_path / 'v.pt'}")
    assert wrong.exit_code == 2
    assert f"needs a list of tensors from {tmp_path / 'v.pt'}: torch.save(VALUE, " in wrong.stderr


def test_results_are_held_against_the_recorded_hash(tmp_path: Path) -> None:
    inputs = torch.randn(6), torch.randn(6)
    with tracer.record(tmp_path / "run.trace", values="all"):
        torch.linspace(0, 1, 7)
        torch.atan2(*inputs)
        torch.rand(3)
        torch.empty(4)
    trace = tracer.load(tmp_path / "run.trace")
    for name, one in zip(("self", "other", "more"), (*inputs, inputs[0] + 1), strict=True):
        torch.save(one, tmp_path / f"{name}.pt")
    given = {
        name: ("--arg", f"{argument}=@{tmp_path}/{name}.pt")
        for name, argument in (("self", "self"), ("other", "other"), ("more", "other"))
    }

    def said(op: str, *arguments: str) -> list[str]:
        run = replay(tmp_path / "run.trace", "--hop", hop_of(trace, op), *arguments)
        assert run.exit_code == 0, run.stderr
        return [line for line in run.stdout.splitlines() if "recorded hash" in line]

    equal, differs = "the results have the recorded hash", "the results do not have the recorded hash"
    assert said("aten::linspace") == [equal]
    assert said("aten::linspace", "--arg", "steps=8") == [differs]
    assert said("aten::atan2", *given["self"], *given["other"]) == [equal]
    assert said("aten::atan2", *given["self"], *given["more"]) == [differs]
    assert said("aten::atan2", *given["self"]) == []
    assert said("aten::rand") == said("aten::empty.memory_format") == []


def test_values_of_the_operator_s_own_samples(tmp_path: Path) -> None:
    a = torch.randn(2, 5, 5)
    with tracer.record(tmp_path / "run.trace", values="scalars"):
        torch.linalg.cholesky_ex(a @ a.mT + torch.eye(5))
    hop = hop_of(tracer.load(tmp_path / "run.trace"), "aten::linalg_cholesky_ex")
    call = call_of(tracer.load(tmp_path / "run.trace"), hop)
    assert runner(call, None, None)()[1].any(), "random ones do not fit, and do not raise"
    with tracer.record(tmp_path / "raises.trace", values="scalars"):
        torch.linalg.cholesky(a @ a.mT + torch.eye(5))
    hop = hop_of(tracer.load(tmp_path / "raises.trace"), "aten::linalg_cholesky")
    run = replay(tmp_path / "raises.trace", "--hop", hop)
    assert run.exit_code == 0, run.stderr
    assert "  self = float32 [2, 5, 5] strides [25, 5, 1] on cpu, values definite\n" in run.stdout


def test_probabilities_are_tried_where_there_are_no_samples(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "run.trace", values="scalars"):
        torch.poisson(torch.ones(4, 1).expand(4, 6))
        torch.searchsorted(torch.arange(32.0), torch.ones(3))
    trace = tracer.load(tmp_path / "run.trace")
    run = replay(
        tmp_path / "run.trace", "--hop", hop_of(trace, "aten::poisson"), "--script", tmp_path / "r.py"
    )
    assert run.exit_code == 0, run.stderr
    values = runpy.run_path(str(tmp_path / "r.py"))["arguments"][0]
    assert values.stride() == (1, 0)
    assert 0 <= values.min() < values.max() <= 1
    call = with_fitting_values(call_of(trace, hop_of(trace, "aten::searchsorted.Tensor")), pytest.raises)
    assert [one.fit for one in tensors(call.values)] == ["sorted", ""]
    assert (call.made()[0].diff() >= 0).all()


@pytest.mark.parametrize(
    ("values", "fit"),
    [
        (lambda: [torch.rand(9), torch.rand(3, 3)], "between 0 1"),
        (lambda: [torch.rand(9) * 2 - 1], "between -1 1"),
        (lambda: [torch.rand(9) * 4 + 1], "between 1 "),
        (lambda: [torch.randn(9) * 9], ""),
        (lambda: [torch.tensor([0, 2, 2, 5, 9])], "sorted, first 0"),
        (lambda: [torch.tensor([3, 1, 2, 7])], "least 1"),
        (lambda: [torch.eye(3) * 2, torch.eye(4) + 1], "definite"),
        (lambda: [torch.randn(3, 3).tril()], "lower"),
        (lambda: [torch.randn(2, 4, 4).triu()], "upper"),
        (lambda: [torch.rand(3) > 0.5], ""),
    ],
)
def test_what_samples_have_in_common(values: object, fit: str) -> None:
    torch.manual_seed(0)
    found = fit_of(values())  # type: ignore[operator]
    assert found.startswith(fit)
    assert bool(found) == bool(fit)
    if fit:
        made = fitted(
            torch.randint(9, (5, 5)) if "least" in fit or "first" in fit else torch.randn(5, 5), found
        )
        again = fit_of([made])
        assert again.split()[0] == found.split()[0]
