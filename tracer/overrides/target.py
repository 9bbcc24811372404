"""Which operator an override stands at, and at which dispatch key."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracer.dispatch.operators import registered_operators
from tracer.dispatch.table import parse_table
from tracer.overrides.errors import OverrideError

_VARIANTS = ("SparseCsr", "Sparse", "Quantized", "NestedTensor")


class Target(NamedTuple):
    """An operator, `aten::mm` or `aten::mm.out`, and a dispatch key, `CPU`."""

    operator: str
    key: str

    def __str__(self) -> str:
        return f"{self.operator} [{self.key}]"


def checked_target(operator: object, key: object) -> Target:
    """The target of an override. Imports torch.

    `operator` is a name or a torch.ops overload. Raises OverrideError for an operator or a key that
    there is not, for a key that is no backend's, where there is no kernel to replace, and where
    autograd would silently break.
    """
    import torch

    name = _operator_name(operator)
    key = getattr(key, "name", key)
    if not isinstance(key, str) or key not in torch._C.DispatchKey.__members__:
        raise OverrideError(f"{key!r} is no dispatch key; give one such as 'CPU' or 'CUDA'")
    if key in ("Meta", "Undefined") or not _is_backend(key):
        raise OverrideError(
            f"an override stands at a backend's key such as CPU or CUDA, below autograd, and not at {key}"
        )
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key):
        raise OverrideError(f"{name} has no kernel at {key} in this torch: there is nothing to override")
    if _autograd_would_break(name, key):
        raise OverrideError(
            f"{name} is composite: autograd has no kernel of its own for it, and with one at {key} backward "
            "would fail or silently be wrong; override the operators that it calls (tracer tree shows them)"
        )
    return Target(name, key)


def schema_of(operator: str) -> Any:
    """The torch.FunctionSchema of an operator that there is."""
    import torch

    name, _, overload = operator.partition(".")
    return torch._C._get_schema(name, overload)


def _operator_name(operator: object) -> str:
    name = getattr(operator, "name", None)
    name = name() if callable(name) else operator
    if not isinstance(name, str):
        raise OverrideError(f"{operator!r} is no operator; give its name, such as 'aten::mm'")
    operators = registered_operators()
    full = name.removesuffix(".default")
    if full in operators.names:
        return full
    named = [known for known in operators.named(name) if known.split(".")[0].endswith(f"::{full}")]
    near = named or operators.named(name) or operators.near(name)
    also = f"; there is {', '.join(near[:4])}" if near else ""
    raise OverrideError(f"there is no operator {name}{also}")


def _is_backend(key: str) -> bool:
    import torch

    includes = torch._C._dispatch_is_included_in_alias
    return includes(key, "CompositeExplicitAutograd") and not torch._C._dispatch_is_alias_key(key)


def _autograd_would_break(operator: str, key: str) -> bool:
    """Whether autograd now differentiates what the operator calls, and would see a kernel instead."""
    import torch

    own_autograd = torch._C._dispatch_has_kernel_for_dispatch_key(operator, "Autograd")
    if own_autograd and not operator.startswith("aten::"):
        return False  # it takes over as soon as there is a backend's kernel; ATen's is for nested tensors
    entries = parse_table(torch._C._dispatch_dump_table(operator))
    autograd = _autograd_key(key)
    return any(entry.key == autograd and entry.rule == "math kernel" for entry in entries)


def _autograd_key(key: str) -> str:
    if key.startswith("NestedTensor"):
        return "AutogradNestedTensor"
    variant = next((variant for variant in _VARIANTS if key.startswith(variant)), "")
    own = f"Autograd{key.removeprefix(variant)}"
    import torch

    return own if own in torch._C.DispatchKey.__members__ else "AutogradOther"
