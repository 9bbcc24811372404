"""2:4 sparsity for inference: two of four weights are zero, and the tensor cores skip them.

    python examples/gallery/sparse_inference.py        (needs a CUDA GPU, compute capability 8.0 or newer)
    tracer record examples/gallery/sparse_inference.py

Look at the product of the sparse layer: where the dense one has `aten::addmm` and cuBLAS, it has
`aten::_cslt_sparse_mm` and cuSPARSELt (or CUTLASS), reached from Python through a tensor subclass at the key
Python. The weight is packed once, before: two of four numbers and two bits for the place of each. Inference
needs W packed alone, not its transpose, which a backward pass needs: memory falls to 9/16. Compare the two
kernels, then the `self` of `aten::_cslt_sparse_mm`: the sparse kernel is faster, and the host takes so long
to prepare each product that the layer is not, at a size like this one.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.sparse import to_sparse_semi_structured

ROWS, INPUTS, OUTPUTS = 4096, 4096, 4096
CALLS = 5


def pruned(weight: Tensor) -> Tensor:
    """The two largest of each four, the others zero."""
    groups = weight.view(-1, 4)
    kept = groups.abs().topk(2, dim=1).indices
    return (groups * torch.zeros_like(groups).scatter_(1, kept, 1)).view_as(weight)


def bytes_of(weight: Tensor) -> int:
    """Of its parts, where it is made of parts."""
    if not hasattr(weight, "__tensor_flatten__"):
        return weight.nbytes
    return sum(getattr(weight, name).nbytes for name in weight.__tensor_flatten__()[0])


def milliseconds(layer: nn.Module, x: Tensor) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    layer(x)
    start.record()
    for _ in range(CALLS):
        layer(x)  # warm
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / CALLS


@torch.inference_mode()
def main() -> None:
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        print(
            "sparse_inference.py needs a CUDA GPU of compute capability 8.0, and finds none", file=sys.stderr
        )
        sys.exit(3)
    torch.manual_seed(0)
    x = torch.randn(ROWS, INPUTS, device="cuda", dtype=torch.bfloat16)
    layer = nn.Linear(INPUTS, OUTPUTS, device="cuda", dtype=torch.bfloat16)
    layer.weight = nn.Parameter(pruned(layer.weight), requires_grad=False)
    dense, dense_ms, dense_bytes = layer(x), milliseconds(layer, x), bytes_of(layer.weight)

    layer.weight = nn.Parameter(to_sparse_semi_structured(layer.weight), requires_grad=False)
    sparse, sparse_ms, sparse_bytes = layer(x), milliseconds(layer, x), bytes_of(layer.weight)

    print(f"the same to bf16's precision: {torch.allclose(dense, sparse, rtol=2e-2, atol=2e-2)}")
    print(f"dense  {dense_ms:.3f} ms, weight {dense_bytes / 2**20:.1f} MiB")
    share = sparse_bytes / dense_bytes
    print(f"sparse {sparse_ms:.3f} ms, weight {sparse_bytes / 2**20:.1f} MiB, {share:.4f} of the dense one")


if __name__ == "__main__":
    main()
