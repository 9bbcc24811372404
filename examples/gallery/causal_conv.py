"""`eps + conv1d(pad(k), w)`: a causal convolution by channels in three ops, in two and in one.

    python examples/gallery/causal_conv.py
    tracer record examples/gallery/causal_conv.py

Look at the ops around `aten::convolution`: `aten::pad` fills a longer tensor and copies all of `k`
into it, `aten::add` reads and writes the result once more. With eps as the bias the sum is gone. With
`padding` the copy is gone too, and a view cuts off the extra outputs. Fewer ops are not always
faster: on a CPU the library below chooses another kernel for a padding this wide, so compare the times
of the three convolutions. Their hops are the same; `ONEDNN_VERBOSE=1` in the environment names the kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d

BATCH, CHANNELS, T = 8, 64, 128
EPS = 1e-3
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def three_ops(k: Tensor, w: Tensor, eps: Tensor) -> Tensor:
    """`k` is (batch, channels, T), `w` (channels, T), `eps` (channels,)."""
    padded = nn.ZeroPad2d((T - 1, 0, 0, 0))(k)
    return eps[:, None] + conv1d(padded, w.unsqueeze(1), groups=CHANNELS)


def two_ops(k: Tensor, w: Tensor, eps: Tensor) -> Tensor:
    return conv1d(nn.ZeroPad2d((T - 1, 0, 0, 0))(k), w.unsqueeze(1), eps, groups=CHANNELS)  # the bias


def one_op(k: Tensor, w: Tensor, eps: Tensor) -> Tensor:
    return conv1d(k, w.unsqueeze(1), eps, padding=T - 1, groups=CHANNELS)[..., :T]


def milliseconds(run: Callable[[], Tensor]) -> float:
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return min(taken) * 1e3


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # steadier times
    k, w = torch.randn(BATCH, CHANNELS, T).to(DEVICE), torch.randn(CHANNELS, T).to(DEVICE)
    eps = torch.full((CHANNELS,), EPS, device=DEVICE)
    expected = three_ops(k, w, eps)
    for name, run in (("pad, conv1d, add", three_ops), ("pad, conv1d", two_ops), ("conv1d", one_op)):
        same = torch.allclose(run(k, w, eps), expected, atol=1e-4)
        print(f"{name:<17} {milliseconds(lambda run=run: run(k, w, eps)):6.2f} ms, the same: {same}")


if __name__ == "__main__":
    main()
