"""The dispatch keys of hops and of threads."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from tracer.trace.bytes.definitions import ThreadKeys
from tracer.trace.names.keys import KeyNames
from tracer.trace.tables.schema import DISPATCH_KEYS, KEY_SETS, THREAD_KEYS
from tracer.trace.tables.series import in_order, lists


def key_sets_table(key_sets: Iterable[int], names: KeyNames) -> pl.DataFrame:
    """A row for each distinct key set that a hop had."""
    keys = lists(map(names.names, key_sets)).fill_null([])
    return in_order(pl.DataFrame({"id": range(len(keys)), "keys": keys}), KEY_SETS)


def dispatch_keys_table(names: KeyNames) -> pl.DataFrame:
    """Every dispatch key of the torch that was recorded, lowest priority first."""
    rows = [(number, key, functionality) for number, (key, functionality) in enumerate(names.by_priority())]
    return pl.DataFrame(rows, DISPATCH_KEYS, orient="row")


def thread_keys_table(known: Iterable[tuple[int, ThreadKeys]], names: dict[int, KeyNames]) -> pl.DataFrame:
    """A row for each distinct state of a thread: what it adds to the keys of the arguments, and hides.

    A thread to which nobody said anything includes `included_by_default` and excludes `excluded_by_default`.
    """
    nothing = KeyNames.nothing()
    rows = [(process, names.get(process, nothing), keys) for process, keys in known]
    columns = {
        "included": (own.names(keys.included) for _, own, keys in rows),
        "excluded": (own.names(keys.excluded) for _, own, keys in rows),
        "included_by_default": (own.names(own.included or 0) for _, own, _ in rows),
        "excluded_by_default": (own.names(own.excluded or 0) for _, own, _ in rows),
        "modes": (keys.modes for _, _, keys in rows),
    }
    numbers = {"id": range(len(rows)), "process": [process for process, _, _ in rows]}
    named = {name: lists(each).fill_null([]) for name, each in columns.items()}
    return in_order(pl.DataFrame({**numbers, **named}), THREAD_KEYS)
