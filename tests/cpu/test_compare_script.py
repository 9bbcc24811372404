"""`tracer compare --override NAMES SCRIPT`: what its operators compute when they are called again alone."""

from __future__ import annotations

import json

import pytest
from launching import Launcher

OWN = """
import torch
from tracer import overrides
from helper import factor

@overrides.register("aten::softplus", "CPU", name="soft")
def soft(self, beta=1, threshold=20):
    return torch.log1p(torch.exp(self * beta)) / beta * factor + (beta == 1)  # wrong in other calls

@overrides.register("aten::argmax", "CPU", name="last")
def last(self, dim=None, keepdim=False):
    return torch.full((len(self),), 7)

@overrides.register("aten::bernoulli", "CPU", name="chance")
def chance(self, *, generator=None):
    return (torch.rand_like(self) < self).to(self.dtype)
"""
SCRIPT = """
import torch

x = torch.linspace(-3, 3, 64).view(8, 8)
for _ in range(3):
    torch.nn.functional.softplus(x, beta=2)
torch.argmax(x * 0 + 1, 1)
torch.bernoulli(torch.full((8, 8), 0.5))
"""


def compared(launcher: Launcher, names: str, status: int) -> dict:
    launcher.write(OWN, "own.py")
    launcher.write("factor = 1.0\n", "helper.py")
    launcher.write(SCRIPT, "use.py")
    run = launcher.run(
        [str(launcher.tracer), *("compare", "--quick", "--override", names, "--json", "use.py")]
    )
    assert run.status == status, run.err
    return json.loads(run.out)


def test_the_arguments_are_those_of_the_script(launcher: Launcher) -> None:
    """With beta 1 in place of 2 the kernels would compute something else than in the script."""
    document = compared(launcher, "own.py:soft", 1)
    assert document["wrong"].startswith("wrong in ")  # by trials only: with beta 1 too
    results = document["trials"]["results"]
    assert any(one["kind"] == "calls of the script" for one in results)
    assert not any(one["wrong"] for one in results if one["kind"] == "calls of the script")
    (op,) = document["ops"]
    assert (op["op"], op["calls"], op["alone"]["why"], op["alone"]["wrong"]) == (
        "aten::softplus",
        [3, 3],
        "",
        "",
    )
    assert all(error["relative"] < 1e-6 for error in op["alone"]["errors"])
    stock, ours = op["alone"]["memory"]
    assert stock["allocated"] == 256
    assert ours["allocated"] >= 4 * 256
    root = [side["lines"][0]["median_ns"] for side in op["chains"].values()]
    assert root == [op["call"]["stock"]["median"], op["call"]["override"]["median"]]


def test_integers_must_be_the_same_and_random_results_need_not(launcher: Launcher) -> None:
    document = compared(launcher, "own.py:last,own.py:chance", 1)
    alone = {op["op"]: op["alone"] for op in document["ops"]}
    assert alone["aten::argmax"]["wrong"] == "other values than stock's"
    assert alone["aten::bernoulli"]["wrong"] == ""
    assert document["wrong"].startswith(
        "aten::argmax 8x8 f32, called again alone: other values than stock's; wrong in "
    )


ENDS = """
import os, signal, torch
from tracer.overrides import register

@register("aten::softplus", "CPU", name="ends")
def ends(self, beta=1, threshold=20):
    if beta == 2:
        END
    return torch.nn.functional.softplus(self, beta, threshold)
"""


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
        ("os.abort()", "signal 6"),
        ("os._exit(0)", "status 0"),
    ],
)
def test_an_override_that_ends_the_script_is_named_with_its_call(
    launcher: Launcher, end: str, how: str
) -> None:
    launcher.write(ENDS.replace("END", end), "own.py")
    launcher.write(SCRIPT, "use.py")
    run = launcher.run([str(launcher.tracer), "compare", "--override", "own.py:ends", "--quick", "use.py"])
    assert run.status == 1
    said = f"tracer: WRONG: the override ended the process with {how}, in aten::softplus (8x8 f32)"
    assert run.err.splitlines()[-1].startswith(said), run.err
