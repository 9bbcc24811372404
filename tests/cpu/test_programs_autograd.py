"""Programs that reach into the backward pass: hooks on saved tensors, and checkpoints that run twice."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from lazily import torch
from programs import at, recorded, values, ways

PACK = [  # what the hook does: Tensor.to
    "aten::to.dtype [AutogradCPU]",
    "aten::_to_copy [AutogradCPU]",
    "-> aten::_to_copy [BackendSelect]",
    "-> aten::_to_copy [CPU]",
]


def line_of(function: object, offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def with_hooks() -> list[torch.Tensor]:
    weight = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.double(), lambda x: x.float()):
        y = torch.mm(weight, weight).exp()
    y.sum().backward()
    return [y.detach(), weight.grad]


def test_saved_tensor_hooks(tmp_path: Path) -> None:
    """Packing runs inside the forward hop that saves, unpacking in the backward node that needs it."""
    hops = recorded(tmp_path, with_hooks)
    packed = hops.filter(pl.col("backward_node").is_null())
    taken = ways(hops, "aten::_to_copy", "CPU")
    # mm saves both factors before it goes on, exp its result after it ran: inside of either hop
    assert taken[:3] == [
        ["aten::mm [AutogradCPU]", *PACK],
        ["aten::mm [AutogradCPU]", *PACK],
        ["aten::exp [AutogradCPU]", *PACK],
    ]
    assert taken[3:] == [PACK] * 3, "of a backward the engine is the caller, and no hop"
    assert values(at(packed, "aten::_to_copy", "CPU"), "source") == [line_of(with_hooks, 2)], "the hook's"

    unpacked = hops.filter(pl.col("backward_node").is_not_null())
    unpacked = at(unpacked, "aten::_to_copy", "CPU")
    assert values(unpacked, "backward_node") == ["ExpBackward0", "MmBackward0"]
    assert values(unpacked, "source") == [line_of(with_hooks, 3)], "the forward line"
    assert values(unpacked, "called_from") == [line_of(with_hooks, 2)], "the hook's own line"
    makers = hops[unpacked["forward_hop"].unique(maintain_order=True)]
    assert values(makers, "op") == ["aten::exp", "aten::mm"]


def checkpointed(reentrant: bool) -> list[torch.Tensor]:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    weight = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
    y = checkpoint(lambda x: torch.dropout(torch.mm(x, x).tanh(), 0.5, True), weight, use_reentrant=reentrant)
    y.sum().backward()
    return [y.detach(), weight.grad]


@pytest.mark.parametrize(
    ("reentrant", "node"), [(False, "MulBackward0"), (True, "CheckpointFunctionBackward")]
)
def test_checkpoint(tmp_path: Path, reentrant: bool, node: str) -> None:
    """The forward runs again inside the backward, from its own line, with the same random numbers."""
    hops = recorded(tmp_path, lambda: checkpointed(reentrant))
    line = line_of(checkpointed, 5)
    for op in ("aten::tanh", "aten::bernoulli_.float"):
        first, second = (
            at(hops, op, "CPU").select(pl.col("backward_node", "called_from").cast(pl.String)).rows()
        )
        assert first == (None, line)
        assert second[0].endswith(node), second
        assert second[1] == line
    products = at(hops, "aten::mm", "CPU")["backward_node"].cast(pl.String).to_list()
    assert products[0] is None
    assert products[1].endswith(node)
    assert products[2:] == ["MmBackward0"] * 2
    # whose backward it is: of the first run without reentry, else of the second, which made the nodes
    product = at(hops, "aten::mm", "AutogradCPU")
    makers = set(product.filter(pl.col("backward_node").cast(pl.String) == "MmBackward0")["forward_hop"])
    assert makers == {product["id"][1 if reentrant else 0]}
