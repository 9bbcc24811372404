"""ledger.py's smaller script: training steps of a transformer layer, 1,400 hops each."""

from __future__ import annotations

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
optimizer = torch.optim.Adam(layer.parameters())
batch = torch.randn(4, 16, 32)
for _ in range(300):
    layer(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
