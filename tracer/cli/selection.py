"""Which hops the user asked for, by op, key, source line, thread and step."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NoReturn

from tracer.analysis.patterns import fits_op
from tracer.base.numerals import number_of
from tracer.base.visible import LONGEST, visible
from tracer.cli.common import USAGE, fail

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from tracer.trace import Trace


_FEW = 5
_NEAR = 3
_LINES = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_MORE = {option: f": tracer top --by {option}" for option in ("op", "key", "source", "module")}


@dataclass(frozen=True)
class Selection:
    """The values of --op, --key, --source, --thread, --step, --module and --min-time; None: any.

    `exclude`: ops that are left out, and all hops inside them.
    """

    op: str | None = None
    key: str | None = None
    source: str | None = None
    thread: str | None = None
    step: int | None = None
    module: str | None = None
    min_ns: int | None = None
    exclude: tuple[str, ...] = ()

    def matching(self, trace: Trace, hops: pl.DataFrame, *, marks: bool = False) -> np.ndarray:
        """True for the hops that meet every condition; ends the command if no hop does.

        `marks`: also torch's own ops, by which record_function begins and ends a range, without --op.
        """
        import polars as pl

        from tracer.analysis.phases import RANGE_OPS

        chosen = pl.col("id").is_not_null()
        if self.step is not None:
            chosen &= _in_step(trace, hops, self.step)
        if self.op is not None:
            chosen &= _among(hops, "op", self.op, fits_op)
        if self.key is not None:
            chosen &= _among(hops, "key", self.key, fnmatchcase)
        if self.source is not None:
            chosen &= _at_source(hops, self.source)
        if self.thread is not None:
            chosen &= _in_thread(trace, hops, self.thread)
        if self.module is not None:
            chosen &= _among(hops, "module", self.module, fits_module)
        if self.min_ns is not None:
            chosen &= pl.col("end_ns") - pl.col("start_ns") >= self.min_ns
        if self.exclude:
            chosen &= ~pl.col("op").is_in(_excluded(hops, self.exclude)).fill_null(False)
        mask = hops.select(chosen.fill_null(False)).to_series().to_numpy()
        if self.op is None and not marks:
            own = hops.select(pl.col("op").cast(pl.String).str.starts_with(RANGE_OPS).fill_null(False))
            without = mask & ~own.to_series().to_numpy()
            mask = without if without.any() else mask  # a step of compiled code may have no other ops
        if len(hops) and not mask.any():
            _end("no hop meets all of these conditions; remove one")
        return mask

    def excluded(self, hops: pl.DataFrame) -> np.ndarray:
        """True for the hops of ops that are left out."""
        import polars as pl

        wanted = pl.col("op").is_in(_excluded(hops, self.exclude)).fill_null(False)
        return hops.select(wanted).to_series().to_numpy().copy()

    def fitting(self, hops: pl.DataFrame, threads: pl.DataFrame) -> np.ndarray:
        """True for the hops that meet every condition. During a recording there may be none yet."""
        import polars as pl

        chosen = pl.col("id").is_not_null()
        if self.op is not None:
            chosen &= pl.col("op").is_in(_found(hops, "op", lambda op: fits_op(op, self.op or "")))
        if self.key is not None:
            chosen &= pl.col("key").is_in(_found(hops, "key", lambda key: fnmatchcase(key, self.key or "")))
        if self.source is not None:
            lines = _found(hops, "source", lambda line: fits_source(line, self.source or ""))
            chosen &= pl.col("source").is_in(lines)
        if self.thread is not None:
            chosen &= pl.col("thread").is_in(_numbers(threads, self.thread))
        return hops.select(chosen.fill_null(False)).to_series().to_numpy().copy()


def fits_source(source: str, wanted: str) -> bool:
    """`train.py`, `src/train.py`, `train.py:41`, `train.py:40-45`, `train.py:7,41` fit `/src/train.py:41`."""
    file, _, text = source.rpartition(":")
    name, colon, lines = wanted.rpartition(":")
    if colon and _LINES.fullmatch(lines) and (number := number_of(text)) is not None:
        return _is_file(file, name) and any(_holds(part, number) for part in lines.split(","))
    return _is_file(source, wanted) or _is_file(file, wanted)


def _is_file(file: str, wanted: str) -> bool:
    return file == wanted or file.endswith(f"/{wanted}")


def _holds(lines: str, number: int) -> bool:
    """Whether `41` or `40-45` has a line."""
    first, _, last = lines.partition("-")
    return int(first) <= number <= int(last or first)


def fits_module(module: str, wanted: str) -> bool:
    """`encoder` and `enc*` fit `encoder` and what is in it, `encoder.gru`."""
    parts = module.split(".")
    return any(fnmatchcase(".".join(parts[: count + 1]), wanted) for count in range(len(parts)))


def nanoseconds(text: str) -> int:
    """Of `250us`, `1.5ms`, `2 s`, `800ns`. Another text ends the command."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s)?", text.strip())
    if match is None or match[2] is None:
        example = "100us or 1.5ms" if match is None else f"{match[1]}us or {match[1]}ms"
        fail(f"--min-time {text}: give a time with its unit, e.g. {example}", USAGE)
    return round(float(match[1]) * _UNITS[match[2]])


