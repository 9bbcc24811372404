"""SiLU of float32 in Triton, on a GPU; without one the same arithmetic in Python, on the CPU."""

import torch

from tracer import overrides

ON_A_GPU = torch.cuda.is_available()

if ON_A_GPU:
    import triton
    import triton.language as tl

    @triton.jit
    def silu_kernel(source, target, elements, BLOCK: tl.constexpr):  # noqa: N803
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        there = place < elements
        x = tl.load(source + place, mask=there)
        tl.store(target + place, x / (1.0 + tl.exp(-x)), mask=there)


@overrides.register("aten::silu", "CUDA" if ON_A_GPU else "CPU", name="silu_triton")
def silu(self: torch.Tensor) -> torch.Tensor:
    if self.dtype != torch.float32:
        raise overrides.HandOver("not float32")
    if not self.is_contiguous():
        raise overrides.HandOver("not contiguous")
    result = torch.empty_like(self)
    if ON_A_GPU and self.numel():
        silu_kernel[(triton.cdiv(self.numel(), 1024),)](self, result, self.numel(), BLOCK=1024)
    elif not ON_A_GPU:
        result.copy_(self / (1.0 + torch.exp(-self)))
    return result
