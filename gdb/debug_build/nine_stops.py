"""The nine places where a debug build of PyTorch 1.12.1 was once stopped by file and line, to find the way
from Python to the kernel of matmul: by the names of the functions, so that they hold in every version and
build. Where a build has debug information the stops tell file and line.

The notes kept lines only for python_variable.cpp:1461 and :1601 and LinearAlgebra.cpp:460; they are taken
for the functions of these files that such a program passes: making a tensor, wrapping a result, and the
check of mm's shapes.
"""

PROGRAM = """
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
batch = torch.Tensor([[1.0, 2.0], [3.0, 4.0]]).to(device)
weight = torch.ones(2, 2, device=device, requires_grad=True)
torch.matmul(batch, weight)
torch.embedding(weight, torch.tensor([0, 1], device=device))
"""

STOPS = (
    "THPVariable_pynew",  # python_variable.cpp:1461
    "THPVariable_Wrap",  # python_variable.cpp:1601
    "at::meta::structured_mm::meta",  # LinearAlgebra.cpp:460
    "torch::autograd::THPVariable_matmul",  # python_torch_functions_0.cpp:4070
    "at::native::matmul",  # LinearAlgebra.cpp:1834
    "at::native::_matmul_impl",  # LinearAlgebra.cpp:1710
    "VariableType::mm",  # VariableType_3.cpp:8174
    "structured_mm_out_{device}::impl",  # cuda/Blas.cpp:420
    "torch::autograd::THPVariable_embedding",  # python_torch_functions_0.cpp:2744
)


def walk(gdb):
    gdb.program(PROGRAM)
    for function in STOPS:
        gdb.stop_at(function.format(device="cuda" if gdb.has_cuda else "cpu"), limit=1)
    gdb.go()
