"""The events of one chunk of hops, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.trace import format as fmt

_WORDS = np.array(fmt.EVENT_WORDS, np.int64)
_CALL_SITES = 3


@dataclass
class EventBlock:
    """Events in the order in which they were written.

    `ticks`, `depth`, `hop` and `enter` have one row for each enter and each exit; `key_set` to
    `call_site` one for each enter; `raised` one for each exit; `kind` to `second` one for each
    other event, where `before` is the number of enters and exits before it and `first` and
    `second` are its words.
    """

    ticks: NDArray[np.int64]
    depth: NDArray[np.uint16]
    hop: NDArray[np.uint32]
    enter: NDArray[np.bool_]
    key_set: NDArray[np.uint32]
    source: NDArray[np.uint32]
    sequence: NDArray[np.uint32]
    signature: NDArray[np.uint32]
    call_site: NDArray[np.uint8]
    raised: NDArray[np.bool_]
    kind: NDArray[np.uint8]
    before: NDArray[np.int64]
    other_ticks: NDArray[np.int64]
    first: NDArray[np.uint64]
    second: NDArray[np.uint64]
    torn: int = 0
    """Events that are not whole."""
    damaged: bool = False
    """Whether one of them is not the last, so that it was not a kill that tore it."""


_PER_EVENT = ("ticks", "depth", "hop", "enter")
_PER_ENTER = ("key_set", "source", "sequence", "signature", "call_site")
_PER_OTHER = ("kind", "other_ticks", "first", "second")


def parse_events(words: NDArray[np.uint64], key_sets: dict[int, int]) -> EventBlock:
    """Finds the events in the payload of a chunk.

    What follows the last event may be zeros or an event that a kill tore. `key_sets` numbers the
    key sets seen and is added to.
    """
    heads = np.flatnonzero(words.view(np.int64) < 0)
    kinds = (words[heads] >> np.uint64(fmt.KIND_SHIFT)).astype(np.int64) & 7
    ends = heads + _WORDS[kinds]
    limits = np.append(heads[1:], len(words))
    whole = (ends > heads) & (ends <= limits)
    whole &= _plausible(words, heads, kinds, whole)
    broken = ~whole
    if broken.any():
        whole &= ~_inside_broken(heads, ends, broken, len(words))
    torn = int((~whole).sum())
    damaged = False
    if len(heads):
        # Words between events that belong to none, and events that break off before the next.
        damaged = bool(heads[0] != 0 or (~whole[:-1]).any() or (ends[:-1] != heads[1:]).any())
    rest = len(words) if torn and not whole[-1] else int(ends[-1]) if len(heads) else 0
    if words[rest:].any():
        torn += 1

    heads, kinds = heads[whole], kinds[whole]
    hop_events = kinds <= fmt.EXIT
    at, enter = heads[hop_events], kinds[hop_events] == fmt.ENTER
    enters, exits = at[enter], at[~enter]
    named = words[enters + 2]
    sequenced = words[enters + 3]
    placed = words[enters + 4]
    left = words[exits + 1]
    hop = np.empty(len(at), np.uint32)
    hop[enter] = named & np.uint64(fmt.LOW_32)
    hop[~enter] = left & np.uint64(fmt.LOW_32)
    depth = np.empty(len(at), np.uint16)
    depth[enter] = placed & np.uint64(fmt.MAX_DEPTH)
    depth[~enter] = (left >> np.uint64(32)) & np.uint64(fmt.MAX_DEPTH)

    others = heads[~hop_events]
    last_word = max(len(words) - 1, 0)
    empty = len(words) == 0
    return EventBlock(
        ticks=_ticks(words, at),
        depth=depth,
        hop=hop,
        enter=enter,
        key_set=_numbered(words[enters + 1], key_sets),
        source=(named >> np.uint64(32)).astype(np.uint32),
        sequence=(sequenced & np.uint64(fmt.LOW_32)).astype(np.uint32),
        signature=(sequenced >> np.uint64(32)).astype(np.uint32),
        call_site=(placed >> np.uint64(fmt.CALL_SITE_SHIFT)).astype(np.uint8) & 3,
        raised=(left >> np.uint64(fmt.EXIT_RAISED_BIT)).astype(np.bool_),
        kind=kinds[~hop_events].astype(np.uint8),
        before=np.cumsum(hop_events)[~hop_events],
        other_ticks=_ticks(words, others),
        first=words[:0] if empty else words[np.minimum(others + 1, last_word)],
        second=words[:0] if empty else words[np.minimum(others + 2, last_word)],
        torn=torn,
        damaged=damaged,
    )


def join_blocks(blocks: list[EventBlock]) -> EventBlock:
    """The events of several chunks of a lane, as one block."""
    if len(blocks) == 1:
        return blocks[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(block, name) for block in blocks])
        for name in (*_PER_EVENT, *_PER_ENTER, "raised", *_PER_OTHER)
    }
    offsets = np.cumsum([0] + [len(block.ticks) for block in blocks[:-1]])
    before = [block.before + offset for block, offset in zip(blocks, offsets, strict=True)]
    return EventBlock(**columns, before=np.concatenate(before))


def _ticks(words: NDArray[np.uint64], at: NDArray[np.int64]) -> NDArray[np.int64]:
    return (words[at] & np.uint64(fmt.TICKS_MASK)).astype(np.int64)


def _plausible(
    words: NDArray[np.uint64],
    heads: NDArray[np.int64],
    kinds: NDArray[np.int64],
    whole: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """False for whole events with bits that the writer never writes."""
    good = np.ones(len(heads), np.bool_)
    exits = np.flatnonzero(whole & (kinds == fmt.EXIT))
    good[exits] = words[heads[exits] + 1] >> np.uint64(fmt.EXIT_RAISED_BIT + 1) == 0
    enters = np.flatnonzero(whole & (kinds == fmt.ENTER))
    placed = words[heads[enters] + 4]
    sites = (placed >> np.uint64(fmt.CALL_SITE_SHIFT)) & np.uint64(3)
    # An exit that damage made an enter, with the zeros behind it for a body, has no return address.
    good[enters] = (sites < _CALL_SITES) & (placed >> np.uint64(fmt.RETURN_ADDRESS_SHIFT) != 0)
    return good


def _inside_broken(
    heads: NDArray[np.int64], ends: NDArray[np.int64], broken: NDArray[np.bool_], size: int
) -> NDArray[np.bool_]:
    """Marks heads within an event that they break and that ends where the next one begins.

    Such a head is a damaged word of that event: what it announces never happened.
    """
    boundary = np.zeros(size + max(fmt.EVENT_WORDS) + 1, np.bool_)
    boundary[heads] = True
    boundary[size] = True
    cut = broken & boundary[ends] & (ends > heads)
    covered = np.zeros(len(boundary) + 1, np.int64)
    np.add.at(covered, heads[cut] + 1, 1)
    np.add.at(covered, ends[cut], -1)
    return np.cumsum(covered)[heads] > 0


def _numbered(key_sets: NDArray[np.uint64], numbers: dict[int, int]) -> NDArray[np.uint32]:
    distinct, inverse = np.unique(key_sets, return_inverse=True)
    codes = [numbers.setdefault(key_set, len(numbers)) for key_set in distinct.tolist()]
    return np.array(codes, np.uint32)[inverse.reshape(-1)]
