"""Placement: what `.to()` dispatches to, and where ops on tensors of one device and of two run.

    python examples/gallery/placement.py
    tracer record examples/gallery/placement.py

Look at the hops of each `.to()`: one that changes nothing is one hop and gives the tensor itself back.
Whatever changes, dtype or device, is `aten::_to_copy`: an empty tensor at the new place and `aten::copy_`.
Without a GPU the second device is meta, which has shapes and no data. The first sum on meta runs functions in
Python, and most of its time is loading them.
"""

from __future__ import annotations

import torch
from torch import nn

OTHER = "cuda" if torch.cuda.is_available() else "meta"


def main() -> None:
    x = torch.arange(6.0).view(2, 3)
    print(f"x.to('cpu') is x: {x.to('cpu') is x}")
    print(f"x.to(torch.float32) is x: {x.to(torch.float32) is x}")
    print(f"x.to(torch.float32, copy=True) is x: {x.to(torch.float32, copy=True) is x}")

    half = x.to(torch.bfloat16)
    there = x.to(OTHER)
    both = x.to(OTHER, torch.bfloat16)
    like = half.to(x)
    for name, moved in (("half", half), ("there", there), ("both", both), ("like", like)):
        print(f"{name}: {moved.device.type}, {moved.dtype}")

    layer = nn.Linear(3, 2, bias=False)
    layer.to(OTHER)
    print(f"a module moves parameter by parameter: {[p.device.type for p in layer.parameters()]}")
    print(f"and its product runs there: {layer(there).device.type}")

    try:
        torch.add(x, there)
    except RuntimeError as error:
        print(f"two devices in one op: {str(error).splitlines()[0]}")
    scalar = torch.tensor(2.0)
    print(f"only a scalar of the CPU may come along: {torch.mul(there, scalar).device.type}")


if __name__ == "__main__":
    main()
