"""For ledger.py: compiled training steps of a transformer layer."""

from __future__ import annotations

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
step = torch.compile(layer)
optimizer = torch.optim.Adam(layer.parameters())
batch = torch.randn(16, 32, 64)
for _ in range(300):
    step(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
