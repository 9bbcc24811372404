"""Four steps of a tiny model that go every common way to a GPU. tests/data/gpu.trace.xz is its trace:

tracer record -o gpu.trace --cuda on sample.py
tracer pack gpu.trace
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional

torch.backends.cudnn.deterministic = True


class Tiny(nn.Module):
    """Images (batch, 3, 16, 16) -> (batch, 10), past one of each: conv2d, GRU, cat, attention, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.gru = nn.GRU(64, 64, batch_first=True)
        self.output = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        features = functional.relu(self.conv(x)).flatten(2)
        sequence, _ = self.gru(features.reshape(len(x), -1, 64))
        heads = sequence.unflatten(-1, (2, 32)).transpose(1, 2).to(torch.bfloat16)
        attended = functional.scaled_dot_product_attention(heads, heads, heads)
        attended = attended.transpose(1, 2).flatten(2).float()
        return self.output(torch.cat([sequence[:, -1], attended.mean(dim=1)], dim=1))


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a tiny model.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    model = Tiny().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(10, (4,)).to(device)
    images = images.pin_memory() if on_gpu else images
    a, b = torch.randn(64, 64, device=device), torch.randn(64, 64, device=device)
    replay = captured(a, b) if on_gpu else (lambda: torch.mm(a, b))
    for step in range(1, options.steps + 1):
        loss = functional.cross_entropy(model(images.to(device, non_blocking=True)), labels)
        torch.matmul(a, b)
        torch.matmul(a.to(torch.bfloat16), b.to(torch.bfloat16))
        replay()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"step {step}: loss {loss.item():.4f}")


def captured(a: Tensor, b: Tensor):  # type: ignore[no-untyped-def]
    """A product and an addition as a CUDA graph: the function that replays them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.add(torch.mm(a, b), 1.0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(torch.mm(a, b), 1.0)
    return graph.replay


if __name__ == "__main__":
    main()
