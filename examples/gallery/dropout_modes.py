"""Dropout: in training a mask and a product, in evaluation nothing at all, and on a GPU one fused op.

    python examples/gallery/dropout_modes.py
    tracer record examples/gallery/dropout_modes.py

Look at the children of `aten::dropout`: on a CPU it draws a mask (`bernoulli_`), scales it (`div_`) and
multiplies; on a GPU the three are `aten::native_dropout`, one kernel. In evaluation the hop is there and
has no child: the input comes back.
"""

from __future__ import annotations

import torch
from torch import nn

P = 0.25
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, 100, device=DEVICE, requires_grad=True)
    dropout = nn.Dropout(P)

    y = dropout(x)
    dropped = (y == 0).float().mean().item()
    kept = y[y != 0].unique().tolist()
    print(f"training: {dropped:.1%} dropped, the rest scaled to {kept[0]:.4f}, mean {y.mean().item():.3f}")
    y.sum().backward()
    print(f"backward: the same mask, {torch.equal(x.grad, y.detach())}")

    dropout.eval()
    print(
        f"evaluation: the input itself comes back, {dropout(x) is x or dropout(x).data_ptr() == x.data_ptr()}"
    )

    torch.manual_seed(0)
    again = nn.functional.dropout(x, P, training=True)
    print(f"the same seed gives the same mask, {torch.equal(again, y)}")


if __name__ == "__main__":
    main()
