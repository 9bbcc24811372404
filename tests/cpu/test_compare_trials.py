"""Trials of `tracer compare`: overrides that are right in every case and break what else stock keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from launching import Launcher
from lazily import torch

from tracer import overrides
from tracer.compare.cases import FAMILIES
from tracer.compare.several import implementations
from tracer.compare.switch import Switch
from tracer.compare.trials import TrialResult, _tried, run_trials, trials_of


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch._C._dispatch_dump_table("aten::mm")
    yield
    for name in set(overrides.registered()) & {"tested", "other"}:
        overrides.unregister(name)
    assert torch._C._dispatch_dump_table("aten::mm") == before


def tried(function: Callable, operator: str = "aten::mm", family: str = "mm") -> list[TrialResult]:
    overrides.register(operator, "CPU", function, name="tested")
    return run_trials(family, Switch(["tested"]))


def wrong(results: list[TrialResult]) -> dict[str, str]:
    return {result.name: result.wrong for result in results if result.wrong}


def stock(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return torch.mm(self, mat2)


def other_for_strided_self(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    if not self.is_contiguous():
        self = self.contiguous().flip(0)
    return torch.mm(self, mat2)


def transposed_strides(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return torch.mm(mat2.t(), self.t()).t()


def part_of_a_buffer(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    result = torch.mm(self, mat2)
    buffer = torch.empty(result.numel() + 16, dtype=result.dtype)
    return buffer[: result.numel()].view(result.shape).copy_(result)


_BUFFERS: dict[tuple, torch.Tensor] = {}


def the_same_buffer(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    result = torch.mm(self, mat2)
    buffer = _BUFFERS.setdefault((result.shape, result.dtype), torch.empty_like(result))
    return buffer.copy_(result)


def requires_grad(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return torch.mm(self, mat2).detach().requires_grad_(self.is_floating_point())


def other_for_integers(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    result = torch.mm(self, mat2)
    return result if self.is_floating_point() else result + 1


def other_for_empty(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return (
        torch.ones(len(self), mat2.shape[1], dtype=self.dtype) if not self.shape[1] else torch.mm(self, mat2)
    )


def without_nan(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    clean = (lambda tensor: tensor.nan_to_num(0)) if self.is_floating_point() else (lambda tensor: tensor)
    return torch.mm(clean(self), clean(mat2))


def one_ulp_more(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    result = torch.mm(self, mat2)
    if self.dtype == torch.float32 and self.is_contiguous() and self.numel():
        self.view(torch.int32).view(-1)[0] += 1  # of the input, after it was used
    return result


def written_and_put_back(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    torch.autograd.graph.increment_version(self)  # as ops in place do above the override
    return torch.mm(self, mat2)


def raising(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    if self.stride() != (1, 1) and not self.is_contiguous():
        raise ValueError("contiguous tensors only\nand more")
    return torch.mm(self, mat2)


@pytest.mark.parametrize(
    ("function", "trial", "said"),
    [
        (other_for_strided_self, "mm, transposed self", "relative error"),
        (transposed_strides, "mm, float32", "strides (1, 24), but stock has (40, 1)"),
        (part_of_a_buffer, "mm, float32", "the result is a part of 3,904 bytes, but stock's has 3,840"),
        (the_same_buffer, "mm, float32", "two calls return the same memory"),
        (requires_grad, "mm, float32", "requires_grad True, but stock has False"),
        (other_for_integers, "mm, int64", "other values than stock's"),
        (other_for_empty, "mm, nothing to add up", "relative error"),
        (without_nan, "mm, nan in both", "relative error"),
        (one_ulp_more, "mm, float32", "it changes input 0"),
        (written_and_put_back, "mm, float32", "it writes to input 0: its version counter rose"),
        (raising, "mm, transposed self", "it raised ValueError: contiguous tensors only"),
    ],
)
def test_each_wrong_override_is_found(function: Callable, trial: str, said: str) -> None:
    found = wrong(tried(function))
    assert found[trial].startswith(said), found


def test_an_override_that_does_as_stock_is_right() -> None:
    results = tried(stock)
    assert wrong(results) == {}
    assert all(result.ran and not result.skipped for result in results)
    assert len(results) >= 20


def test_cat_and_gru_are_tried_too() -> None:
    def cat(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
        return torch.cat(tensors, dim)

    def without_sign(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
        result = torch.cat(tensors, dim)
        return result + 0.0 if result.is_floating_point() else result

    assert wrong(tried(cat, "aten::cat", "cat")) == {}
    overrides.unregister("tested")
    assert wrong(tried(without_sign, "aten::cat", "cat")) == {
        "cat, nan, inf and -0.0": "other values than stock's"
    }
    overrides.unregister("tested")
    overrides.register(
        "aten::addmm", "CPU", lambda *given, **named: torch.addmm(*given, **named), name="tested"
    )
    results = [_tried(trial, Switch(["tested"])) for trial in trials_of("gru")]  # gru itself is composite
    assert wrong(results) == {}
    assert not any(result.skipped for result in results)


def test_only_operators_of_the_override_are_tried() -> None:
    assert {result.name.partition(",")[0] for result in tried(stock)} == {"mm"}
    assert run_trials("cat", Switch(["tested"])) == []
    assert all(len(trials_of(family)) > 5 for family in FAMILIES)


def test_overrides_of_one_operator_are_apart_and_others_together() -> None:
    overrides.register("aten::mm", "CPU", stock, name="tested")
    overrides.register("aten::mm", "CPU", requires_grad, name="other")
    assert implementations(["tested", "other"]) == [["tested"], ["other"]]
    overrides.unregister("other")
    overrides.register("aten::neg", "CPU", lambda self: torch.neg(self), name="other")
    assert implementations(["tested", "other"]) == [["tested", "other"]]


KERNELS = """\
import torch
from tracer.overrides import register

