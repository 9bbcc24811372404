"""An embedding is a table: looking up takes rows out of it, and backprop writes into the same rows.

    python examples/gallery/embedding.py
    tracer record examples/gallery/embedding.py

Look at `aten::embedding`: it is one `index_select` of rows, the integers are multiplied with nothing. Its
backward fills a gradient as large as the whole table and adds to the rows that were looked up, so the step
of the optimizer walks over all rows to change three. With `sparse=True` the backward makes a sparse tensor
of the four rows that were looked up, number 7 twice (`aten::_sparse_coo_tensor_unsafe`, 4 x 8 numbers), and
the step adds only them. The script prints 24 numbers: `coalesce()` has added the two of number 7.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

ROWS, WIDTH = 1000, 8
TOKENS = torch.tensor([2, 7, 7, 5])
TARGET = torch.ones(len(TOKENS), WIDTH)


def changed_rows(embedding: nn.Embedding) -> list[int]:
    """Which rows one step of training changes."""
    before = embedding.weight.detach().clone()
    optimiser = torch.optim.SGD(embedding.parameters(), lr=0.5)
    looked_up: Tensor = embedding(TOKENS)
    assert torch.equal(looked_up, before[TOKENS]), "a lookup is nothing but indexing"
    nn.functional.mse_loss(looked_up, TARGET).backward()
    optimiser.step()
    return (embedding.weight.detach() != before).any(dim=1).nonzero().flatten().tolist()


def main() -> None:
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    for sparse in (False, True):
        torch.manual_seed(0)
        embedding = nn.Embedding(ROWS, WIDTH, sparse=sparse)
        rows = changed_rows(embedding)
        gradient = embedding.weight.grad
        stored = gradient.coalesce().values() if sparse else gradient
        kind = "sparse" if sparse else "dense"
        print(f"{kind}: rows {rows} of {ROWS} changed, the gradient holds {stored.numel():,} numbers")


if __name__ == "__main__":
    main()
