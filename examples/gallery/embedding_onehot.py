"""An embedding is a product with one-hot rows, without the product; a bag of them is one op.

    python examples/gallery/embedding_onehot.py
    tracer record examples/gallery/embedding_onehot.py

Look at the two lookups: `aten::embedding` becomes one `aten::index_select`, which reads only the rows that
you look up. The product becomes `aten::mm`, which reads the whole table and multiplies nearly all of it by
zero. Their gradients are equal, except for the row of `padding_idx`: only `aten::embedding_dense_backward`
skips it. A bag looks up and sums in one op, `aten::_embedding_bag_forward_only`, without a tensor of the
rows in between (the `aten::empty` below it are its results).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

ROWS, WIDTH, PADDING = 5_000, 64, 0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def by_lookup(table: nn.Embedding, tokens: Tensor) -> Tensor:
    return table(tokens)


def by_product(table: nn.Embedding, tokens: Tensor) -> Tensor:
    return one_hot(tokens, ROWS).to(table.weight.dtype) @ table.weight


def gradient(table: nn.Embedding, looked_up: Tensor) -> Tensor:
    (result,) = torch.autograd.grad(looked_up.square().sum() + looked_up.sum(), table.weight)
    return result


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    table = nn.Embedding(ROWS, WIDTH, padding_idx=PADDING).to(DEVICE)
    tokens = torch.tensor([5, 7, 7, 9, 11, 5, PADDING, PADDING], device=DEVICE)

    lookup, product = by_lookup(table, tokens), by_product(table, tokens)
    print(f"the same rows: {torch.equal(lookup, product)}")
    of_lookup, of_product = gradient(table, lookup), gradient(table, product)
    differ = (of_lookup != of_product).any(1).nonzero().flatten().tolist()
    print(
        f"rows where the gradients differ: {differ}, of the lookup it is {of_lookup[PADDING].abs().max():.0f}"
    )
    touched = of_lookup.abs().sum(1).count_nonzero().item()
    print(f"rows with a gradient: {touched} of {ROWS:,}")

    bag = nn.EmbeddingBag.from_pretrained(table.weight.detach(), mode="sum")
    pairs = tokens.view(4, 2)
    print(f"a bag is lookup and sum: {torch.allclose(bag(pairs), table(pairs).sum(1))}")


if __name__ == "__main__":
    main()
