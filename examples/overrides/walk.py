"""A small network for the walk of docs/overrides.md, on a GPU if there is one."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
gru = nn.GRU(64, 128, batch_first=True).to(device)
wide = nn.Linear(128, 512).to(device)
narrow = nn.Linear(1024, 10).to(device)
x = torch.randn(16, 20, 64, device=device)

for _ in range(5):
    states = gru(x)[0]
    hidden = nn.functional.silu(wide(states))
    both = torch.cat([hidden, -hidden], -1)
    narrow(both).sum().backward()
nn.functional.silu(hidden.double())  # what the overrides of the walk leave to stock
print("done")
