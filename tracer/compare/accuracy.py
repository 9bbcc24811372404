"""How far two results are from float64, and the element that is the furthest."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from tracer.compare.bounds import Bound, allowance


@dataclass(frozen=True)
class Deviation:
    """From float64: in the Frobenius norm, the largest element's (see Bound), the cosine."""

    relative: float
    largest: float
    cosine: float


@dataclass(frozen=True)
class Element:
    index: tuple[int, ...]
    stock: float
    override: float
    exact: float


@dataclass(frozen=True)
class Check:
    """One result of a case, held against float64 or, with `bound` None, against stock's bytes.

    `wrong` says what is wrong with it in a phrase, "" where nothing is; `worst` is the element of the
    override that is the furthest off.
    """

    output: str
    bound: Bound | None
    stock: Deviation | None
    override: Deviation | None
    wrong: str
    worst: Element | None


def check(output: str, bound: Bound | None, stock: Any, override: Any, exact: Any, scale: Any) -> Check:
    """Compares two tensors with the float64 one; `scale` is |A| |B| where the bound is scaled.

    With `bound` None both must be the same bytes with the same strides, as of cat.
    """
    stock, override = stock.detach(), override.detach()
    if wrong := different_form(stock, override, strides=bound is None):
        return Check(output, bound, None, None, wrong, None)
    if bound is None:
        return _same_bytes(output, stock, override)
    ours, scaled = deviation(override, exact, scale)
    theirs, _ = deviation(stock, exact, scale)
    worst = _element(int(scaled.flatten().argmax()), stock, override, exact) if scaled.numel() else None
    return Check(output, bound, theirs, ours, _judge(bound, theirs, ours), worst)


def _judge(bound: Bound, stock: Deviation, override: Deviation) -> str:
    for name, most, theirs, ours in (
        ("relative error", bound.relative, stock.relative, override.relative),
        ("largest error", bound.largest, stock.largest, override.largest),
    ):
        if not isfinite(most):
            continue
        if not ours <= most:
            return f"{name} {ours:.2g}, above the bound of {most:.2g}"
        if not ours <= allowance(most, theirs):
            return f"{name} {ours:.2g}, but stock has {theirs:.2g}"
    if bound.cosine is not None and not override.cosine >= min(bound.cosine, stock.cosine):
        return f"cosine {override.cosine:.6f} with float64, below {bound.cosine}"
    return "" if isfinite(override.relative) else "it is not finite, but float64 is"


def different_form(stock: Any, override: Any, *, strides: bool = False) -> str:
    """What differs before any element does; strides count where no other result of them is right."""
    for name, theirs, ours in (
        ("shape", tuple(stock.shape), tuple(override.shape)),
        ("dtype", stock.dtype, override.dtype),
        ("device", stock.device, override.device),
        *((("strides", stock.stride(), override.stride()),) if strides else ()),
    ):
        if theirs != ours:
            return f"{name} {ours}, but stock has {theirs}"
    return ""


def _same_bytes(output: str, stock: Any, override: Any) -> Check:
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(stock.element_size())
    if whole is None:  # complex128
        stock, override, whole = torch.view_as_real(stock), torch.view_as_real(override), torch.int64
    unequal = stock.contiguous().view(whole) != override.contiguous().view(whole)
    if not unequal.any():
        return Check(output, None, None, None, "", None)
    place = int(unequal.flatten().int().argmax())
    count = int(unequal.sum())
    wrong = f"{count:,} of {unequal.numel():,} elements differ in their bytes"
    return Check(output, None, None, None, wrong, _element(place, stock, override, stock))


def deviation(result: Any, exact: Any, scale: Any) -> tuple[Deviation, Any]:
    """The deviation, and of each element its error, by `scale` where there is one; inf where it is NaN."""
    import torch

    wide = result.to(torch.float64)
    error = (wide - exact).abs()
    same = (wide == exact) | (wide.isnan() & exact.isnan())
    error = torch.where(same, torch.zeros_like(error), error.nan_to_num(nan=inf, posinf=inf))
    scaled = error if scale is None else torch.where(same, error, error / scale)
    if not error.numel():
        return Deviation(0.0, 0.0, 1.0), scaled
    of_error = float(error.norm())
    finite = exact.isfinite()
    wide, exact = (torch.where(finite, tensor, 0.0) for tensor in (wide, exact))
    norm, other = float(exact.norm()), float(wide.norm())
    relative = of_error / norm if norm else (inf if of_error else 0.0)
    cosine = float((wide * exact).sum()) / (norm * other) if norm * other else float(not of_error)
    return Deviation(relative, float(scaled.max()), cosine), scaled


def _element(place: int, stock: Any, override: Any, exact: Any) -> Element:
    index = []
    rest = place
    for extent in reversed(exact.shape):
        rest, here = divmod(rest, extent)
        index.append(here)
    at = tuple(index[::-1])
    return Element(at, *(float(tensor[at]) for tensor in (stock, override, exact)))
