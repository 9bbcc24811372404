"""Copies between host and GPU from pageable and from pinned memory: the bandwidth, and who waits.

    python examples/gallery/pinned_transfers.py        (needs a CUDA GPU)
    tracer record examples/gallery/pinned_transfers.py

Look at the copies in the survey: `pageable -> device` goes through a buffer of the driver, and the call
returns when it has been read, even with `non_blocking=True`; `pinned -> device` is read by the GPU itself
and the call returns at once, so the host can prepare the next batch meanwhile. Pinning costs a
`cudaHostAlloc` once. A pageable copy waits, either way, within `cudaMemcpyAsync`: the tree has its time.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import Tensor

MEBIBYTES = 128
CALLS = 4


def copied(to: Tensor, source: Tensor) -> tuple[float, float]:
    """Milliseconds until the call returned, and until the copy was there: the medians."""
    returned, there = [], []
    for _ in range(CALLS + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        to.copy_(source, non_blocking=True)
        returned.append(time.perf_counter() - began)
        torch.cuda.synchronize()
        there.append(time.perf_counter() - began)
    return sorted(returned)[CALLS // 2] * 1e3, sorted(there)[CALLS // 2] * 1e3


def main() -> None:
    if not torch.cuda.is_available():
        print("pinned_transfers.py needs a CUDA GPU, and torch finds none here", file=sys.stderr)
        sys.exit(3)
    pageable = torch.ones(MEBIBYTES * 2**20, dtype=torch.uint8)
    pinned = pageable.pin_memory()
    device = torch.empty_like(pageable, device="cuda")
    for name, to, source in (
        ("pageable to GPU", device, pageable),
        ("pinned to GPU", device, pinned),
        ("GPU to pageable", pageable, device),
        ("GPU to pinned", pinned, device),
    ):
        returned, there = copied(to, source)
        rate = MEBIBYTES * 2**20 / there / 1e6
        print(f"{name:<16} the call {returned:7.3f} ms, the copy {there:7.3f} ms, {rate:5.1f} GB/s")


if __name__ == "__main__":
    main()
