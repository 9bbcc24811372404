"""A matrix product of wrong sizes: the stops end at the kernel function that raises."""

PROGRAM = """
import torch

left, right = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)
try:
    torch.mm(left, right)
except RuntimeError as error:
    print(f"raised: {error}", flush=True)
"""
OPERATORS = ("aten::mm",)


def walk(gdb):
    gdb.program(PROGRAM)
    for operator in OPERATORS:
        gdb.stop_at(operator)
    gdb.go()
