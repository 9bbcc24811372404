"""Element types by name: their size, their kind, and what PyTorch promotes them to."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracer.base.numerals import number_of


def item_bytes(dtype: str) -> int:
    """Bytes of an element; 4 where the dtype is unknown."""
    if dtype == "bool":
        return 1
    if dtype.startswith("complex"):
        return (number_of(dtype.removeprefix("complex")) or 64) // 8
    bits = re.search(r"(?:float|int)(\d+)", dtype)
    number = number_of(bits[1]) if bits else None
    return max(number // 8, 1) if number is not None else 4


def multiply_add(dtype: str) -> int:
    """Operations in a multiplication and addition; of complex numbers 4 of each."""
    return 8 if dtype.startswith("complex") else 2


def together(dtypes: Iterable[str]) -> str:
    """What torch.promote_types makes of them; "" of none."""
    result = ""
    for dtype in dtypes:
        result = promote(result, dtype) if result else dtype
    return result


def promote(a: str, b: str) -> str:
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda dtype: (kind(dtype), item_bytes(dtype)))
    if kind(high) == COMPLEX:
        parts = 8 if low == "bfloat16" else item_bytes(low) * 2 if kind(low) == FLOAT else item_bytes(low)
        return f"complex{8 * max(item_bytes(high), parts if kind(low) >= FLOAT else 0)}"
    if kind(low) < kind(high):
        return high
    if kind(high) == FLOAT:
        return high if item_bytes(low) < item_bytes(high) else "float32"  # float16 and bfloat16
    return "int16" if {low, high} == {"uint8", "int8"} else high


BOOL, INTEGER, FLOAT, COMPLEX = range(4)


def kind(dtype: str) -> int:
    if dtype.startswith("complex"):
        return COMPLEX
    if "float" in dtype:
        return FLOAT
    return BOOL if dtype == "bool" else INTEGER
