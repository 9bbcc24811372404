"""An operator of the script's own: torch.ops calls it with boxed arguments, and its kernel is in Python."""

PROGRAM = """
import torch

library = torch.library.Library("example", "DEF")
library.define("scaled_sum(Tensor x, float scale) -> Tensor")
library.impl("scaled_sum", lambda x, scale: x.sum() * scale, "CompositeExplicitAutograd")
torch.ops.example.scaled_sum(torch.ones(3), 2.0)
"""
OPERATORS = ("example::scaled_sum", "aten::sum")


def walk(gdb):
    gdb.program(PROGRAM)
    for operator in OPERATORS:
        gdb.stop_at(operator)
    gdb.go()
