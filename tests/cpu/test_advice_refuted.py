"""Programs in which an advice would be wrong: what it names cannot be done there, or gives something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_advise import advised, rules

ATTENTION = """
import torch
from torch import nn

q, k, v = (nn.Linear(64, 64) for _ in range(3))
layers = nn.ModuleList([q, k, v])
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1, fused=True)
for _ in range(8):
    x = torch.randn(8, 96, 64)
    values = v(x)
    scores = q(x) @ k(x).transpose(-1, -2) / 8
    {}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OF_ATTENTION = {
    "of torch": "loss = (torch.softmax(scores, -1) @ values).sum()",
    "over the queries": "loss = (torch.softmax(scores, 1) @ values).sum()",
    "weights are read": "w = torch.softmax(scores, -1); loss = (w @ values).sum() + (w * w.log()).sum()",
    "weights are masked": "w = torch.softmax(scores, -1) * torch.rand(8, 96, 96); loss = (w @ values).sum()",
    "weights are turned": "loss = (torch.softmax(scores, -1).transpose(-1, -2) @ values).sum()",
    "scaled one by one": "loss = (torch.softmax(scores * torch.rand(96, 96), -1) @ values).sum()",
}
OPTIMIZER = """
import torch
from torch import nn

{}
for _ in range(8):
    {}
    optimizer.step()
    optimizer.zero_grad()
"""
PARAMETERS = "parameters = [nn.Parameter(torch.rand(8, 8)) for _ in range(30)]\n"
DENSE = "sum((one * one).sum() for one in parameters).backward()"
OWN = """
class Adam(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for one in self.param_groups[0]["params"]:
            state = self.state[one]
            if not state:
                state["mean"], state["square"] = torch.zeros_like(one), torch.ones_like(one)
            state["mean"].mul_(0.9).add_(one.grad, alpha=0.1)
            state["square"].mul_(0.99).addcmul_(one.grad, one.grad, value=0.01)
            one.addcdiv_(state["mean"], state["square"].sqrt(), value=-0.1)

optimizer = Adam(parameters)
"""
ADAM = "optimizer = torch.optim.Adam(parameters{}, foreach=False)"
SPARSE = "table = nn.Embedding(100, 16, sparse=True)\noptimizer = torch.optim.Adagrad(table.parameters())"
OF_OPTIMIZERS: dict[str, tuple[str, str, set[str]]] = {
    "of torch": (PARAMETERS + ADAM.format(""), DENSE, {"fused=True", "foreach=True"}),
    "two of them": (
        f"{PARAMETERS}{ADAM.format('')}\nothers = [nn.Parameter(torch.rand(8, 8)) for _ in range(9)]\n"
        f"another = torch.optim.Adam(others, foreach=False)",
        f"sum(one.sum() for one in others).backward()\n    another.step()\n    {DENSE}",
        {"fused=True", "foreach=True"},
    ),
    "its rate is a tensor": (
        PARAMETERS + ADAM.format(", lr=torch.tensor(0.1)"),
        DENSE,
        {"fused=True"},
    ),
    "sparse gradients": (SPARSE, "table(torch.randint(0, 100, (32,))).sum().backward()", {"foreach=True"}),
    "a class of the program": (PARAMETERS + OWN, DENSE, set()),
}
DUAL = """
import torch
import torch.autograd.forward_ad as dual
from torch import nn

model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(8)])
for _ in range(8):
    with dual.dual_level():
        dual.unpack_dual(model(dual.make_dual(torch.rand(4, 32), torch.rand(4, 32)))).tangent
    tracer.step()
"""
NO_GRAD = """
import torch
from torch import nn
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
with torch.no_grad():
    for batch in torch.randn(40, 16, 64):
        model(batch)
"""
CAST = """
import numpy
import torch

data = numpy.random.rand(2000, 512)
weight = torch.rand(512, 4)
for _ in range(8):
    torch.from_numpy(data).float() @ weight
    tracer.step()
"""


def every(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for row in document["advice"] for one in (row, *row["alternatives"])]


@pytest.mark.parametrize("case", OF_ATTENTION)
def test_only_what_a_fused_kernel_computes_is_attention(tmp_path: Path, case: str) -> None:
    found = advised(tmp_path, ATTENTION.format(OF_ATTENTION[case]))
    assert ("attention" in rules(found)) is (case == "of torch")


@pytest.mark.parametrize("case", OF_OPTIMIZERS)
def test_an_optimizer_is_told_what_it_takes(tmp_path: Path, case: str) -> None:
    made, backward, wanted = OF_OPTIMIZERS[case]
    rows = every(advised(tmp_path, OPTIMIZER.format(made, backward)))
    said = {word for row in rows if row["rule"] == "optimizer" for word in wanted_words(row["do"])}
    assert said == wanted


def wanted_words(do: str) -> set[str]:
    return {word for word in ("fused=True", "foreach=True") if word in do}


@pytest.mark.parametrize(
    ("text", "rule"), [(DUAL, "inference"), (NO_GRAD, "inference"), (CAST, "wide-numbers")]
)
def test_what_is_needed_is_no_waste(tmp_path: Path, text: str, rule: str) -> None:
    """Forward-mode gradients; weights under no_grad; a cast that makes numbers of a file float32."""
    assert rule not in rules(advised(tmp_path, "import tracer\n" + text))
