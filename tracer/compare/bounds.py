"""How far a result may be from float64, by what was computed and in which precision."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

from tracer.compare.cases import STRICT, TF32, Case

STOCK_FACTOR = 2.0
"""An override may be this much further from float64 than stock, plus a quarter of the bound."""
_FLOOR = 0.25
LEAST_COSINE = 0.999
_LARGEST = 0.03

_UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-9, "float16": 2.0**-12}
"""Half a unit in the last place"""
_PRODUCT = {"bfloat16": 3e-3, "float16": 4e-4, TF32: 1e-3}
_OUTPUT = {STRICT: (1e-5, inf), TF32: (5e-3, 1e-3), "bfloat16": (3e-2, 1e-2), "float16": (4e-3, 1.5e-3)}
_GRADIENT = {STRICT: 1e-4, TF32: 5e-3, "bfloat16": 3e-2, "float16": 3e-2}


@dataclass(frozen=True)
class Bound:
    """Of one result.

    relative   of ||y - y64|| / ||y64||, in the Frobenius norm
    largest    of max |y - y64|; with `scaled` each element over that of |A| |B|, the sum of the
               magnitudes that it is made of
    cosine     the least cosine between the result and float64, where that is asked for
    """

    relative: float = inf
    largest: float = inf
    scaled: bool = False
    cosine: float | None = None


def bound_of(case: Case, output: str) -> Bound | None:
    """The bound for a result of a case; None where it must be the same bytes."""
    if case.op == "cat":
        return None
    precision = case.dtype if case.dtype != "float32" else case.mode or STRICT
    if case.op in ("mm", "addmm"):
        inner = case.shapes[0][1]
        if precision in _PRODUCT:
            return Bound(relative=_PRODUCT[precision], scaled=True)
        unit = _UNIT[case.dtype]
        return Bound(relative=2e-6 * unit / _UNIT["float32"], largest=4 * unit * sqrt(inner), scaled=True)
    if output.startswith("grad"):
        return Bound(relative=_GRADIENT[precision], cosine=LEAST_COSINE)
    largest, relative = _OUTPUT[precision]
    return Bound(relative, largest)


def allowance(bound: float, stock: float) -> float:
    """What an override may reach where stock is that far off; the bound itself where stock exceeds it."""
    return min(bound, STOCK_FACTOR * stock + _FLOOR * bound) if stock <= bound else bound


def loose(dtype: str, stock: float) -> float:
    """What an override of any operator may reach where stock is that far off: 1,000 units beyond twice."""
    unit = _UNIT.get(dtype, 0.0)
    return STOCK_FACTOR * stock + min(1000 * unit, _LARGEST)
