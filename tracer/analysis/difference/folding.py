"""Which changes a likely cause explains, so that they are one change and not many."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tracer.analysis.chain import Chain, Link, align
from tracer.analysis.difference.cause import Cause
from tracer.analysis.difference.change import EDITED, OTHER_CHAIN, Change
from tracer.analysis.difference.kernel_change import place_of


def cause_of(change: Change, causes: Iterable[Cause]) -> Cause | None:
    """The first cause that explains a part of the change, if causes explain all of it.

    Changes that begin or vanish are not explained: they are what was changed. Ops of an edited line that
    are as they were have the edit as their cause.
    """
    if len(change.what) == 1 and change.what[0].startswith(EDITED):
        return Cause("the edited line", edit=change.what[0])
    causes = list(causes)
    found = []
    for what in change.what:
        by = _of_chain(change, causes) if what == OTHER_CHAIN else _of_inputs(what, causes)
        if not by:
            return None
        found += by
    return next((cause for cause in causes if cause in found), None)


def _of_inputs(what: str, causes: Sequence[Cause]) -> list[Cause]:
    return [cause for cause in causes if cause.inputs and what.startswith(f"{cause.inputs} ")]


def _of_chain(change: Change, causes: Sequence[Cause]) -> list[Cause]:
    """The keys and kernels that account for each line in which the chains differ; none if they do not."""
    if change.chains is None:
        return []
    reasons = [cause for cause in causes if cause.key or cause.kernel]
    one, other = (_reasons(change.chains, side, reasons) for side in (0, 1))
    found = []
    for pair in align(*change.chains):
        if pair.same:
            continue
        before = None if pair.one is None else one[pair.one]
        after = None if pair.other is None else other[pair.other]
        if before is None and after is None and not _moved(change.chains, pair.one, pair.other):
            return []
        found += [cause for cause in (before, after) if cause is not None]
    return found


def _moved(chains: tuple[Chain, Chain], one: int | None, other: int | None) -> bool:
    """Whether a line is on both sides, but for its level: what was around it changed."""
    if one is None or other is None:
        return False
    before, after = chains[0][one], chains[1][other]
    return (place_of(before), before.more) == (place_of(after), after.more)


def _reasons(chains: tuple[Chain, Chain], side: int, causes: Collection[Cause]) -> list[Cause | None]:
    """Of each link of a side the cause that it, or a hop around it, shows.

    A key that both sides have is no reason.
    """
    shown = [[cause for cause in causes if any(_shows(link, cause, n) for link in chains[n])] for n in (0, 1)]
    causes = [cause for cause in shown[side] if cause.kernel or cause not in shown[1 - side]]
    found: list[Cause | None] = []
    open_: list[tuple[int, Cause]] = []
    for link in chains[side]:
        while open_ and open_[-1][0] >= link.level:
            open_.pop()
        own = next((cause for cause in causes if _shows(link, cause, side)), None)
        if own is not None:
            open_.append((link.level, own))
        found.append(own or (open_[-1][1] if open_ else None))
    return found


def _shows(link: Link, cause: Cause, side: int) -> bool:
    if cause.kernel is not None:
        return place_of(link) == cause.kernel.side(side)
    return bool(link.key) and link.key == cause.key
