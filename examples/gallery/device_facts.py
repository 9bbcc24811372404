"""The device's name and capability, and its memory before and after: what allocates and what frees.

    python examples/gallery/device_facts.py
    tracer record examples/gallery/device_facts.py

Look at the memory: on a CPU `empty` touches none of it, `fill_` does; a view has none of its own and keeps
the whole matrix alive; deleting is not an op. Each row of the output counts from the start, not from the row
above. On a GPU torch's caching allocator counts the bytes, so they are exact; on a CPU the process's resident
memory is counted, and an extra MiB or two is not a tensor: it is the code of ops that ran for the first time.
Asking a device about itself is not an op: the dispatcher sees only lines that make, view and fill tensors.
"""

from __future__ import annotations

import gc
from pathlib import Path

import torch

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
ROWS = 4096  # a matrix of 64 MiB


def mebibytes() -> float:
    """What this process holds on the device."""
    if ON_GPU:
        return torch.cuda.memory_allocated() / 2**20
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    return resident * 4096 / 2**20


def main() -> None:
    if ON_GPU:
        facts = torch.cuda.get_device_properties(0)
        print(f"{facts.name}, compute capability {facts.major}.{facts.minor}")
        print(f"{facts.multi_processor_count} multiprocessors, {facts.total_memory / 2**30:.0f} GiB")
    else:
        print(f"CPU, vector instructions: {torch.backends.cpu.get_cpu_capability()}")
        print(f"{torch.get_num_threads()} threads")

    torch.ones(1, device=DEVICE).add_(1)  # whatever the first use of a device costs
    start = mebibytes()

    def say(what: str) -> None:
        print(f"{what:<28} {mebibytes() - start:+8.1f} MiB")

    matrix = torch.empty(ROWS, ROWS, device=DEVICE)
    say("empty")
    matrix.fill_(1.0)
    say("filled")
    row = matrix.t()[0]
    say("transposed, first row")
    half = matrix.to(torch.bfloat16)
    say("a copy in bf16")
    del matrix
    gc.collect()
    say("matrix deleted, row kept")
    del row
    say("row deleted")
    del half
    say("all deleted")
    if ON_GPU:
        print(f"torch keeps {torch.cuda.memory_reserved() / 2**20:.1f} MiB for the next tensors")


if __name__ == "__main__":
    main()
