"""Multi-head attention three times: head by head, all heads in one product, and PyTorch's fused function.

    python examples/gallery/attention.py
    tracer record examples/gallery/attention.py

All three have the same weights and give the same numbers; what differs is how much is asked of the
dispatcher, and whether the matrix of scores, (time, time) for each head, is ever written to memory. Each
ends with `tracer.step()`: step 0 makes the models, 1 runs the first of them, 2 the second and 3 the third.

Look at the op calls of each: a loop over heads calls its ops anew for each head (`aten::bmm` 16 times, for
scores and values); with the heads as a dimension two `aten::bmm`, one for the scores and one for the values,
do all, for which `aten::clone` first lays the features of each head side by side;
`scaled_dot_product_attention` is one kernel (on a CPU it is called
`_scaled_dot_product_flash_attention_for_cpu`), and no op is left that makes or normalises scores. In all the
loop makes nearly four times as many op calls as all heads in one product, and the fused function the fewest.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import tracer

BATCH, TIME, WIDTH, HEADS = 4, 64, 64, 8


class Attention(nn.Module):
    """x (batch, time, width) -> the same shape. What attends is left to the classes below."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.inputs(x).chunk(3, dim=-1)
        return self.output(self.attend(query, key, value))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        raise NotImplementedError


def heads_of(x: Tensor) -> Tensor:
    """(batch, time, width) -> (batch, heads, time, width / heads)."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class HeadByHead(Attention):
    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        results = []
        for q, k, v in zip(*(x.chunk(HEADS, dim=-1) for x in (query, key, value)), strict=True):
            scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
            results.append(scores.softmax(dim=-1) @ v)
        return torch.cat(results, dim=-1)


class AllHeads(Attention):
    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = heads_of(query), heads_of(key), heads_of(value)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)


class Fused(Attention):
    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = heads_of(query), heads_of(key), heads_of(value)
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def main() -> None:
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(BATCH, TIME, WIDTH, device=device)
    models = [kind().to(device) for kind in (HeadByHead, AllHeads, Fused)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    results = []
    tracer.step()
    for model in models:
        with torch.no_grad():
            results.append(model(x))
        tracer.step()
    for model, result in zip(models, results, strict=True):
        largest = (result - results[0]).abs().max().item()
        print(
            f"{type(model).__name__}: {tuple(result.shape)}, differs from the first by {largest:.0e} at most"
        )


if __name__ == "__main__":
    main()
