"""The events of one chunk of hops, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt

_WORDS = np.array(fmt.EVENT_WORDS, np.int64)
_OF_CALL = (fmt.API_ENTER, fmt.API_EXIT, fmt.LIBRARY_ENTER, fmt.LIBRARY_EXIT, fmt.API_QUERY)
_OF_HOPS = (fmt.MEMORY, fmt.MEMORY_LINE, fmt.VALUE, fmt.TENSOR, fmt.RESULTS)
_IS_CALL = np.isin(np.arange(len(_WORDS)), _OF_CALL)
_LONGEST = max(fmt.EVENT_WORDS) + fmt.CALL_WORDS_MASK
_ENTER = np.uint64(1 << 63 - fmt.EVENT_KIND_SHIFT | fmt.ENTER)
_FIRST_MARK = np.uint64(fmt.EVENT_BIT | (fmt.EXIT + 1) << fmt.EVENT_KIND_SHIFT)
"""As numbers, the first words of all events but enters and exits of hops are this or larger."""


@dataclass
class EventBlock:
    """Events in the order in which they were written; a query becomes its call and its return, and the
    begins and ends of ranges without numbers become those of ranges with the number 0.

    `ticks`, `depth`, `hop` and `enter` have one row for each enter and each exit; `key_set` to
    `call_site` one for each enter; `raised` and `made` (autograd nodes) one for each exit; `kind` to
    `second` one for each other event, where `before` is the number of enters and exits before it and
    `first` and `second` are its words. Of those, the enters and exits of API and library calls have a row in
    `call` (their row among the others) and `third`, and in `words_before` (words before its own in
    `arguments`, which has the argument words of all calls).
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
    made: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    before: NDArray[np.int64]
    other_ticks: NDArray[np.int64]
    first: NDArray[np.uint64]
    second: NDArray[np.uint64]
    call: NDArray[np.int64]
    third: NDArray[np.uint64]
    words_before: NDArray[np.int64]
    arguments: NDArray[np.uint64]
    torn: int = 0
    """Events that are not whole."""
    damaged: bool = False
    """Whether one of them is not the last, so that it was not a kill that tore it."""


_PER_EVENT = ("ticks", "depth", "hop", "enter")
_PER_ENTER = ("key_set", "source", "sequence", "signature", "call_site")
_PER_EXIT = ("raised", "made")
_PER_OTHER = ("kind", "other_ticks", "first", "second")
_OF_CALLS = ("third", "arguments")


def parse_events(words: NDArray[np.uint64], key_sets: dict[int, int]) -> EventBlock:
    """Finds the events in the payload of a chunk.

    What follows the last event may be zeros or an event that a kill tore. `key_sets` numbers the
    key sets seen and is added to.
    """
    heads = np.flatnonzero(words.view(np.int64) < 0)
    kinds, brief = _kinds(words[heads])
    ends = heads + _sizes(words, heads, kinds, brief)
    limits = np.append(heads[1:], len(words))
    whole = (ends > heads) & (ends <= limits)
    whole &= _plausible(words, heads, kinds, brief, whole)
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

    heads, kinds, brief = heads[whole], kinds[whole], brief[whole]
    if (kinds == fmt.API_QUERY).any():
        words, heads, kinds, brief = _split_queries(words, heads, kinds, brief)
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
    depth[~enter] = (left >> np.uint64(fmt.EXIT_DEPTH_SHIFT)) & np.uint64(fmt.MAX_DEPTH)

    others = heads[~hop_events]
    calls = np.flatnonzero(_IS_CALL[kinds[~hop_events]])
    call_heads, call_kinds, call_brief = others[calls], kinds[~hop_events][calls], brief[~hop_events][calls]
    entered = (call_kinds == fmt.API_ENTER) | (call_kinds == fmt.LIBRARY_ENTER)
    words_before, arguments = _arguments(words, call_heads, call_kinds, call_brief)
    second = _words_at(words, others + 2)
    second[calls[call_brief & ~entered]] = 0
    third = _words_at(words, call_heads + 3)
    third[call_brief] = 0
    first, kind = _words_at(words, others + 1), kinds[~hop_events].astype(np.uint8)
    second[kind == fmt.RANGE_ENTER] = first[kind == fmt.RANGE_EXIT] = 0
    kind[kind == fmt.RANGE_ENTER], kind[kind == fmt.RANGE_EXIT] = fmt.RANGE_BEGIN, fmt.RANGE_END
    return EventBlock(
        ticks=_ticks(words, at),
        depth=depth,
        hop=hop,
        enter=enter,
        key_set=_numbered(words[enters + 1], key_sets),
        source=(named >> np.uint64(32)).astype(np.uint32),
        sequence=(sequenced & np.uint64(fmt.LOW_32)).astype(np.uint32),
        signature=(sequenced >> np.uint64(32)).astype(np.uint32),
        call_site=(placed >> np.uint64(fmt.CALL_SITE_SHIFT)).astype(np.uint8) & fmt.CALL_SITE_MASK,
        raised=(left >> np.uint64(fmt.EXIT_RAISED_SHIFT) & np.uint64(1)).astype(np.bool_),
        made=(left >> np.uint64(fmt.EXIT_NODES_SHIFT)).astype(np.uint32),
        kind=kind,
        before=np.cumsum(hop_events, dtype=np.int64)[~hop_events],
        other_ticks=_ticks(words, others),
        first=first,
        second=second,
        call=calls,
        third=third,
        words_before=words_before,
        arguments=arguments,
        torn=torn,
        damaged=damaged,
    )


