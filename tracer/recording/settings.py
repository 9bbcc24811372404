"""Settings of torch that decide how fast it runs and which kernels it takes, as they were at the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tracer.base.interrupts import is_of_the_program
from tracer.base.this_torch import this_torch

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG")


def settings() -> dict[str, object]:
    """Ready for JSON; without those that this torch does not have.

    At the beginning they say little: most scripts set them first thing. And to ask for the number of threads
    may fix it.
    """
    torch = this_torch()
    backends = torch.backends
    asked: dict[str, Callable[[], Any]] = {
        "threads": torch.get_num_threads,
        "interop_threads": torch.get_num_interop_threads,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "cudnn_allow_tf32": lambda: backends.cudnn.allow_tf32,
        "cudnn_benchmark": lambda: backends.cudnn.benchmark,
        "cudnn_deterministic": lambda: backends.cudnn.deterministic,
    }
    found: dict[str, object] = {}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except Exception as error:  # mixed settings of old and new names raise, and a torch may lack one
            if is_of_the_program(error):
                raise
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return found | ({"variables": variables} if variables else {})
