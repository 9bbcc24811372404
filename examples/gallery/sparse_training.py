"""2:4 sparsity in training: the weight is packed anew at each step, with its transpose, which backward needs.

    python examples/gallery/sparse_training.py        (needs a CUDA GPU and cuSPARSELt)
    tracer record examples/gallery/sparse_training.py

Look at one step: `aten::_cslt_compress` runs twice for each layer, for W and for its transpose; forward
multiplies with the one, backward with the other, both in `aten::_cslt_sparse_mm`, and the gradient of W is a
dense product. What chooses the zeros at runtime (a product with all 90 masks, an argmax, and the chosen
masks, fetched by index) costs launches of its own, which the sparse products have to win back. Memory is
paid, not saved: two packed weights of 9/16 are 9/8 of the dense one, which stays as well, since the optimizer
changes it.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.sparse import SparseSemiStructuredTensorCUSPARSELT

ROWS, WIDTH, STEPS = 4096, 2048, 6

PAIRS = [row for row in itertools.product((0.0, 1.0), repeat=4) if sum(row) == 2]
# the 90 masks of 4 x 4 with two of four in each row and in each column
MASKS = torch.tensor(
    [mask for mask in itertools.product(PAIRS, repeat=4) if all(sum(c) == 2 for c in zip(*mask, strict=True))]
).view(-1, 16)


def pruned(weight: Tensor) -> Tensor:
    """Two of four are left along rows and along columns: in each tile the mask that keeps most."""
    rows, columns = weight.shape
    masks = MASKS.to(weight)
    tiles = weight.view(rows // 4, 4, columns // 4, 4).transpose(1, 2).reshape(-1, 16)
    best = (tiles.abs() @ masks.t()).argmax(dim=1)
    kept = (tiles * masks[best]).view(rows // 4, columns // 4, 4, 4)
    return kept.transpose(1, 2).reshape(rows, columns)


def packed(weight: Tensor) -> Any:
    """The pruned weight and its transpose, as the tensor cores read them."""
    kept = pruned(weight.detach())
    return SparseSemiStructuredTensorCUSPARSELT(
        kept.shape,
        packed=torch._cslt_compress(kept),
        meta=None,
        packed_t=torch._cslt_compress(kept.t().contiguous()),
        meta_t=None,
        compressed_swizzled_bitmask=None,
    )


class SparseProduct(torch.autograd.Function):
    """x W^T with W pruned on the way; its gradient passes the pruning as if it were not there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.sparse = packed(weight)
        ctx.save_for_backward(x)
        return x @ ctx.sparse.t()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (x,) = ctx.saved_tensors
        return grad @ ctx.sparse, grad.t() @ x


class SparseLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) / WIDTH**0.5
        )

    def forward(self, x: Tensor) -> Tensor:
        return SparseProduct.apply(x, self.weight)


def main() -> None:
    if not (torch.cuda.is_available() and torch.backends.cusparselt.is_available()):
        lacks = "cuSPARSELt" if torch.cuda.is_available() else "a CUDA GPU"
        print(f"sparse_training.py needs {lacks}, and torch finds none here", file=sys.stderr)
        sys.exit(3)
    torch.manual_seed(0)
    net = nn.Sequential(SparseLinear(), nn.ReLU(), SparseLinear())
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    target = x.roll(1, dims=1).float()
    for step in range(1, STEPS + 1):
        loss = nn.functional.mse_loss(net(x).float(), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"step {step}: loss {loss.item():.4f}")

    weight = net[0].weight.detach()
    sparse = packed(weight)
    share = (sparse.packed.nbytes + sparse.packed_t.nbytes) / weight.nbytes
    print(f"packed, both directions: {share:.4f} of the dense weight's bytes")
    same = torch.allclose(x @ sparse.t(), x @ pruned(weight).t(), rtol=2e-2, atol=2e-2)
    print(f"the sparse product is the dense one of the pruned weight: {same}")


if __name__ == "__main__":
    main()