def parse_marks(words: NDArray[np.uint64]) -> EventBlock:
    """The events of a chunk that belong to no hop, no call and no block of memory: threads,
    autograd nodes, ranges, steps and modules.

    Several times as fast as parse_events, for chunks that are needed for nothing else.
    """
    heads = np.flatnonzero(words >= _FIRST_MARK)
    kinds, _ = _kinds(words[heads])
    marks = ~_IS_CALL[kinds] & ~np.isin(kinds, _OF_HOPS)
    heads, sizes = heads[marks], _WORDS[kinds[marks]]
    whole = heads + sizes <= len(words)
    heads, sizes = heads[whole], sizes[whole]
    before = np.cumsum(sizes) - sizes
    nth = np.arange(int(sizes.sum())) - np.repeat(before, sizes)
    return parse_events(words[np.repeat(heads, sizes) + nth], {})


def whole_events(words: NDArray[np.uint64]) -> int:
    """Words up to the end of the last event before the first gap: what a writer has finished so far."""
    heads = np.flatnonzero(words.view(np.int64) < 0)
    if not len(heads) or heads[0] != 0:
        return 0
    kinds, brief = _kinds(words[heads])
    ends = heads + _sizes(words, heads, kinds, brief)
    gap = np.append(ends[:-1] != heads[1:], True)
    last = int(np.argmax(gap))
    if ends[last] <= len(words):
        return int(ends[last])
    return int(heads[last])


