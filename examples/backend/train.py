"""A training step, autocast and an operator of its own on a device outside torch: what falls back to the CPU?

tracer record --why --memory examples/backend/train.py
"""

import torch
import toy  # noqa: F401 (registers the device)

torch.manual_seed(0)
torch.set_num_threads(1)  # the tensors are small
batch = torch.randn(64, 32).to("toy")
weight = torch.randn(32, 32).to("toy").requires_grad_()

hidden = torch.mm(batch, weight)
loss = hidden.relu().sum()  # the device has no kernel for either
loss.backward()

with torch.autocast("toy", dtype=torch.float16):
    halves = torch.mm(batch, weight)
    mixed = torch.ops.toy.mm_plus(batch, weight)

fused = torch.ops.toy.mm_plus(batch, weight)
fused.sum().backward()
print(f"{weight.device}: loss {loss.item():.3f}, {halves.dtype}, {mixed.dtype}, {fused.dtype}")
