"""Why a hop ran at its dispatch key: who brought the key, and what became of those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from tracer.trace import Trace


@dataclass(frozen=True)
class Why:
    """What decided on the kernel of one hop.

    hop         its row, by column
    above       the hop around it of the same op call; None for the op call itself
    arguments   the keys of each tensor argument, highest first, by its position
    adds, hides what the thread does beside its defaults, in words; None: the trace was recorded without --why
    bringers    positions of the arguments that brought the key of the hop
    brought     who else did, or why they could, in words
    passed      higher keys that did not win, with the reason
    following   the keys that were left, highest first: the first is that of the hop, the second would be next
    """

    hop: dict[str, Any]
    above: dict[str, Any] | None
    arguments: dict[int, list[str]]
    adds: list[str] | None = None
    hides: list[str] | None = None
    bringers: list[int] = field(default_factory=list)
    brought: str = ""
    passed: dict[str, str] = field(default_factory=dict)
    following: list[str] = field(default_factory=list)


NO_KERNEL = "; the torch here has no kernel of the op for it"
HasKernel = Callable[[str, str], bool]
"""Whether an op has a kernel of its own at a dispatch key"""


def why(trace: Trace, hop: int, has_kernel: HasKernel | None = None) -> Why:
    """Raises LookupError where the trace has no hop with this id.

    `has_kernel` is asked of autocast's keys at which no hop of the op is: a trace does not say at which
    hidden keys an op has a kernel. What it denies is said as its word: the program may have had a kernel.
    """
    if not 0 <= hop < len(trace.hops):
        raise LookupError(f"no hop {hop}; choose 0 to {len(trace.hops) - 1}")
    row = trace.hops.row(hop, named=True)
    above = trace.hops.row(row["parent"], named=True) if row["kind"] == "redispatch" else None
    found = Why(row, above, _arguments(trace.signatures, row["inputs"]))
    if row["thread_keys"] is None or row["key_set"] is None:
        return found
    keys = _Keys(trace.dispatch_keys)
    thread = _Thread(trace.thread_keys.row(row["thread_keys"], named=True), _enclosing(trace.hops, row), keys)
    left = list(trace.key_sets["keys"][row["key_set"]])
    brought = {key for keys in found.arguments.values() for key in keys} | thread.included
    return Why(
        row,
        above,
        found.arguments,
        adds=thread.adds(),
        hides=thread.hides(),
        bringers=(bringers := [at for at, keys in found.arguments.items() if row["key"] in keys]),
        brought=_origin(row["key"], bool(bringers), above, thread),
        passed=_passed(
            keys.between(row["key"], above["key"] if above else None, brought - set(left)),
            thread,
            lambda key: has_kernel is None or _ran(trace.hops, row["op"], key) or has_kernel(row["op"], key),
        ),
        following=left,
    )


def _ran(hops: pl.DataFrame, op: str, key: str) -> bool:
    """Whether the trace has a hop of the op at the key."""
    return bool(((hops["op"].cast(pl.String) == op) & (hops["key"].cast(pl.String) == key)).any())


def _arguments(signatures: pl.DataFrame, signature: int | None) -> dict[int, list[str]]:
    """The keys of tensors by their position; those of a list of tensors together."""
    if signature is None:
        return {}
    found: dict[int, dict[str, None]] = {}
    rows = signatures.filter(pl.col("id") == signature).select("position", pl.col("keys").cast(pl.String))
    for position, keys in rows.sort("position", maintain_order=True).iter_rows():
        found.setdefault(position, {}).update(dict.fromkeys(filter(None, (keys or "").split(", "))))
    return {position: list(keys) for position, keys in found.items()}


def _enclosing(hops: pl.DataFrame, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The hops around one, innermost first."""
    found = []
    while row["parent"] is not None:
        row = hops.row(row["parent"], named=True)
        found.append(dict(row))
    return found


class _Keys:
    """The order of dispatch keys."""

    def __init__(self, table: pl.DataFrame) -> None:
        self._priority = dict(table.select("key", "priority").iter_rows())
        self.functionality = dict(table.select("key", "functionality").iter_rows())

    def between(self, low: str | None, high: str | None, keys: set[str]) -> list[str]:
        """Those of `keys` with a priority above `low` and below `high` (None: any), highest first."""
        least, most = self._priority.get(low or "", -1), self._priority.get(high or "", len(self._priority))
        found = [key for key in keys if least < self._priority.get(key, -1) < most]
        return sorted(found, key=lambda key: -self._priority[key])