def hashes(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Where hashes of results are, also of events that are not whole."""
    heads = np.flatnonzero(words.view(np.int64) < 0)
    kinds, _ = _kinds(words[heads])
    at = heads[kinds == fmt.VALUE] + 1
    return at[at < len(words)]


def outermost_enters(words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where hops are entered while no other is open, and when (ticks)."""
    enters = np.flatnonzero(words >> np.uint64(fmt.EVENT_KIND_SHIFT) == _ENTER)
    enters = enters[enters + fmt.EVENT_WORDS[fmt.ENTER] <= len(words)]
    enters = enters[words[enters + 4] & np.uint64(fmt.MAX_DEPTH) == 0]
    return enters, _ticks(words, enters)


def join_blocks(blocks: list[EventBlock]) -> EventBlock:
    """The events of several chunks of a lane, as one block. Empties them, column by column."""
    if len(blocks) == 1:
        return blocks[0]
    columns: dict[str, Any] = {}
    for name, counted in (("before", "ticks"), ("call", "kind"), ("words_before", "arguments")):
        offsets = np.cumsum([0] + [len(getattr(block, counted)) for block in blocks[:-1]])
        parts = [getattr(block, name) + offset for block, offset in zip(blocks, offsets, strict=True)]
        columns[name] = np.concatenate(parts)
    for name in (*_PER_EVENT, *_PER_ENTER, *_PER_EXIT, *_PER_OTHER, *_OF_CALLS):
        columns[name] = np.concatenate([getattr(block, name) for block in blocks])
        for block in blocks:
            setattr(block, name, None)
    return EventBlock(**columns)


def argument_words(call: NDArray[np.uint64]) -> NDArray[np.int64]:
    """How many argument words the call words announce."""
    return (call >> np.uint64(fmt.CALL_WORDS_SHIFT)).astype(np.int64) & fmt.CALL_WORDS_MASK


def _kinds(first: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The kind of each event by its first word, and whether it is brief."""
    kinds = (first >> np.uint64(fmt.EVENT_KIND_SHIFT)).astype(np.int64) & fmt.EVENT_KIND_MASK
    brief = first & np.uint64(1 << fmt.BRIEF_SHIFT) != 0
    further = brief & ~_IS_CALL[kinds]  # a kind of its own: four bits name no more
    return np.where(further, kinds + fmt.BRIEF_KIND, kinds), brief & ~further


def _sizes(
    words: NDArray[np.uint64],
    heads: NDArray[np.int64],
    kinds: NDArray[np.int64],
    brief: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Words of each event."""
    sizes = _WORDS[kinds]
    calls = np.flatnonzero(_IS_CALL[kinds])
    sizes[calls] += argument_words(_words_at(words, heads[calls] + 1)) - brief[calls]
    return sizes


def _split_queries(
    words: NDArray[np.uint64],
    heads: NDArray[np.int64],
    kinds: NDArray[np.int64],
    brief: NDArray[np.bool_],
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The same events, all of them whole; in place of each query its call and its return, both brief."""
    query = kinds == fmt.API_QUERY
    at, has_third = heads[query], ~brief[query]
    first, call = words[at] & np.uint64(fmt.TICKS_MASK), words[at + 1]
    third = np.where(has_third, _words_at(words, at + 3), np.uint64(0))
    reads = third & np.uint64(fmt.QUERY_READS_BIT) != 0

    old = np.repeat(np.arange(len(heads)), 1 + query)
    is_return = np.append(False, old[1:] == old[:-1])
    is_call = np.append(is_return[1:], False)
    sizes = _sizes(words, heads, kinds, brief)[old]
    sizes[is_call] -= has_third
    sizes[is_return] = 2 + reads
    new = np.cumsum(sizes) - sizes

    # Each word from its old place, the arguments of a query from after its third word.
    nth = np.arange(int(sizes.sum())) - np.repeat(new, sizes)
    behind = np.zeros(len(old), np.int64)
    behind[is_call] = has_third
    split = _words_at(words, np.repeat(heads[old], sizes) + nth + np.repeat(behind, sizes) * (nth >= 3))
    split[new[is_call]] = first | _first_brief_word(fmt.API_ENTER)
    returns = new[is_return]
    ticks = (first + (third & np.uint64(fmt.QUERY_TICKS_MASK))) & np.uint64(fmt.TICKS_MASK)
    split[returns] = ticks | _first_brief_word(fmt.API_EXIT)
    split[returns + 1] = call & ~np.uint64(fmt.CALL_ALL_ARGUMENTS)
    split[returns + 1] |= reads.astype(np.uint64) << np.uint64(fmt.CALL_WORDS_SHIFT)
    read = third >> np.uint64(fmt.QUERY_READ_SHIFT) & np.uint64(fmt.LOW_32)
    split[returns[reads] + 2] = read[reads]

    kinds, brief = kinds[old], brief[old]
    kinds[is_call], kinds[is_return] = fmt.API_ENTER, fmt.API_EXIT
    brief[is_call | is_return] = True
    return split, new, kinds, brief


def _first_brief_word(kind: int) -> np.uint64:
    """The first word of brief events of a kind, without the ticks."""
    return np.uint64(fmt.EVENT_BIT | kind << fmt.EVENT_KIND_SHIFT | 1 << fmt.BRIEF_SHIFT)


def _arguments(
    words: NDArray[np.uint64],
    heads: NDArray[np.int64],
    kinds: NDArray[np.int64],
    brief: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], np.ndarray]:
    """The argument words of calls one after the other, and how many precede those of each call."""
    call = _words_at(words, heads + 1)
    counts = argument_words(call)
    before = np.cumsum(counts, dtype=np.int64) - counts
    nth = np.arange(int(counts.sum())) - np.repeat(before, counts)
    low = words[np.repeat(heads + _WORDS[kinds] - brief, counts) + nth]
    high = np.repeat(call >> np.uint64(fmt.CALL_HIGH_BITS_SHIFT), counts) >> nth.astype(np.uint64)
    return before, low | (high & np.uint64(1)) << np.uint64(63)


def _words_at(words: NDArray[np.uint64], at: NDArray[np.int64]) -> NDArray[np.uint64]:
    """words[at]; some other word where `at` is past the end."""
    return words[np.minimum(at, len(words) - 1)] if len(words) else np.empty(0, np.uint64)


def _ticks(words: NDArray[np.uint64], at: NDArray[np.int64]) -> NDArray[np.int64]:
    return (words[at] & np.uint64(fmt.TICKS_MASK)).astype(np.int64)


def _plausible(
    words: NDArray[np.uint64],
    heads: NDArray[np.int64],
    kinds: NDArray[np.int64],
    brief: NDArray[np.bool_],
    whole: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """False for whole events with bits that the writer never writes."""
    good = np.ones(len(heads), np.bool_)
    enters = np.flatnonzero(whole & (kinds == fmt.ENTER))
    placed = words[heads[enters] + 4]
    # An exit that damage made an enter, with the zeros behind it for a body, has no return address.
    good[enters] = placed >> np.uint64(fmt.RETURN_ADDRESS_SHIFT) != 0
    numbered = np.flatnonzero(whole & np.isin(kinds, (fmt.STEP, fmt.MODULE, fmt.MEMORY_LINE)))
    good[numbered] = words[heads[numbered] + 1] >> np.uint64(32) == 0
    tensors = np.flatnonzero(whole & (kinds == fmt.TENSOR))
    good[tensors] = words[heads[tensors] + 1] & np.uint64(fmt.TENSOR_BIT) != 0
    results = np.flatnonzero(whole & (kinds == fmt.RESULTS))
    good[results] = words[heads[results] + 1] >> np.uint64(32) != 0
    memory = np.flatnonzero(whole & (kinds == fmt.MEMORY))
    block, size = words[heads[memory] + 1], words[heads[memory] + 2]
    freed = block >> np.uint64(fmt.MEMORY_FREED_SHIFT)
    good[memory] = (freed < 2) & ((freed == 1) | (size & np.uint64(fmt.MEMORY_SIZE_MASK) > 0))
    calls = np.flatnonzero(whole & _IS_CALL[kinds])
    good[calls] = _plausible_calls(words, heads[calls], kinds[calls], brief[calls])
    begins = np.flatnonzero(whole & (kinds == fmt.RANGE_BEGIN))
    good[begins] = words[heads[begins] + 2] > 0
    ends = np.flatnonzero(whole & (kinds == fmt.RANGE_END))
    good[ends] = words[heads[ends] + 1] > 0
    return good


def _plausible_calls(
    words: NDArray[np.uint64],
    heads: NDArray[np.int64],
    kinds: NDArray[np.int64],
    brief: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    call, second = words[heads + 1], _words_at(words, heads + 2)
    third = _words_at(words, heads + 3)
    counts = argument_words(call)
    good = counts <= fmt.MAX_CALL_WORDS
    high_bits = call >> np.uint64(fmt.CALL_HIGH_BITS_SHIFT) & np.uint64((1 << fmt.MAX_CALL_WORDS) - 1)
    good &= high_bits >> counts.astype(np.uint64) == 0
    left = (kinds == fmt.API_EXIT) | (kinds == fmt.LIBRARY_EXIT)
    good &= ~left | brief | (second >> np.uint64(fmt.CALL_CAPTURED_SHIFT + 1) == 0)
    query = kinds == fmt.API_QUERY
    read = third & np.uint64(fmt.QUERY_READS_BIT) != 0
    good &= ~query | brief | read | (third >> np.uint64(fmt.QUERY_READ_SHIFT) == 0)
    in_hop = call >> np.uint64(fmt.CALL_DEPTH_SHIFT) & np.uint64(fmt.MAX_DEPTH) != 0
    good &= ~query | in_hop & (second & np.uint64(fmt.LOW_32) != 0)
    not_of_driver = query | (kinds == fmt.LIBRARY_ENTER) | (kinds == fmt.LIBRARY_EXIT)
    good &= ~not_of_driver | (call >> np.uint64(fmt.CALL_DRIVER_SHIFT) & np.uint64(1) == 0)
    good &= (kinds != fmt.LIBRARY_ENTER) | (second & np.uint64(fmt.LOW_32) == 0)
    return good


def _inside_broken(
    heads: NDArray[np.int64], ends: NDArray[np.int64], broken: NDArray[np.bool_], size: int
) -> NDArray[np.bool_]:
    """Marks heads within an event that they break and that ends where the next one begins.

    Such a head is a damaged word of that event: what it announces never happened.
    """
    boundary = np.zeros(size + _LONGEST + 1, np.bool_)
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
