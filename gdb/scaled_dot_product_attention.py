"""The path of scaled_dot_product_attention: a composite, which chooses flash attention or plain operators."""

PROGRAM = """
import torch

query, key, value = torch.randn(3, 1, 2, 16, 8).unbind()
torch.nn.functional.scaled_dot_product_attention(query, key, value)
torch.nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.5)
"""
OPERATORS = (
    "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_attention_math",
)


def walk(gdb):
    gdb.program(PROGRAM)
    for operator in OPERATORS:
        gdb.stop_at(operator)
    gdb.go()
