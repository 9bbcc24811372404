"""Matrix products of numpy in the place of PyTorch's own, on the CPU.

    tracer compare mm --override examples/overrides/cpu_mm.py:numpy_mm
    tracer record --override examples/overrides/cpu_mm.py:numpy_mm train.py

numpy has no bfloat16 and no product with an addend: the former is handed over to stock, the latter takes
two steps.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tracer import overrides

WHAT_NUMPY_HAS = (torch.float32, torch.float64)


@overrides.register("aten::mm", "CPU", name="numpy_mm")
def mm(self: Tensor, mat2: Tensor) -> Tensor:
    return product(self, mat2)


@overrides.register("aten::addmm", "CPU", name="numpy_mm")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if beta != 1 or alpha != 1:
        raise overrides.HandOver("alpha or beta is not 1")
    if self.dtype != mat1.dtype:
        raise overrides.HandOver("the dtypes differ")  # stock has the message for that
    return product(mat1, mat2).add_(self)


def product(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype not in WHAT_NUMPY_HAS or b.dtype != a.dtype:
        raise overrides.HandOver(f"numpy has no {str(a.dtype).removeprefix('torch.')}")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise overrides.HandOver("the shapes do not go together")  # stock has the message for that
    result = a.new_empty(a.shape[0], b.shape[1])
    with np.errstate(all="ignore"):  # numpy warns of NaN and infinity, and stock does not
        np.matmul(a.detach().numpy(), b.detach().numpy(), out=result.numpy())
    return result