@register("aten::mm", "CPU", name="fine")
def fine(self, mat2):
    return torch.mm(self, mat2)

@register("aten::mm", "CPU", name="leaky")
def leaky(self, mat2):
    return torch.mm(self, mat2).detach().requires_grad_(self.is_floating_point())
"""


@pytest.fixture
def launcher(tmp_path) -> Launcher:
    made = Launcher(tmp_path)
    made.write(KERNELS, "kernels.py")
    return made


def compare(launcher: Launcher, *arguments: str):
    return launcher.run([str(launcher.tracer), "compare", *arguments])


def test_a_wrong_trial_ends_with_status_1_and_one_line(launcher: Launcher) -> None:
    run = compare(launcher, "mm", "--override", "kernels.py:leaky", "--pairs", "2", "--details", "0")
    assert run.status == 1
    assert run.err == (
        "tracer: wrong in 17 of 20 trials; mm, float32: requires_grad True, but stock has False\n"
    )
    assert "**WRONG: 9 of 9 cases right; the override ran in 8; 17 trials wrong**" in run.out
    assert "## Trials" in run.out
    fine = compare(launcher, "mm", "--override", "kernels.py:fine", "--pairs", "2", "--details", "0")
    assert (fine.status, fine.err) == (0, "")
    assert "20 of 20 trials are right; the override ran in 20." in " ".join(fine.out.split())


def test_several_implementations_have_a_summary_and_a_picture(launcher: Launcher) -> None:
    both = (
        "--override",
        "kernels.py:fine",
        "--override",
        "kernels.py:leaky",
        "--pairs",
        "2",
        "--details",
        "0",
    )
    run = compare(launcher, "mm", *both, "-o", "mm.md")
    assert run.status == 1
    assert "leaky: wrong in 17 of 20 trials" in run.err
    text = (launcher.folder / "mm.md").read_text()
    assert text.startswith("# tracer compare mm: stock beside `fine`, `leaky`\n")
    assert "- `fine`: 9 of 9 cases right" in text
    assert "- `leaky`: WRONG: 9 of 9 cases right" in text
    assert text.count("\n# tracer compare mm: stock beside") == 2
    assert "mm.ratios.svg" in text
    picture = (launcher.folder / "mm.ratios.svg").read_text()
    assert "fine" in picture
    assert "leaky" in picture


SCRIPT = """\
import sys, torch
print("before")
print((torch.ones(2, 3) @ torch.ones(3, 2)).requires_grad)
"""


def test_a_script_that_writes_otherwise_ends_with_status_1(launcher: Launcher) -> None:
    launcher.write(SCRIPT, "train.py")
    run = compare(launcher, "--override", "kernels.py:leaky", "--repeats", "2", "train.py")
    assert run.status == 1
    assert run.err == "tracer: stdout differs from stock's: 'False' became 'True'\n"
    assert compare(launcher, "--override", "kernels.py:fine", "--repeats", "1", "train.py").status == 0


def test_a_script_that_never_writes_the_same_is_not_judged(launcher: Launcher) -> None:
    launcher.write(SCRIPT + "import time\nprint(time.time_ns())\n", "train.py")
    run = compare(launcher, "--override", "kernels.py:fine", "--repeats", "2", "train.py")
    assert (run.status, run.err) == (0, "")
    assert "It differs between runs of stock, too." in run.out
