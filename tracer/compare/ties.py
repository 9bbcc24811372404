"""Operators that return places, and do not promise which of equal elements comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracer.compare.trial_samples import Operands, Sample

_SORT, _TOPK = "aten::sort", "aten::topk"
_PLACES = (_SORT, _TOPK, "aten::kthvalue", "aten::median", "aten::nanmedian", "aten::mode")
"""Of max and min it is the first"""


@dataclass(frozen=True)
class Ties:
    """What must be the same of values and places in any order of equal elements: -0.0 equals 0.0.

    values   in one order
    picked   the elements at the places in one order, and that of a sort or topk no place comes twice
    agree    each value is the element at its place, to the bit
    """

    values: Any
    picked: tuple[Any, ...]
    agree: bool


def ties_of(sample: Sample, operands: Operands, result: Any) -> Ties | None:
    """None: it returns no places, or the order is promised."""
    import torch

    schema = getattr(sample.call, "_schema", None)
    if schema is None or schema.name not in _PLACES or len(schema.returns) != 2:
        return None
    names = [argument.name for argument in schema.arguments]
    given = dict(zip(names, operands[0], strict=False)) | operands[1]
    own, (values, places), dim = given["self"], result, given.get("dim", -1)
    if given.get("stable") or places.dtype != torch.int64 or not own.dim():
        return None
    try:
        values, whole = (t if t.dim() == own.dim() else t.unsqueeze(dim) for t in (values.detach(), places))
        elements = own.detach().gather(dim, whole)
        agree = bool(((elements == values) | (elements != elements) & (values != values)).all())
        agree = agree and bool((elements.signbit() == values.signbit()).all())
        if schema.name == _TOPK and not given.get("sorted", True):
            elements, values = (t.sort(dim)[0] for t in (elements, values))
    except (RuntimeError, IndexError):  # no places of this tensor
        return None
    elements, values = (t if t.dtype == torch.bool else t + 0 for t in (elements, values))
    if schema.name not in (_SORT, _TOPK):
        return Ties(values, (elements,), agree)
    once = whole.sort(dim)[0].diff(dim=dim).all()
    return Ties(values, (elements, once), agree)
