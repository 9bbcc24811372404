"""Kernels written in Python with numba.cuda, vector add and matrix times vector, next to torch's own.

    python examples/gallery/numba_kernels.py        (needs a CUDA GPU and numba)
    tracer record examples/gallery/numba_kernels.py

Look at the kernels: numba's two are outside any op. A driver call launches them from the line here that calls
them, with one thread for each element of the result (1024 per block; in the last block some threads have
nothing to do). torch's are below `aten::add` and `aten::mv`. Numba reads torch's tensors in place, without a
copy. In the product by hand each thread reads one row. Compare the times on the GPU with the library's. The
times that the script prints are longer: they include Python, Numba's wrapper, PyTorch's dispatcher, the
events and, here, the recording; over 5 calls that is more than the kernel.
"""

from __future__ import annotations

import sys

import torch

ROWS, COLUMNS, THREADS = 100_000, 100, 1024
CALLS = 5


def milliseconds(run) -> float:  # type: ignore[no-untyped-def]
    """The mean of CALLS calls after one that compiles, by events on the GPU."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run()
    torch.cuda.synchronize()
    start.record()
    for _ in range(CALLS):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / CALLS


def main() -> None:
    if not torch.cuda.is_available():
        print("numba_kernels.py needs a CUDA GPU, and torch finds none here", file=sys.stderr)
        sys.exit(3)
    import numpy

    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # older numba asks for it, newer numpy has it no longer
    try:
        from numba import cuda
    except ImportError:
        print("numba_kernels.py needs numba (pip install numba numba-cuda)", file=sys.stderr)
        sys.exit(3)

    @cuda.jit
    def add_vectors(a, b, u):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < u.shape[0]:
            u[i] = a[i] + b[i]

    @cuda.jit
    def times_vector(m, v, u):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < u.shape[0]:
            total = numpy.float32(0)
            for j in range(m.shape[1]):
                total += m[i, j] * v[j]
            u[i] = total

    torch.manual_seed(0)
    matrix, vector = torch.randn(ROWS, COLUMNS, device="cuda"), torch.randn(COLUMNS, device="cuda")
    a, b, u = (torch.randn(ROWS, device="cuda") for _ in range(3))
    blocks = -(-ROWS // THREADS)
    print(f"{blocks} blocks of {THREADS} threads, {blocks * THREADS - ROWS} threads with nothing to do")
    seen = [cuda.as_cuda_array(tensor) for tensor in (a, b, u, matrix, vector)]  # no copy

    def add() -> None:
        add_vectors[blocks, THREADS](*seen[:3])  # numba's default stream is torch's

    def multiply() -> None:
        times_vector[blocks, THREADS](seen[3], seen[4], seen[2])

    numba_ms, torch_ms = milliseconds(add), milliseconds(lambda: torch.add(a, b))
    print(f"add: the same, {torch.equal(u, a + b)}; numba {numba_ms:.4f} ms, torch {torch_ms:.4f} ms")
    numba_ms, torch_ms = milliseconds(multiply), milliseconds(lambda: torch.matmul(matrix, vector))
    close = torch.allclose(u, matrix @ vector, atol=1e-4)
    print(f"matrix times vector: close, {close}; numba {numba_ms:.4f} ms, torch {torch_ms:.4f} ms")


if __name__ == "__main__":
    main()
