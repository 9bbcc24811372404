"""A seeded training loop on the GPU, started without tracer, that a test attaches to.

    python attached_training.py FOLDER STEPS

Step N begins when the file FOLDER/go.N appears; FOLDER/at.N says that it waits for it. A part of each step is
a CUDA graph, captured before. It prints a digest of all losses and weights.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

import torch

FOLDER, STEPS = sys.argv[1], int(sys.argv[2])


def wait_for(number: int) -> None:
    torch.cuda.synchronize()
    open(f"{FOLDER}/at.{number}", "w").close()
    while not os.path.exists(f"{FOLDER}/go.{number}"):
        time.sleep(0.001)


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 1)
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    fixed = torch.randn(32, 64, device="cuda")
    for _ in range(3):
        with torch.no_grad():
            fixed.sin().cos()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scaled = fixed.sin().cos()
    digest = hashlib.sha256()
    for number in range(STEPS):
        wait_for(number)
        graph.replay()
        batch = torch.randn(32, 64).cuda() + scaled
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        digest.update(loss.detach().cpu().numpy().tobytes())
    wait_for(STEPS)
    for weight in model.parameters():
        digest.update(weight.detach().cpu().numpy().tobytes())
    print(digest.hexdigest())


main()
print("end")