def _excluded(hops: pl.DataFrame, patterns: Iterable[str]) -> list[str]:
    """The ops that are left out; ends the command if a pattern fits none."""
    found: list[str] = []
    for pattern in patterns:
        fitting = [op for op in _values(hops, "op") if fits_op(op, pattern)]
        if not fitting:
            _nothing("op", pattern, _frequent(hops, "op"))
        found += fitting
    return found


def _in_step(trace: Trace, rows: pl.DataFrame, step: int) -> pl.Expr:
    """Hops have their step; calls outside hops (analysis.links) have it in their own tables."""
    import polars as pl

    steps = [pl.col("step")]
    for column, table in (("api_call", trace.api_calls), ("library_call", trace.library_calls)):
        if column in rows.columns:
            steps.append(pl.lit(table["step"].gather(rows[column])))
    return pl.coalesce(steps) == step


def _at_source(hops: pl.DataFrame, source: str) -> pl.Expr:
    import polars as pl

    lines = [_found(hops, name, lambda line: fits_source(line, source)) for name in ("source", "called_from")]
    if not any(lines):
        _no_source(source, _frequent(hops, "source"))
    return pl.col("source").is_in(lines[0]) | pl.col("called_from").is_in(lines[1])


def _among(hops: pl.DataFrame, column: str, pattern: str, matches: Callable[[str, str], bool]) -> pl.Expr:
    import polars as pl

    found = _found(hops, column, lambda value: matches(value, pattern))
    if not found:
        _nothing(column, pattern, _frequent(hops, column))
    return pl.col(column).is_in(found)


def _in_thread(trace: Trace, hops: pl.DataFrame, thread: str) -> pl.Expr:
    import polars as pl

    numbers = _numbers(trace.threads, thread)
    known = set(hops["thread"].unique().to_list())
    if not known & set(numbers):
        _nothing("thread", thread, map(str, sorted(known)))
    return pl.col("thread").is_in(numbers)


def _numbers(threads: pl.DataFrame, thread: str) -> list[int]:
    """The OS thread ids for a thread's number or name."""
    import polars as pl

    numbers: list[int] = threads.filter(pl.col("name").cast(pl.String) == thread)["thread"].to_list()
    number = number_of(thread)
    return numbers if number is None else [*numbers, number]


def _values(hops: pl.DataFrame, column: str) -> list[str]:
    import polars as pl

    return hops[column].unique().drop_nulls().cast(pl.String).sort().to_list()


def _frequent(hops: pl.DataFrame, column: str) -> list[str]:
    """The values of a column, that of most hops first."""
    import polars as pl

    counted = (
        hops[column]
        .drop_nulls()
        .cast(pl.String)
        .value_counts()
        .sort("count", column, descending=[True, False])
    )
    return counted[column].to_list()


def _found(hops: pl.DataFrame, column: str, matches: Callable[[str], bool]) -> list[str]:
    return [value for value in _values(hops, column) if matches(value)]


def _no_source(wanted: str, lines: list[str]) -> NoReturn:
    """No op has this line: names the nearest lines of its file, or the files that there are."""
    name, _, number = wanted.partition(":")
    places = [line.rpartition(":") for line in lines]
    numbers = (number_of(at) for file, _, at in places if _is_file(file, name))
    there = {number for number in numbers if number is not None}
    if first := re.match(r"\d{1,9}", number):
        near = sorted(there, key=lambda at: abs(at - int(first[0])))[:_NEAR]
        if near:
            _end(f"no op is at {wanted}; the nearest lines of {name}: {', '.join(map(str, sorted(near)))}")
    _nothing("source", wanted, dict.fromkeys(os.path.basename(file) for file, _, _ in places))


def _nothing(option: str, wanted: str, values: Iterable[str]) -> NoReturn:
    values = list(values)
    if near := get_close_matches(wanted, values, _NEAR, cutoff=0.5):
        hint = f"; did you mean {_listed(near)}?"
    elif values:
        more = f" ({len(values):,} in all{_MORE.get(option, '')})" if len(values) > _FEW else ""
        hint = f"; this trace has {_listed(values[:_FEW])}{more}"
    else:
        hint = ""
    _end(f"no {option} matches {wanted!r}{hint}")


def _listed(values: Iterable[str]) -> str:
    return ", ".join(visible(value, LONGEST) for value in values)


def _end(message: str) -> NoReturn:
    """Nothing matches: exit status 1, as grep has it."""
    fail(message)
