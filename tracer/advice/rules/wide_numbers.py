"""Numbers that are wider than they need to be: float64, and products of float32 without TF32."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracer.advice.experiments import Recorded
from tracer.advice.finding import Finding
from tracer.advice.lines import costliest
from tracer.advice.steady import Steady, Tensor

looks_for = "ops on float64; on a GPU that has TF32, products of float32 that do not use it"
threshold = "5 % of a step: rounding changes results, so a small gain is not worth it"
needs: tuple[str, ...] = ("shapes", "sources")

LEAST = 0.05
MOST_CALLS = 3
_CASTS = ("aten::to.dtype", "aten::to.dtype_layout", "aten::to.device", "aten::to.other", "aten::_to_copy")
"""They may be what makes it float32"""
LARGE = 1000
"""Numbers of a tensor: a float64 scalar costs nothing"""
_PRODUCTS = tuple(f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm"))
_CALLS = (*_PRODUCTS, "aten::linear", "aten::matmul", "aten::conv2d")


def find(steady: Steady) -> Iterator[Finding]:
    yield from _float64(steady)
    yield from _tf32(steady)


def _float64(steady: Steady) -> Iterator[Finding]:
    wide = steady.with_inputs(lambda of: any(_is_wide(one) for one in of))
    calls = steady.roots.filter(pl.col("inputs").is_in(wide) & ~pl.col("op").is_in(_CASTS))
    cost = steady.cost_ns(calls)
    if calls.is_empty() or cost < LEAST * steady.step_ns:
        return
    products = calls.filter(pl.col("op").is_in(_CALLS))
    hottest = steady.hottest(products, MOST_CALLS)
    yield Finding(
        line=costliest(calls),
        change=calls["source"].drop_nulls().to_list()[0] if calls["source"].count() else None,
        do="make it float32, with .float() where the data comes in",
        evidence=f"{steady.a_step(len(calls)):,.0f} op calls a step have tensors of float64",
        cost_ns=cost,
        most_ns=cost,
        hops=frozenset(calls["id"].to_list()),
        experiment=Recorded(*hottest, change="dtype", to="float32") if hottest[0] else None,
        caveat="7 digits in place of 16",
    )


def _is_wide(tensor: Tensor) -> bool:
    return tensor.dtype == "float64" and tensor.numbers > LARGE


def _tf32(steady: Steady) -> Iterator[Finding]:
    if not steady.on_gpu or steady.settings.get("float32_matmul_precision") != "highest":
        return
    devices = steady.trace.devices
    if devices.is_empty() or (devices["computeCapabilityMajor"][0] or 0) < 8:
        return
    narrow = steady.with_inputs(lambda of: bool(of) and all(one.dtype == "float32" for one in of))
    calls = steady.calls.filter(pl.col("op").is_in(_PRODUCTS) & pl.col("inputs").is_in(narrow))
    cost = steady.gpu_ns_below(calls)
    if cost < LEAST * steady.step_ns:
        return
    yield Finding(
        line=costliest(calls),
        do='torch.set_float32_matmul_precision("high"): products in TF32',
        evidence=f"{steady.a_step(len(calls)):,.0f} products of float32 a step, in full precision",
        cost_ns=cost,
        most_ns=cost,
        hops=frozenset(calls["id"].to_list()),
        experiment=Recorded(*steady.hottest(calls, MOST_CALLS), change="tf32", to="on"),
        caveat="the operands are rounded to 10 bits",
    )
