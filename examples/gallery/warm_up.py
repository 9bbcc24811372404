"""The first step of a training against those after it: what is done once, and what every time.

    python examples/gallery/warm_up.py
    tracer record examples/gallery/warm_up.py

Six steps of a small net. A step ends where `optimizer.step()` returns; making the net is in step 0 as well,
and so is making the optimizer, whose first use imports more of PyTorch: that takes a while without any hop,
before the script's own clock begins.

Look at what the optimizer calls in step 0 and not in step 3: AdamW makes two moments and a counter for each
of the 6 parameters when it first meets it (12 `aten::zeros_like` for the moments, and 6 more each of
`aten::empty` to `aten::detach_` for the counters). Of what both steps call, most that takes long takes the
host longer the first time: memory is mapped when it is first written, oneDNN prepares a primitive for each
shape and direction. Compare the times of `aten::mkldnn_convolution` in both. On a GPU the first step also
waits for the device to be initialised, for kernels to be loaded and for `cudaMalloc`, which later steps need
not call since the allocator keeps what it has. Timing that begins with step 0 measures all that.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

STEPS = 6


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 15 * 15, 10),
    ).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.randn(16, 3, 32, 32, device=device), torch.randint(10, (16,), device=device)
    took, losses = [], []
    for _ in range(STEPS):
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())  # waits for the GPU, so that the clock may be read
        took.append((time.perf_counter() - began) * 1e3)
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
    print(f"first step {took[0]:.1f} ms, median of the last four {statistics.median(took[2:]):.1f} ms")


if __name__ == "__main__":
    main()
