"""The path of layer_norm: a composite, whose native_layer_norm also returns what the backward pass needs."""

PROGRAM = """
import torch

batch = torch.randn(4, 6, requires_grad=True)
torch.nn.functional.layer_norm(batch, (6,))
"""
OPERATORS = ("aten::layer_norm", "aten::native_layer_norm")


def walk(gdb):
    gdb.program(PROGRAM)
    for operator in OPERATORS:
        gdb.stop_at(operator)
    gdb.go()
