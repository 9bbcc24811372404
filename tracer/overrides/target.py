"""The operator and the dispatch key that an override replaces."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracer.base.this_torch import this_torch
from tracer.dispatch.operators import registered_operators
from tracer.dispatch.table import parse_table
from tracer.overrides.override_errors import OverrideError

_VARIANTS = ("SparseCsr", "Sparse", "Quantized", "NestedTensor")


class Target(NamedTuple):
    """An operator, `aten::mm` or `aten::mm.out`, and a dispatch key, `CPU`."""

    operator: str
    key: str

    def __str__(self) -> str:
        return f"{self.operator} [{self.key}]"


def checked_target(operator: object, key: object) -> Target:
    """The target of an override. Imports torch.

    `operator` is a name or a torch.ops overload. Raises OverrideError if the operator or the key does
    not exist, if the key is not a backend's, if there is no kernel to replace, and if
    autograd would silently break.
    """
    torch = this_torch()
    name = _operator_name(operator)
    key = getattr(key, "name", key)
    if not isinstance(key, str) or key not in torch._C.DispatchKey.__members__:
        raise OverrideError(f"{key!r} is not a dispatch key; give one such as 'CPU' or 'CUDA'")
    if key in ("Meta", "Undefined") or not _is_backend(key):
        raise OverrideError(
            f"an override needs a backend's key, e.g. CPU or CUDA (below autograd), not {key}"
        )
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key):
        raise OverrideError(f"{name} has no kernel at {key} in this torch, so there is nothing to override")
    if _autograd_would_break(name, key):
        raise OverrideError(
            f"{name} is composite: autograd has no kernel of its own for it, so with an override at {key} "
            "backward would fail or be silently wrong; override the operators that it calls (see tracer tree)"
        )
    return Target(name, key)


def schema_of(operator: str) -> Any:
    """The torch.FunctionSchema of a registered operator."""
    torch = this_torch()
    name, _, overload = operator.partition(".")
    return torch._C._get_schema(name, overload)


def _operator_name(operator: object) -> str:
    name = getattr(operator, "name", None)
    name = name() if callable(name) else operator
    if not isinstance(name, str):
        raise OverrideError(f"{operator!r} is not an operator; give its name, such as 'aten::mm'")
    operators = registered_operators()
    full = name.removesuffix(".default")
    if full in operators.names:
        return full
    named = [known for known in operators.named(name) if known.split(".")[0].endswith(f"::{full}")]
    near = named or operators.named(name) or operators.near(name)
    also = f"; did you mean {', '.join(near[:4])}?" if near else "; check its name"
    raise OverrideError(f"no operator {name}{also}")


def _is_backend(key: str) -> bool:
    torch = this_torch()
    includes = torch._C._dispatch_is_included_in_alias
    return includes(key, "CompositeExplicitAutograd") and not torch._C._dispatch_is_alias_key(key)


def _autograd_would_break(operator: str, key: str) -> bool:
    """Whether autograd differentiates the operators that this one calls, and an override would hide them."""
    torch = this_torch()
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
    torch = this_torch()
    return own if own in torch._C.DispatchKey.__members__ else "AutogradOther"
