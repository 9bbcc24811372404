"""What the tests of the built-in overrides share: switching one on, references in float64, and its counts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
from lazily import torch

DEVICE = "cuda"
# Why auto leaves a call to stock that the override could compute
LEFT_BY_AUTO = (
    "not measured to be faster",
    "measured to be no faster than stock",
    "this GPU was not measured; to measure it: tracer compare --tune",
)


def native() -> ModuleType:
    """tracer._overrides, or the test is skipped where it was not built."""
    try:
        return importlib.import_module("tracer._overrides")
    except ImportError as error:
        pytest.skip(f"tracer was built without the kernels of the overrides: {error}")


@contextmanager
def switched_on(name: str, *, forced: bool = True) -> Iterator[ModuleType]:
    overrides = native()
    overrides.reset_counts(name)
    overrides.install(name, forced)
    try:
        yield overrides
    finally:
        overrides.remove(name)


@contextmanager
def all_ran(name: str, calls: int, operator: str | None = None) -> Iterator[None]:
    """Within it the override is on, `calls` calls ran it, and none was handed over."""
    with switched_on(name) as overrides:
        yield
        ran = overrides.ran(name)
        handed_over = {op: reasons for op, reasons in overrides.handed_over(name).items() if reasons}
    assert not handed_over, f"{name} handed over: {handed_over}; it ran {ran}"
    counted = ran[operator] if operator else sum(ran.values())
    assert counted == calls, f"{name} ran {counted} times, not {calls}: {ran}"


@contextmanager
def handed_over(name: str, operator: str, reason: str) -> Iterator[None]:
    """Within it the override is on, and hands one call of the operator over for that reason; it may raise."""
    with switched_on(name) as overrides:
        try:
            yield
        finally:
            left, ran = overrides.handed_over(name), overrides.ran(name)
            assert left[operator] == {reason: 1}, f"{name} handed over: {left}; it ran {ran}"
            assert ran[operator] == 0, f"{name} ran: {ran}"


def dispatch_tables(name: str) -> dict[str, str]:
    return {op: torch._C._dispatch_dump_table(op) for op, _ in native().operators(name)}


def dtype_of(name: str) -> torch.dtype:
    """torch.float32 of "torch.float32": tests are collected without torch, so their parameters are names."""
    return getattr(torch, name.removeprefix("torch."))


def random(*shape: int, dtype: torch.dtype | None = None, seed: int = 0) -> torch.Tensor:
    """Normal numbers that are the same on every device, of float32 by default."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float32).to(DEVICE, dtype)


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The norm of the deviation by the norm of what is exact, a float64 tensor."""
    return ((result.double() - exact).norm() / exact.norm()).item()


def largest_error(result: torch.Tensor, exact: torch.Tensor, magnitude: torch.Tensor) -> float:
    """The largest deviation, each by the sum of the magnitudes that were added up."""
    return ((result.double() - exact).abs() / magnitude.clamp_min(1e-300)).max().item()
