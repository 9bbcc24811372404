"""The path of torch.cat: a list of tensors is one argument, and only the last key writes."""

PROGRAM = """
import torch

hidden = torch.randn(2, 3, requires_grad=True)
torch.cat([hidden, torch.randn(4, 3)], dim=0)
"""


def walk(gdb):
    gdb.program(PROGRAM)
    gdb.stop_at("aten::cat")
    gdb.stop_at("at::native::structured_cat_out_cpu::impl")
    gdb.go()
