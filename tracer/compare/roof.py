"""The least time that a device allows for a case, from what it can move and compute a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tracer.analysis.limits import Limits, unit_of
from tracer.analysis.work import Work
from tracer.compare.cases import TF32, Case
from tracer.report.text import amount

BYTES = "bytes"
_PRODUCT_SIZE = 256
"""Half a millisecond: on a busy machine, too, some of the calls are not interrupted"""
_FEWEST, _MOST, _SECONDS = 5, 1000, 0.2


@dataclass(frozen=True)
class Limit:
    """The least time for a case's work, in ns, by its bytes or by what a unit computes, at `rate` a second.

    `in_cache`: all bytes fit into the L2 cache, so that the memory's bandwidth is no lower bound.
    """

    ns: float
    by: str
    rate: float
    in_cache: bool = False


class Roof(Protocol):
    """What a device can do: bytes and operations a second. `source` says where the figures come from."""

    source: str

    def bandwidth(self, work: Work) -> float: ...
    def computing(self, case: Case, work: Work) -> tuple[str, float]:
        """The unit that computes, and its operations a second; 0 where they are not known."""
        ...

    def in_cache(self, work: Work) -> bool: ...


def limit_of(roof: Roof, case: Case, work: Work | None) -> Limit | None:
    """None where the work or the device is not known."""
    if work is None or work.bytes is None:
        return None
    bandwidth = roof.bandwidth(work)
    if not bandwidth:
        return None
    moving = Limit(work.bytes / bandwidth * 1e9, BYTES, bandwidth, roof.in_cache(work))
    if not work.flops:
        return moving
    unit, rate = roof.computing(case, work)
    if not rate:
        return None
    computing = Limit(work.flops / rate * 1e9, unit, rate)
    return max(moving, computing, key=lambda limit: limit.ns)


class GpuRoof:
    """From a row of `devices` of a trace: what NVIDIA names, or what the user measured (analysis.limits)."""

    def __init__(self, device: dict[str, Any], bandwidth: float | None, flops: float | None) -> None:
        self._limits = limits = Limits.of(device, bandwidth, flops)
        rates = [amount(limits.bytes_per_s, "B/s")]
        rates += [f"{unit} {amount(rate, 'FLOP/s')}" for unit, rate in limits.flops_per_s.items()]
        measured = " as measured by the user" if limits.measured else ""
        self.source = f"{limits.name}{measured}: {', '.join(rates)}"

    def bandwidth(self, work: Work) -> float:
        return self._limits.bytes_per_s

    def computing(self, case: Case, work: Work) -> tuple[str, float]:
        unit = unit_of(work.dtype, "", matrix=work.matrix, tf32=case.mode == TF32)
        return unit, self._limits.flops_per_s.get(unit, 0.0)

    def in_cache(self, work: Work) -> bool:
        return bool(work.bytes and work.bytes <= self._limits.l2_bytes)


class CpuRoof:
    """What stock reaches here, measured when it is first asked for, or what the user measured.

    Bytes: copying about as many as the case moves, so that caches count. Operations: a product of
    256 x 256 matrices of the case's dtype.
    """

    def __init__(self, bandwidth: float | None = None, flops: float | None = None) -> None:
        self._bandwidth, self._flops = bandwidth, flops
        self._copied: dict[int, float] = {}
        self._computed: dict[str, float] = {}
        given = [name for name, value in (("bandwidth", bandwidth), ("operations", flops)) if value]
        size = f"{_PRODUCT_SIZE} x {_PRODUCT_SIZE}"
        self.source = f"the best that stock reached here, copying as many bytes and multiplying {size}"
        if given:
            self.source += f"; {' and '.join(given)} as measured by the user"

    def bandwidth(self, work: Work) -> float:
        if self._bandwidth:
            return self._bandwidth
        size = 1 << max(((work.bytes or 1) - 1).bit_length(), 10)
        if size not in self._copied:
            self._copied[size] = size / _copy_seconds(size // 2)
        return self._copied[size]

    def computing(self, case: Case, work: Work) -> tuple[str, float]:
        if not self._flops and work.dtype not in self._computed:
            self._computed[work.dtype] = 2 * _PRODUCT_SIZE**3 / _product_seconds(work.dtype)
        return f"{work.dtype} operations", self._flops or self._computed[work.dtype]

    def in_cache(self, work: Work) -> bool:
        return False  # it is copied there, too


def _copy_seconds(size: int) -> float:
    """For reading and writing `size` bytes each."""
    import torch

    source = torch.ones(size, dtype=torch.uint8)
    target = torch.empty_like(source)
    return _best(lambda: target.copy_(source))


def _product_seconds(dtype: str) -> float:
    import torch

    a = torch.ones(_PRODUCT_SIZE, _PRODUCT_SIZE, dtype=getattr(torch, dtype))
    return _best(lambda: torch.mm(a, a))


def _best(run: Callable[[], object]) -> float:
    """Seconds of the shortest call, with all threads or with one: if the machine is busy, threads wait."""
    import torch

    threads = torch.get_num_threads()
    try:
        several = _shortest(run)
        torch.set_num_threads(1)
        return min(several, _shortest(run))
    finally:
        torch.set_num_threads(threads)


def _shortest(run: Callable[[], object]) -> float:
    """Seconds of the shortest call of those that fit into a fifth of a second; a first one is left out."""
    run()
    taken: list[float] = []
    while len(taken) < _FEWEST or (sum(taken) < _SECONDS and len(taken) < _MOST):
        begin = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begin)
    return min(taken)
