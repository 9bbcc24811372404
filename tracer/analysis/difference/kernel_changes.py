"""Kernel functions that another one replaced: the same op at the same dispatch key runs other code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from tracer.analysis.chain import Chain, Link, align
from tracer.analysis.difference.kernel_change import KernelChange, Place, place_of
from tracer.trace.tables.schema import HOP_KINDS

if TYPE_CHECKING:
    from tracer.analysis.difference.change import Change


def kernel_changes(changes: Iterable[Change]) -> Counter[KernelChange]:
    """The outermost ones in the chains that changed, by how many kinds of op calls have them."""
    found: Counter[KernelChange] = Counter()
    for change in changes:
        if change.what and change.chains is not None:
            found.update(set(_replaced(*change.chains)))
    return found


def without_below(chain: Chain, places: Collection[Place]) -> Chain:
    """The chain without what these kernels called."""
    return tuple(link for link, inside in zip(chain, below(chain, places), strict=True) if not inside)


def below(chain: Chain, places: Collection[Place]) -> list[bool]:
    """Of each link whether one of these kernels called it."""
    inside, level = [], None
    for link in chain:
        if level is not None and link.level <= level:
            level = None
        inside.append(level is not None)
        if level is None and place_of(link) in places:
            level = link.level
    return inside


def _replaced(before: Chain, after: Chain) -> Iterable[KernelChange]:
    """Overrides are causes of their own."""
    level = None
    for pair in align(before, after):
        if pair.one is None or pair.other is None:
            continue
        one, other = before[pair.one], after[pair.other]
        if level is not None and one.level > level:
            continue
        level = None
        if _is_replaced(one, other):
            level = one.level
            yield KernelChange(one.op, one.key, one.kernel, other.kernel)


def _is_replaced(one: Link, other: Link) -> bool:
    hops = one.kind in HOP_KINDS and other.kind in HOP_KINDS
    named = bool(one.kernel and other.kernel) and one.more == other.more
    return hops and named and one.key == other.key and one.kernel != other.kernel
