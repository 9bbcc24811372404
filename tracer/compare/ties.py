"""Operators that return places, and do not promise which of equal elements comes first."""

from __future__ import annotations

from typing import Any

from tracer.compare.trial_samples import Operands, Sample

_SORT = "aten::sort"
_PLACES = (_SORT, "aten::topk", "aten::kthvalue", "aten::median", "aten::nanmedian", "aten::mode")
"""Of max and min it is the first"""


def picked(sample: Sample, operands: Operands, result: Any) -> tuple[Any, ...]:
    """The elements at the places that it returned; (): there are none, or each is promised."""
    import torch

    schema = getattr(sample.call, "_schema", None)
    if schema is None or schema.name not in _PLACES or len(schema.returns) != 2:
        return ()
    names = [argument.name for argument in schema.arguments]
    given = dict(zip(names, operands[0], strict=False)) | operands[1]
    own, places, dim = given["self"], result[1], given.get("dim", -1)
    if given.get("stable") or places.dtype != torch.int64 or not own.dim():
        return ()
    try:
        whole = places if places.dim() == own.dim() else places.unsqueeze(dim)
        elements = own.detach().gather(dim, whole)
    except (RuntimeError, IndexError):  # no places of this tensor
        return ()
    if schema.name != _SORT:
        return (elements,)
    return elements, whole.sort(dim)[0]  # each place once
