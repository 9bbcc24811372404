"""The path of mm under torch.autocast: a kernel above autograd casts the arguments and calls mm again."""

PROGRAM = """
import torch

left, right = torch.randn(2, 3, requires_grad=True), torch.randn(3, 2)
with torch.autocast("cpu", dtype=torch.bfloat16):
    torch.mm(left, right)
"""
OPERATORS = ("aten::mm", "aten::_to_copy")


def walk(gdb):
    gdb.program(PROGRAM)
    for operator in OPERATORS:
        gdb.stop_at(operator)
    gdb.go()
