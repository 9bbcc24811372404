"""Calls of many lengths, and with elements that are further apart than 32 bits count."""

from __future__ import annotations

import mmap
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from math import prod
from typing import Any

from tracer.compare.global_state import mapped_bytes
from tracer.compare.trial_samples import SIZES, Sample, drawn, tensors_in

_LENGTHS = (*range(1, 34), 47, 63, 65, 127, 129, 257)
"""Each rest of a loop over 8, 16 or 32 elements"""
_MOST_SIZES = 4
_MOST_ELEMENTS = 1 << 16
_FAR = 1 << 31
_UNLIMITED = 1 << 62
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def of_each_length(base: Sample) -> Iterator[Sample]:
    """Each size of its tensors in turn replaced wherever it is, and all tensors of one dimension."""
    tensors = tensors_in(base.make())
    sizes = sorted({size for one in tensors for size in one.shape if size > 1})
    total = sum(one.numel() for one in tensors)
    for size, length in product(sizes[:_MOST_SIZES], _LENGTHS):
        if length != size and total * length // size <= _MOST_ELEMENTS:
            title = f"{length} in place of {size}"
            yield base.changed(SIZES, title, partial(_all_resized, size, length))
    for length in _LENGTHS if tensors else ():
        yield base.changed(SIZES, f"{length} elements", partial(_all_drawn, length))


def _all_resized(size: int, length: int, ts: list[Any]) -> list[Any]:
    return [_resized(t, size, length) for t in ts]


def _all_drawn(length: int, ts: list[Any]) -> list[Any]:
    return [drawn((length,), t) for t in ts]


def _resized(t: Any, size: int, length: int) -> Any:
    import torch

    for dim in range(t.ndim):
        if t.shape[dim] == size:
            t = torch.cat([t] * (length // size + 1), dim).narrow(dim, 0, length)
    return t.contiguous()


def far_apart(t: Any) -> Any:
    """The same values; the last row lies more than 2**31 elements behind the first. Few pages have memory."""
    import torch

    dim = next((n for n, size in enumerate(t.shape) if size > 1), None)
    if dim is None or str(t.layout) != "torch.strided" or not t.numel():
        return t
    rows, row = t.shape[dim], t.numel() // t.shape[dim]
    step = _FAR // (rows - 1) + row
    count = (rows - 1) * step + row
    if t.is_cuda:
        if torch.cuda.mem_get_info()[0] < 4 * count * t.element_size():
            raise MemoryError("too little memory of the GPU")
        memory = torch.empty(count, dtype=t.dtype, device=t.device)
    else:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        pages = mmap.mmap(-1, count * t.element_size(), flags=flags)
        memory = torch.frombuffer(pages, dtype=t.dtype)
    shape = [size for n, size in enumerate(t.shape) if n != dim]
    strides = [prod(shape[n + 1 :]) for n in range(len(shape))]
    strides.insert(dim, step)
    return memory.as_strided(t.shape, strides).copy_(t)


@contextmanager
def address_space(device: str) -> Iterator[None]:
    """Of any size, for what is mapped and not used; a GPU gets its memory back.

    What an override keeps stays mapped: afterwards there is as much room as before.
    """
    import torch

    (soft, hard), before = resource.getrlimit(resource.RLIMIT_AS), mapped_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        if soft != hard:
            soft = min(soft + max(mapped_bytes() - before, 0), hard if hard >= 0 else _UNLIMITED)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        if device == "cuda":
            torch.cuda.empty_cache()
