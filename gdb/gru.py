"""The path of a GRU on the CPU: one operator for the whole layer, two linears a time step inside it, and a
cat of the outputs at its end. Only the first two linears are recorded; all are counted."""

PROGRAM = """
import torch

layer = torch.nn.GRU(4, 5)
layer(torch.randn(6, 2, 4))
"""


def walk(gdb):
    gdb.program(PROGRAM)
    gdb.stop_at("aten::gru.input")
    gdb.stop_at("aten::linear", limit=2)
    gdb.stop_at("aten::cat")
    gdb.go()
