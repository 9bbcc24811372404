"""The dispatch keys of hops and of threads."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from tracer.trace.bytes.definitions import ThreadKeys
from tracer.trace.names.keys import KeyNames
from tracer.trace.tables.schema import DISPATCH_KEYS, KEY_SETS, THREAD_KEYS


def key_sets_table(key_sets: Iterable[int], names: KeyNames) -> pl.DataFrame:
    """A row for each distinct key set that a hop had."""
    rows = [(number, names.names(key_set)) for number, key_set in enumerate(key_sets)]
    return pl.DataFrame(rows, KEY_SETS, orient="row")


def dispatch_keys_table(names: KeyNames) -> pl.DataFrame:
    """Every dispatch key of the torch that was recorded, lowest priority first."""
    rows = [(number, key, functionality) for number, (key, functionality) in enumerate(names.by_priority())]
    return pl.DataFrame(rows, DISPATCH_KEYS, orient="row")


def thread_keys_table(known: Iterable[tuple[int, ThreadKeys]], names: dict[int, KeyNames]) -> pl.DataFrame:
    """A row for each distinct state of a thread: what it adds to the keys of the arguments, and hides.

    A thread to which nobody said anything includes `included_by_default` and excludes `excluded_by_default`.
    """
    nothing = KeyNames.nothing()
    rows = []
    for number, (process, keys) in enumerate(known):
        own = names.get(process, nothing)
        rows.append(
            (
                number,
                process,
                own.names(keys.included),
                own.names(keys.excluded),
                own.names(own.included or 0),
                own.names(own.excluded or 0),
                list(keys.modes),
            )
        )
    return pl.DataFrame(rows, THREAD_KEYS, orient="row")
