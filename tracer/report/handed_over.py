"""In rows of an override: how many of its calls it left to stock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl

_NAMES = ("override", "op", "key")


def with_handed_over(rows: pl.DataFrame, certificate: Mapping[str, Any]) -> pl.DataFrame:
    """`rows` (override, op, key): `mine` becomes `mine (handed 2 of its 5 calls over to stock)`.

    A trace counts such calls and does not mark them, so rows of one override say the same.
    """
    ran, left = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for one in certificate.get("overrides", ()):
        place = one["name"], one["operator"], one["key"]
        ran[place] += one["ran"]
        left[place] += sum(one["handed_over"].values())
    said = {place: _said(place[0], ran[place], calls) for place, calls in left.items() if calls}
    if not said:
        return rows
    texts = [said.get(place, place[0]) for place in rows.select(pl.col(_NAMES).cast(pl.String)).iter_rows()]
    return rows.with_columns(override=pl.Series(texts, dtype=pl.String))


def _said(name: str, ran: int, left: int) -> str:
    calls = f"{left:,} of its {ran + left:,} calls" if ran else f"all its calls ({left:,})"
    return f"{name} (handed {calls} over to stock)"
