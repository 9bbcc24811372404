"""The path of nn.Linear: linear is a composite above autograd, so its transpose and its addmm pass through
VariableType and are what backward sees."""

PROGRAM = """
import torch

layer = torch.nn.Linear(32, 8)
layer(torch.randn(16, 32))
"""


def walk(gdb):
    gdb.program(PROGRAM)
    gdb.stop_at("aten::linear")
    gdb.stop_at("aten::t")
    gdb.stop_at("aten::addmm")
    gdb.stop_at("at::native::structured_addmm_out_cpu::impl")
    gdb.go()
