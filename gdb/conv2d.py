"""The path of torch.conv2d: a composite above autograd, convolution chooses the backend's kernel below it."""

PROGRAM = """
import torch

image = torch.randn(1, 3, 8, 8)
weight = torch.randn(4, 3, 3, 3, requires_grad=True)
torch.conv2d(image, weight, padding=1)
"""
OPERATORS = ("aten::conv2d", "aten::convolution", "aten::_convolution")


def walk(gdb):
    gdb.program(PROGRAM)
    for operator in OPERATORS:
        gdb.stop_at(operator)
    gdb.go()
