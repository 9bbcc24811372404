"""What is likely behind the changes between two recordings, the most telling first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tracer.analysis.chain import Chain
from tracer.analysis.difference.cause import Cause
from tracer.analysis.difference.kernel_change import KernelChange
from tracer.analysis.difference.kernel_changes import kernel_changes, without_below
from tracer.analysis.difference.kinds import ALIGNMENT, OF_INPUTS

if TYPE_CHECKING:
    from tracer.analysis.difference.change import Change

Words = Callable[[Chain], set[str]]

_OVERRIDE = re.compile(r"\(override (.+)\)$")
_MOST_KERNELS = 5
"""Another torch has other names for many"""


def causes(
    changes: Iterable[Change],
    settings: dict[str, tuple[Any, Any]],
    facts: dict[str, tuple[Any, Any]],
    compiled: tuple[int, int],
    registered: Callable[[KernelChange], str] = lambda _: "",
) -> list[Cause]:
    """Settings, versions and machines that differ; compiled code; properties of inputs; then what only
    one side has in the chains that changed: overrides, kernel functions and dispatch keys; alignments that
    kernels need. What a replaced kernel calls is an effect, and no cause of its own. `registered` names the
    place where the second kernel function of a change was registered."""
    changes = list(changes)
    found = [
        Cause(f"{name} {_word(one)} -> {_word(other)}")
        for name, (one, other) in {**settings, **facts}.items()
        if name != "platform"
    ]
    if bool(compiled[0]) != bool(compiled[1]):
        side, calls = ("before", compiled[0]) if compiled[0] else ("after", compiled[1])
        found.append(
            Cause(f"torch.compile only {side} ({calls:,} call{'s' * (calls != 1)} of compiled code)")
        )
    counted: Counter[str] = Counter()
    for change in changes:
        counted.update({what.partition(" ")[0] for what in change.what} & set(OF_INPUTS))
    found += [
        Cause(f"{name} of inputs differs in {_kinds(number)}", inputs=name)
        for name, number in counted.most_common()
    ]
    found += [Cause(text) for text, _ in _of_one_side("override", _overrides, changes)]
    replaced = kernel_changes(changes)
    found += _kernels(replaced, registered)
    of_side = [frozenset(kernel.side(number) for kernel in replaced) for number in (0, 1)]

    def keys(chain: Chain) -> set[str]:
        return _keys(without_below(chain, of_side[0] | of_side[1]))

    found += [Cause(text, key=key) for text, key in _of_one_side("key", keys, changes)]
    return found + _alignments(changes)


def _kernels(replaced: Counter[KernelChange], registered: Callable[[KernelChange], str]) -> list[Cause]:
    found = [
        Cause(f"{kernel.text(registered(kernel))} in {_kinds(number)}", kernel=kernel)
        for kernel, number in replaced.most_common(_MOST_KERNELS)
    ]
    more = len(replaced) - len(found)
    return found + [Cause(f"{more} more kernel functions")] * (more > 0)


def _of_one_side(name: str, words: Words, changes: Iterable[Change]) -> list[tuple[str, str]]:
    return _that_came_and_went(name, words, changes) or _in_fewer(name, words, changes)


def _kinds(number: int) -> str:
    return f"{number} kind{'s' * (number != 1)} of op calls"


def _alignments(changes: Iterable[Change]) -> list[Cause]:
    """Kernels that both sides have, made for inputs of different alignment."""
    found = set()
    for change in changes:
        if change.chains is None:
            continue
        one, other = (_kernels_by_alignment(chain) for chain in change.chains)
        found |= {(one[name], other[name]) for name in one.keys() & other.keys() if one[name] != other[name]}
    return [Cause(f"alignment that a kernel needs {one} -> {other}") for one, other in sorted(found)]


def _overrides(chain: Chain) -> set[str]:
    return {found[1] for link in chain if (found := _OVERRIDE.match(link.more))}


def _keys(chain: Chain) -> set[str]:
    return {link.key for link in chain} - {""}


def _kernels_by_alignment(chain: Chain) -> dict[str, str]:
    """`align4` by the rest of the kernel's name."""
    kernels = ((link.text, ALIGNMENT.search(link.op)) for link in chain)
    return {ALIGNMENT.sub("", name): found[0] for name, found in kernels if found}


def _that_came_and_went(name: str, words: Words, changes: Iterable[Change]) -> list[tuple[str, str]]:
    sides: list[set[str]] = [set(), set()]
    for change in changes:
        if change.before is None or change.after is None:
            continue
        for side, kind in zip(sides, (change.before, change.after), strict=True):
            for chain in kind.chains:
                side |= words(chain)
    return [
        *((f"{name} {word} only before", word) for word in sorted(sides[0] - sides[1])),
        *((f"{name} {word} only after", word) for word in sorted(sides[1] - sides[0])),
    ]


def _in_fewer(name: str, words: Words, changes: Iterable[Change]) -> list[tuple[str, str]]:
    """What many kinds of op calls have on one side only, while others have it on both."""
    counted: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for change in changes:
        if change.before is None or change.after is None or not change.what:
            continue
        one, other = (
            {word for chain in kind.chains for word in words(chain)} for kind in (change.before, change.after)
        )
        counted[0].update(one - other)
        counted[1].update(other - one)
    return [
        (f"{name} {word} {how} {_kinds(number)}", word)
        for side, how in zip(counted, ("no longer in", "now in"), strict=True)
        for word, number in side.most_common()
    ]


def _word(value: Any) -> str:
    return "unknown" if value is None else str(value)
