"""Recorded ops, whose instructions valgrind counts: a process of count.py.

python hops.py REQUESTS FOLDER: the library made of requests.c, and where traces go.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import tracer

CALLS = 500
WARM = 60
VARIANTS = {
    "hops": {"shapes": False, "source": False, "modules": False},
    "default": {},
}


def main() -> None:
    requests, folder = ctypes.CDLL(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    w = torch.ones(4, 4, requires_grad=True)
    ops = {
        "add": lambda: torch.add(a, b),
        "mm": lambda: torch.mm(a, b),
        "matmul_grad": lambda: torch.matmul(w, b),
    }
    gc.disable()
    requests.count_from_here()
    for variant, settings in VARIANTS.items():
        with tracer.record(folder / f"{variant}.trace", **settings):
            count_all(requests, variant, ops)


def count_all(requests: ctypes.CDLL, variant: str, ops: dict[str, Callable[[], object]]) -> None:
    for name, op in ops.items():
        for _ in range(WARM):
            op()
        requests.count_from_zero()
        for _ in range(CALLS):
            op()
        requests.say_count(f"{variant}.{name}".encode())


main()
