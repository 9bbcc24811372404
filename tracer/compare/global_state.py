"""What a call must leave alone beside its arguments: generators and settings of torch and the process."""

from __future__ import annotations

import os
import random
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

State = dict[str, Any]


def state(device: str) -> State:
    """A value for each thing that calls share; equal values mean that nothing changed."""
    return {name: read() for name, read in _readers(device).items()}


def changed(before: State, after: State) -> str:
    """`it changes the generator of the CPU`; "": nothing."""
    names = [name for name, value in before.items() if value != after[name]]
    return f"it changes {', '.join(names)}" if names else ""


@contextmanager
def put_back(device: str) -> Iterator[None]:
    """Afterwards what a wrong override may have set is as before."""
    import torch

    threads, dtype, grad = (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
    )
    deterministic = torch.are_deterministic_algorithms_enabled()
    precision, folder = torch.get_float32_matmul_precision(), os.getcwd()
    generator, environment, flushes = torch.get_rng_state(), dict(os.environ), _flushes_denormals()
    try:
        yield
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic)  # imports Inductor: a second
        torch.set_float32_matmul_precision(precision)
        torch.set_flush_denormal(flushes)
        torch.set_rng_state(generator)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        os.chdir(folder)


_MOST_BYTES = 2 << 30


@contextmanager
def within_bounds(device: str) -> Iterator[None]:
    """One thread, as several wait for each other; what needs 2 GiB more raises on the CPU."""
    import torch

    threads, before = torch.get_num_threads(), resource.getrlimit(resource.RLIMIT_AS)
    limits = [one for one in (mapped_bytes() + _MOST_BYTES, *before) if one != resource.RLIM_INFINITY]
    torch.set_num_threads(1)
    if device == "cpu":
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), before[1]))
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        resource.setrlimit(resource.RLIMIT_AS, before)


def mapped_bytes() -> int:
    """What RLIMIT_AS counts of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _flushes_denormals() -> bool:
    """By the bits of a product: where denormals are flushed, they compare equal to 0, too."""
    import torch

    product = torch.tensor([1e-310], dtype=torch.float64) * 1.0
    return not int(product.view(torch.int64))


def _readers(device: str) -> dict[str, Callable[[], Any]]:
    import torch

    readers: dict[str, Callable[[], Any]] = {
        "the generator of the CPU": lambda: torch.get_rng_state().numpy().tobytes(),
        "Python's random numbers": random.getstate,
        "how denormal numbers are treated": _flushes_denormals,
        "the number of threads": torch.get_num_threads,
        "the default dtype": torch.get_default_dtype,
        "whether gradients are recorded": torch.is_grad_enabled,
        "whether inference mode is on": torch.is_inference_mode_enabled,
        "whether autocast is on": lambda: torch.is_autocast_enabled(device),
        "whether algorithms must be deterministic": torch.are_deterministic_algorithms_enabled,
        "the precision of products": torch.get_float32_matmul_precision,
        "the environment": lambda: dict(os.environ),
        "the working folder": os.getcwd,
        "which warnings are shown": lambda: [*warnings.filters],
    }
    if "numpy" in sys.modules:
        readers["numpy's random numbers"] = _of_numpy
    if device == "cuda":
        readers |= {
            "the generator of the GPU": lambda: torch.cuda.get_rng_state().numpy().tobytes(),
            "the current GPU": torch.cuda.current_device,
            "the current stream": lambda: torch.cuda.current_stream().cuda_stream,
        }
    return readers


def _of_numpy() -> tuple[Any, ...]:
    import numpy as np

    _, keys, *rest = np.random.get_state()
    return (np.asarray(keys).tobytes(), *rest)
