"""Lines of a flat table of hops: figures first, what they are of last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from tracer.analysis.source_lines import NO_LINE, NO_SOURCES, SourceLines
from tracer.report.text import duration
from tracer.report.tree import Line, fit, plain

_TITLES = {
    "hop": "op [key] kernel function",
    "op": "op",
    "key": "dispatch key",
    "source": "Python line",
    "module": "module",
    "kernel": "kernel function",
    "range": "range",
}
_FIGURES = {
    "kernel": ["total", "self", "of", "median", "GPU", "hops"],
    "module": ["total", "forward", "backward", "self", "of", "GPU", "calls", "hops"],
    "range": ["wall", "total", "self", "of", "GPU", "calls", "hops"],
}
_SUMS = {"self": "self_ns", "total": "total_ns", "calls": "calls", "hops": "hops"}
_OF_COLUMNS = {"forward": "forward_ns", "backward": "backward_ns", "wall": "wall_ns", "GPU": "gpu_ns"}
_LEAST = 16
"""Characters of a kernel function or a text that is shortened"""
_UNKNOWN = {
    "op": "an unknown op",
    "source": NO_LINE,
    "module": "no module",
    "kernel": "no name",
    "range": "no range",
}


def flat_lines(
    table: pl.DataFrame,
    by: str,
    *,
    sort: str = "self",
    whole_ns: int | None = None,
    limit: int = 0,
    width: int | None = None,
    sources: SourceLines = NO_SOURCES,
) -> Iterator[Line]:
    """The titles and a line for each of the first `limit` rows (0: all) of a table of analysis.flat.

    `of total` is the share of what the rows are sorted by, of all rows, those that are left out too; of
    totals, which count a hop in several rows, that of `whole_ns` (flat.whole_ns). Sorted by anything without
    a sum it is `of self`. By kernel function there
    are no calls: it ran as often as it has hops, and most of them are redispatches, not op calls. By module
    and by range, the total is of all that is in a row, so no median is shown. By source, the text of the line
    follows. With a width the kernel function and the text are shortened; a name that does not fit beside its
    figures is on the line below them.
    """
    of = sort if sort in _SUMS and (sort != "total" or whole_ns) else "self"
    whole = whole_ns if of == "total" and whole_ns else int(table[_SUMS[of]].sum())
    shown = table.head(limit) if limit else table
    titles = _FIGURES.get(by, ["total", "self", "of", "median", "GPU", "calls", "hops"])
    titles = [title for title in titles if title not in _OF_COLUMNS or _OF_COLUMNS[title] in table.columns]
    shares = [row[_SUMS[of]] / whole if whole else 0.0 for row in shown.iter_rows(named=True)]
    rows = [
        _figures(row, share, titles) for row, share in zip(shown.iter_rows(named=True), shares, strict=True)
    ]
    named = {"of": f"of {of}"} | ({"calls": "op calls"} if by in ("module", "range") else {})
    titles = [named.get(title, title) for title in titles]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    yield from _placed(("cost", _aligned(titles, widths)), [("cost", _TITLES[by])], width)
    for row, figures in zip(shown.iter_rows(named=True), rows, strict=True):
        yield from _placed(("time", _aligned(figures, widths)), _name(row, by, sources), width)


def _placed(figures: tuple[str, str], name: Line, width: int | None) -> Iterator[Line]:
    """The name after its figures, or on a line below them if it does not fit there."""
    line = [figures, *name]
    last = len(name[-1][1])
    least = len(plain(line)) - (max(last - _LEAST, 0) if len(name) > 1 else 0)
    if width is None or least <= width:
        yield fit(line, width)
        return
    yield fit([(figures[0], figures[1].rstrip())], width)
    yield fit([("indent", "    "), *name], width)


def _figures(row: dict[str, Any], share: float, titles: list[str]) -> list[str]:
    figures = {
        "calls": f"{row['calls']:,}",
        "hops": f"{row['hops']:,}",
        "total": duration(row["total_ns"]),
        "self": duration(row["self_ns"]),
        "of": f"{100 * share:.1f} %",
        "median": "" if row["median_ns"] is None else duration(row["median_ns"]),
        **{title: duration(row[name]) if row.get(name) else "" for title, name in _OF_COLUMNS.items()},
    }
    return [figures[title] for title in titles]


def _aligned(cells: list[str], widths: list[int]) -> str:
    return "".join(f"{cell:>{width}}  " for cell, width in zip(cells, widths, strict=True))


def _name(row: dict[str, Any], by: str, sources: SourceLines) -> Line:
    if by == "hop":
        kernel = f" {row['kernel']}" if row["kernel"] else ""
        return [("op", row["op"] or _UNKNOWN["op"]), ("key", f" [{row['key'] or '?'}]"), ("kernel", kernel)]
    value = row[by] or _UNKNOWN.get(by, "?")
    if by == "source" and row[by]:
        text = sources.text(value)
        return [("group", sources.name(value)), ("text", f"  {text}" if text else "")]
    return [({"source": "group"}.get(by, by), value)]
