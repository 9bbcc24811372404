"""Which operator a function is meant to replace, by its name."""

from __future__ import annotations

from tracer.base.this_torch import this_torch
from tracer.dispatch.operators import Operators, registered_operators

UNKNOWN = "NAMESPACE::OPERATOR"


def meant_by(function: str) -> str:
    """`aten::gelu` of `my_gelu`, `aten::add.Tensor` of `fast_add`; "" if the name has no operator in it."""
    operators = registered_operators()
    words = function.strip("_").split("_")
    for length in range(len(words), 0, -1):
        for at in range(len(words) - length + 1):
            if found := _named(operators, "_".join(words[at : at + length])):
                return found
    return ""


def _named(operators: Operators, name: str) -> str:
    """Of an operator that only calls others, such as layer_norm, the one that has the kernel."""
    for known in (name, f"native_{name}", f"_{name}"):
        overloads = operators.named(f"aten::{known}") if name else []
        found = [full for full in overloads if not full.endswith("out") and not _is_composite(full)]
        if found:
            return min(found, key=lambda full: (full.partition(".")[2] not in ("", "Tensor"), full))
    return ""


def _is_composite(operator: str) -> bool:
    torch = this_torch()
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CompositeImplicitAutograd"))
