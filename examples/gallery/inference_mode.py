"""The same ResNet-18 with gradients, under no_grad and under inference_mode: which hops vanish.

    python examples/gallery/inference_mode.py
    tracer record examples/gallery/inference_mode.py

Each pass ends with `tracer.step()`: step 0 makes the net and warms up, 1 ran with gradients, 2 under
`torch.no_grad()`, 3 under `torch.inference_mode()`. The results are equal to the last bit.

Look at the three tables. With gradients an op stops at `AutogradCPU` first (on a GPU `AutogradCUDA`), and if
it returns a view or writes in place at `ADInplaceOrView` too. `no_grad` takes no hop away: the autograd
kernels still run and only make no node of the graph. `inference_mode` takes autograd out of the way: ops go
straight to the kernel of the device, those that are made of other ops (`aten::conv2d`, `aten::linear`) too.
`ADInplaceOrView` stays where an op views or writes and an input was made before the mode began: `aten::t` of
the last weight, and views or copies within kernels. The column `share` says what autograd's own hops took.
Each mode has one pass, so the differences of total time, and those between the trees, are noise: compare
hops.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

import torch

import tracer

sys.path.append(str(Path(__file__).resolve().parent.parent))
from resnet34 import SIZES, ResNet

RESNET18 = ((64, 2), (128, 2), (256, 2), (512, 2))  # channels, blocks


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = ResNet(SIZES["cifar"], RESNET18).eval().to(device)
    images = torch.randn(2, 3, 32, 32, device=device)
    modes: dict[str, AbstractContextManager[object]] = {
        "with gradients": torch.enable_grad(),
        "no_grad": torch.no_grad(),
        "inference_mode": torch.inference_mode(),
    }
    results = {}
    model(images)
    tracer.step()
    for name, mode in modes.items():
        with mode:
            results[name] = model(images)
        tracer.step()
    for name, result in results.items():
        same = "the same numbers" if result.equal(results["with gradients"]) else "OTHER NUMBERS"
        node = type(result.grad_fn).__name__ if result.grad_fn else "none"
        print(f"{name}: {same}, node of the graph: {node}, inference tensor: {result.is_inference()}")


if __name__ == "__main__":
    main()
