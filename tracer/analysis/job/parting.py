"""Where the dispatch path of a rank leaves that of the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracer.analysis.job.part import RankPart


@dataclass(frozen=True)
class Parting:
    """The first hop of a rank that differs from the first rank's, on the thread that calls collectives.

    `number` is its place among the hops of this thread, from 0. `here` and `first` are `op [key] kernel` of
    both; None: this rank has no more hops. `line` and `first_line` called them.
    """

    rank: int
    number: int
    here: str | None
    first: str | None
    line: str | None
    first_line: str | None


def partings(parts: Sequence[RankPart]) -> tuple[Parting, ...]:
    """One for each rank whose hops are not those of the first rank, in their order."""
    paths = [_path(part) for part in parts]
    found = []
    for part, path in zip(parts[1:], paths[1:], strict=True):
        both = min(len(path), len(paths[0]))
        unlike = (path["hop"].head(both) != paths[0]["hop"].head(both)).arg_true()
        number = int(unlike[0]) if len(unlike) else both
        if number < max(len(path), len(paths[0])):
            here, line = _at(path, number)
            first, first_line = _at(paths[0], number)
            found.append(Parting(part.rank, number, here, first, line, first_line))
    return tuple(found)


def _path(part: RankPart) -> pl.DataFrame:
    hops = part.trace.hops.filter(pl.col("process") == part.process)
    main = hops["thread"].head(1)
    return hops.filter(pl.col("thread").is_in(main.implode())).select(
        hop=pl.format(
            "{} [{}] {}",
            pl.col("op").cast(pl.String).fill_null("?"),
            pl.col("key").cast(pl.String).fill_null("?"),
            pl.col("kernel").cast(pl.String).fill_null("?"),
        ),
        line=pl.coalesce("called_from", "source").cast(pl.String),
    )


def _at(path: pl.DataFrame, number: int) -> tuple[str | None, str | None]:
    return path.row(number) if number < len(path) else (None, None)
