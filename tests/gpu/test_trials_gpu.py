"""Trials on a GPU: a wrong override is found, a right one is not, and none costs the process its GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CPU = Path(__file__).parents[1] / "cpu"
WRONG = """
index_select_int32 nll_loss_ignored argmax_nan mm_promotes scatter_add_once sort_one_place
mul_number embedding_padding abs_overflow
""".split()
RIGHT = ("sort", "gather", "bmm", "group_norm")

ENDS = """
import torch
from tracer import overrides
from tracer.compare.switch import Switch
from tracer.compare.trials import run_trials
from tracer.compare.verdict import of_trials

def neg(x):
    if x.numel() == 0:
        return torch.neg(x)
    outside = torch.full((1,), 9, device="cuda")
    return torch.neg(x) + torch.zeros(3, device="cuda", dtype=x.dtype)[outside].sum()

overrides.register("aten::neg", "CUDA", neg, name="ends")
trials = run_trials(Switch(["ends"]), quick=True)
print(of_trials(trials))
print(len(trials.wrong), trials.wrong[-1].wrong)
"""


@pytest.fixture(autouse=True)
def _judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(CPU)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_override_is_found(name: str) -> None:
    from judged_overrides import first_found, known

    (one,) = [one for one in known() if one.name == name]
    assert first_found(one, key="CUDA") is not None


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_override_differs_in_nothing(name: str) -> None:
    from judged_overrides import Wrong, first_found
    from right_overrides import RIGHT as FUNCTIONS

    operator, function = FUNCTIONS[name]
    assert first_found(Wrong(operator, "nothing", function), key="CUDA") is None


def test_an_override_that_ends_cuda_is_wrong_and_the_last(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(ENDS)
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr[-2000:]
    verdict, wrong = run.stdout.splitlines()[-2:]
    assert verdict.startswith("WRONG in 1 of "), run.stdout
    assert "the GPU answered no more" in verdict, run.stdout
    assert wrong.startswith("1 "), run.stdout


FAILS = """
import torch
from tracer.compare.trial_samples import Sample
from tracer.compare.trial_stories import in_a_graph

def draws_and_waits(x):
    return torch.rand_like(x) + x.sum().item()

call = Sample("usual", "", lambda: ([torch.ones(3, device="cuda")], {}), draws_and_waits)
print(sorted(in_a_graph(call, "cuda", 1)), torch.rand(2, device="cuda").shape)
"""


def test_a_capture_that_fails_takes_no_random_numbers_away() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.stdout == "['capture'] torch.Size([2])\n", run.stderr[-2000:]
