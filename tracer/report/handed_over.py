"""In rows of an override: how many of its calls it left to stock, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import polars as pl

_NAMES = ("override", "op", "key")
_MOST_REASONS, _REASON = 2, 30


def with_handed_over(rows: pl.DataFrame, certificate: Mapping[str, Any]) -> pl.DataFrame:
    """`rows` (override, op, key, perhaps handed_over): `mine` becomes `mine (left to stock: not float32)`.

    Of an override whose calls are counted and not marked, as those in C++ are, rows say the same:
    `mine (handed 2 of its 5 calls over to stock: not float32)`. Rows of several calls do so, too: they have
    no column `handed_over`.
    """
    ran, why = Counter[tuple[str, ...]](), defaultdict[tuple[str, ...], Counter[str]](Counter)
    marked = set()
    for one in certificate.get("overrides", ()):
        place = one["name"], one["operator"], one["key"]
        ran[place] += one["ran"]
        why[place].update(one["handed_over"])
        if one["handed_over_hops"] and "handed_over" in rows.columns:
            marked.add(place)
    said = {place: _said(place[0], ran[place], reasons) for place, reasons in why.items() if reasons.total()}
    if not said and not marked:
        return rows
    reason = pl.col("handed_over") if "handed_over" in rows.columns else pl.lit(None, pl.String)
    texts = []
    for *names, left in rows.select(pl.col(_NAMES).cast(pl.String), left=reason.cast(pl.String)).iter_rows():
        place = tuple(names)
        text = said.get(place, place[0])
        if place in marked:
            text = place[0] if left is None else f"{place[0]} (left to stock: {left})"
        texts.append(text)
    return rows.with_columns(override=pl.Series(texts, dtype=pl.String))


def _said(name: str, ran: int, reasons: Counter[str]) -> str:
    left = reasons.total()
    calls = f"{left:,} of its {ran + left:,} calls" if ran else f"all its calls ({left:,})"
    named = [
        reason if len(reason) <= _REASON else f"{reason[: _REASON - 3]}..."
        for reason, _ in reasons.most_common(_MOST_REASONS)
    ]
    more = ", ..." if len(reasons) > _MOST_REASONS else ""
    return f"{name} (handed {calls} over to stock: {', '.join(named)}{more})"
