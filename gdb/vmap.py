"""The path of mm under torch.vmap: a batching rule makes it bmm, which runs for the whole batch."""

PROGRAM = """
import torch

left, right = torch.randn(5, 2, 3), torch.randn(5, 3, 2)
torch.vmap(torch.mm)(left, right)
"""
OPERATORS = ("aten::mm", "aten::bmm")


def walk(gdb):
    gdb.program(PROGRAM)
    for operator in OPERATORS:
        gdb.stop_at(operator)
    gdb.go()
