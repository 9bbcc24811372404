"""The path of nn.Embedding: embedding is a composite below autograd, index_select does the reading."""

PROGRAM = """
import torch

table = torch.nn.Embedding(10, 4)
table(torch.tensor([[1, 2], [3, 9]]))
"""


def walk(gdb):
    gdb.program(PROGRAM)
    gdb.stop_at("torch::autograd::THPVariable_embedding")
    gdb.stop_at("aten::embedding")
    gdb.stop_at("at::native::embedding_symint")
    gdb.stop_at("aten::index_select")
    gdb.go()
