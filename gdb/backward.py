"""Backward of a matrix product: the autograd engine runs MmBackward0. Its two products are op calls too, and
they have the lines of the forward pass."""

PROGRAM = """
import torch

weight = torch.randn(64, 32, requires_grad=True)
batch = torch.randn(16, 64, requires_grad=True)
loss = torch.mm(batch, weight).sum()
print("forward is done", flush=True)
loss.backward()
"""


def walk(gdb):
    gdb.program(PROGRAM)
    gdb.stop_at("torch::autograd::generated::MmBackward0::apply")
    gdb.stop_at("aten::mm")
    gdb.go()
