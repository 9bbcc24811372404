"""When PyTorch calls the CUDA runtime, and why: one line for each occasion.

    python examples/gallery/when_runtime.py        (needs a CUDA GPU)
    tracer record examples/gallery/when_runtime.py

Look at the calls below each line: the allocator asks for memory when its cache, one for each stream, has none
that fits and not again for the same size; an op that computes is a launch; a value that Python wants is a
copy and a wait; a copy from pageable memory waits, one from pinned memory with `non_blocking=True` does not;
events and streams are calls of their own; what is freed goes back to the cache, and to the driver when
`empty_cache` says so. A view calls nothing.
"""

from __future__ import annotations

import sys

import torch

SIZE = 1024


def main() -> None:
    if not torch.cuda.is_available():
        print("when_runtime.py needs a CUDA GPU, and torch finds none here", file=sys.stderr)
        sys.exit(3)
    first = torch.empty(4 * SIZE, SIZE, device="cuda")  # the context, and cudaMalloc for a segment
    print(f"reserved {torch.cuda.memory_reserved() / 2**20:.0f} MiB")
    pinned = torch.ones(SIZE, SIZE).pin_memory()  # cudaHostAlloc
    host = torch.ones(SIZE, SIZE)  # nothing
    del first
    again = torch.empty(4 * SIZE, SIZE, device="cuda")  # from the cache: no call that does work
    a = host.to("cuda")  # cudaMemcpyAsync and a wait
    a.copy_(pinned, non_blocking=True)  # cudaMemcpyAsync alone
    view = a.t()  # nothing
    b = a + view  # a launch
    c = a @ b  # cuBLAS: its workspace the first time, then a launch
    value = c[0, 0].item()  # a copy to the host and a wait
    print(f"value {value:.0f}")
    side = torch.cuda.Stream()  # streams come from a pool that is made at the first
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.current_stream())
        d = c * 2  # on another stream
    done = torch.cuda.Event()
    done.record(side)
    done.synchronize()  # cudaEventSynchronize: the host waits for one event
    del again, a, b, c, d, view
    torch.cuda.empty_cache()  # cudaFree
    torch.cuda.synchronize()  # cudaDeviceSynchronize
    print(f"reserved {torch.cuda.memory_reserved() / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
