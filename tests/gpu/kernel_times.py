"""Times of kernels that take 20 us and more, each launched 50 times. See cases.py.

    python kernel_times.py OUT.json             its parts are found in a recording
    python kernel_times.py OUT.json profiler    torch.profiler measures, and the medians are written

A case is warmed up for as long as clocks take to rise, then runs one launch at a time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from cases import facts, settle, timed

LAUNCHES = 50
WARM_SECONDS = 0.3


def cases() -> dict[str, Callable[[], torch.Tensor]]:
    def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, device="cuda").to(dtype)

    torch.manual_seed(0)
    a, b = random(4096, 4096), random(4096, 4096)
    halves = a.to(torch.bfloat16), b.to(torch.bfloat16)
    return {
        "mm fp32": lambda: torch.mm(a, b),
        "mm bf16": lambda: torch.mm(*halves),
        "cat": lambda: torch.cat([a, b]),
        "add": lambda: torch.add(a, b),
    }


def warm_up(run: Callable[[], torch.Tensor]) -> None:
    end = time.monotonic() + WARM_SECONDS
    while time.monotonic() < end:
        run()
        torch.cuda.synchronize()


def launches(run: Callable[[], torch.Tensor]) -> None:
    for _ in range(LAUNCHES):
        run()
        torch.cuda.synchronize()


def profiled(run: Callable[[], torch.Tensor]) -> dict[str, list[float]]:
    """Kernel -> microseconds of each of its launches, as torch.profiler has them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        launches(run)
    times: dict[str, list[float]] = {}
    for event in profiler.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            times.setdefault(event.name(), []).append(event.duration_ns() / 1e3)
    return {name: taken for name, taken in times.items() if len(taken) == LAUNCHES}


def main(out: Path, by_profiler: bool) -> None:
    noted: dict[str, object] = {}
    for name, run in cases().items():
        warm_up(run)
        if by_profiler:
            noted[name] = {kernel: statistics.median(taken) for kernel, taken in profiled(run).items()}
        else:
            noted[name] = {"parts": {"warm": timed(lambda run=run: launches(run))}, "error": None}
        settle()
    out.write_text(json.dumps({"cases": noted, "facts": facts()}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] == ["profiler"])
