"""Finds operators by name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from tracer.base.this_torch import this_torch

_ATEN = "aten::"


class Operators:
    """All operators, e.g. `aten::add.Tensor`; a name without a dot is the default overload."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self._namespaces = {name.partition("::")[0] for name in self.names}

    def named(self, name: str) -> list[str]:
        """The operator of this name with all its overloads, or the one overload that it names.

        Without `aten::`, ATen's operator comes before one of the same name elsewhere.
        `.default` means the default overload alone; `aten.add.Tensor` and `torch.ops.aten.add.Tensor`
        are read as Python writes them. Empty if there is none.
        """
        for full in self._spelled(name):
            if full.endswith(".default") and full.removesuffix(".default") in self.names:
                return [full.removesuffix(".default")]
            if full in self.names and "." in full:
                return [full]
            if overloads := sorted(known for known in self.names if known.split(".")[0] == full):
                return overloads
        return []

    def near(self, name: str, limit: int = 4) -> list[str]:
        """Operators with a name like this one: in the namespace that it has, else in any."""
        namespace, _, rest = self._spelled(name)[0].partition("::")
        wanted = rest.split(".")[0]
        every = {known.split(".")[0] for known in self.names}
        for among in ({known for known in every if known.startswith(f"{namespace}::")}, every):
            by_name = {known.partition("::")[2]: known for known in sorted(among)}
            if near := get_close_matches(wanted, by_name, limit, 0.6):
                return [by_name[found] for found in near]
        return []

    def _spelled(self, name: str) -> list[str]:
        """The full names that it may be the short form of, the most likely first."""
        name = name.removeprefix("torch.ops.")
        if "::" in name:
            return [name]
        namespace, _, rest = name.partition(".")
        if rest and namespace in self._namespaces:
            return [f"{namespace}::{rest}", _ATEN + name]
        others = sorted(self._namespaces - {"aten"})
        return [_ATEN + name, *(f"{other}::{name}" for other in others)]


def registered_operators() -> Operators:
    """Those of the torch in this process; imports torch."""
    torch = this_torch()
    return Operators(torch._C._dispatch_get_all_op_names())