class _Thread:
    """What a thread adds and hides, and for whom."""

    def __init__(self, keys: Mapping[str, Any], enclosing: list[dict[str, Any]], order: _Keys) -> None:
        self._keys = keys
        self.included, self.excluded = set(keys["included"]), set(keys["excluded"])
        self.included_by_default = set(keys["included_by_default"])
        self._excluded_by_default = set(keys["excluded_by_default"])
        self._enclosing, self._order = enclosing, order

    def adds(self) -> list[str]:
        return [key for key in self._keys["included"] if key not in self.included_by_default]

    def hides(self) -> list[str]:
        """What is said to be hidden: groups of keys rather than each of their backends.

        The kernel of an autocast key hides that key alone, as every thread does while autocast is off.
        """
        more = self.excluded - self._excluded_by_default
        more |= {key for key in self.excluded if key.startswith("Autocast") and self._hop_at(key)}
        names = (
            key if key.startswith("Autocast") else _group(key)
            for key in self._keys["excluded"]
            if key in more
        )
        return list(dict.fromkeys(names))

    def includes(self, key: str) -> str:
        """For whom the thread adds a key."""
        if key in self.included_by_default:
            return "every thread adds it"
        if key.startswith("Python"):
            names = self._keys["modes"]
            if names:
                return f"TorchDispatchMode {' in '.join(reversed(names))} is active"
            return "a TorchDispatchMode is active"
        if key == "FuncTorchVmapMode":
            return "torch.vmap is active"
        if key.startswith("FuncTorch"):
            vmap = " (torch.vmap)" if "FuncTorchVmapMode" in self.included else ""
            return f"a transform of torch.func{vmap} is active"
        if key == "Functionalize":
            return "functionalization is active"
        if key == "Tracer":
            return "torch.jit.trace is active"
        return "the thread adds it"

    def excludes(self, key: str) -> str:
        """For whom the thread hides a key."""
        if key.startswith("Autocast") and key in self._excluded_by_default:
            kernel = self._hop_at(key)
            return _by_kernel(kernel) if kernel else "hidden: autocast is off"
        if key.startswith("Autograd") or key == "ADInplaceOrView":
            if "ADInplaceOrView" not in self.included:
                return "hidden: torch.inference_mode is on"
            for hop in self._enclosing:
                if (hop["key"] or "").startswith(("Autograd", "ADInplaceOrView")):
                    return _by_kernel(hop)
        for hop in self._enclosing:
            if hop["key"] == key or (hop["key"] or "").startswith(("Autocast", "FuncTorch", "Python")):
                return _by_kernel(hop)
        return "hidden by a guard of its C++ caller"

    def _hop_at(self, key: str) -> dict[str, Any] | None:
        """The innermost hop around it at this key."""
        return next((hop for hop in self._enclosing if hop["key"] == key), None)

    def is_excluded(self, key: str) -> bool:
        """Whether the thread hides the key, or its functionality for all backends."""
        return key in self.excluded or self._order.functionality.get(key) in self.excluded

    def autocast_is_on(self, key: str) -> bool:
        return key in self._excluded_by_default and key not in self.excluded


def _by_kernel(hop: Mapping[str, Any]) -> str:
    return f"hidden by the kernel of hop {hop['id']}, {hop['op']} [{hop['key']}]"


def _group(key: str) -> str:
    for group in ("Autograd", "Autocast", "FuncTorch", "Python"):
        if key.startswith(group):
            return f"{group}..."
    return key


def _origin(key: str | None, by_arguments: bool, above: Mapping[str, Any] | None, thread: _Thread) -> str:
    """Who brought the key of a hop, or of one that its arguments brought why it is not hidden."""
    if key is None:
        return "its name is not known"
    if by_arguments:
        return "autocast is on" if thread.autocast_is_on(key) else ""
    if key in thread.included:
        return thread.includes(key)
    if key == "Undefined":
        return "no argument and nothing of the thread brought a key"
    if above is not None and above["key"] == "BackendSelect":
        return "the kernel of BackendSelect chose it by the argument `device`"
    return "the kernel that called chose it"


def _passed(higher: list[str], thread: _Thread, has_kernel: Callable[[str], bool]) -> dict[str, str]:
    """Higher keys that somebody brought and that did not win, with the reason; one of each kind."""
    passed: dict[str, str] = {}
    for key in higher:
        if all(_group(key) != _group(known) for known in passed):
            if thread.is_excluded(key):
                here = has_kernel(key) or not key.startswith("Autocast")
                passed[key] = thread.excludes(key) + ("" if here else NO_KERNEL)
            elif key not in thread.included_by_default:
                passed[key] = "the op falls through there: it has no kernel for it"
    return passed
