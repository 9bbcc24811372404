"""The path of torch.matmul on two matrices that need gradients, from the binding for Python down to the
kernel: each function of the chain is stopped at once, the last stop shows all of them in one backtrace."""

PROGRAM = """
import torch

weight = torch.randn(64, 32, requires_grad=True)
batch = torch.randn(16, 64)
torch.matmul(batch, weight)
"""

CHAIN = (
    "torch::autograd::THPVariable_matmul",  # Python's arguments become C++ ones
    "aten::matmul",  # at::_ops::matmul::call and the composite kernel
    "at::native::matmul",  # which decides by the number of dimensions
    "at::native::_matmul_impl",
    "aten::mm",  # call, VariableType (autograd), redispatch, the backend's wrapper
    "at::native::structured_mm_out_cpu::impl",  # the kernel
)


def walk(gdb):
    gdb.program(PROGRAM)
    for function in CHAIN:
        gdb.stop_at(function)
    gdb.go()
