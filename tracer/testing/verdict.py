"""Which rules a recorded block broke, with the chain and the Python line of each breach."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.links import combine
from tracer.analysis.patterns import fits_op
from tracer.analysis.runtime_survey import LAUNCH, SYNCHRONISATION
from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.analysis.trees import Forest
from tracer.base.visible import visible
from tracer.report.text import count
from tracer.trace.tables.schema import HOP_KINDS

if TYPE_CHECKING:
    from tracer.testing.rules import Rules
    from tracer.trace import Trace

_WILD = frozenset("*?[")
_SHOWN = 3  # chains of a breach
_NEAR = 5
_NO_GPU = ("not built", "no driver", "not used")
"""States of CUDA in which the process launched nothing on a GPU"""


def unknown_ops(rules: Rules, trace: Trace) -> Iterator[str]:
    """A text for each op of `never` that neither torch nor the trace has: a typo disables the rule."""
    from tracer.dispatch.operators import Operators, registered_operators

    names = [pattern for pattern in rules.never if not _WILD.intersection(pattern)]
    if not names:
        return
    known = Operators(registered_operators().names | set(trace.hops["op"].cast(pl.String).drop_nulls()))
    for name in names:
        if not any(fits_op(op, name) for op in known.names):
            near = known.near(name)
            hint = f"near: {', '.join(near)}" if near else "give names as in tracer tree, e.g. aten::copy_"
            yield visible(f'never=["{name}"]: torch has no such operator; {hint}')


def broken_rules(rules: Rules, trace: Trace) -> list[str]:
    """A text for each rule that was broken or cannot be checked."""
    chains = _Chains(trace)
    found = [*_never(rules, chains), *_must_run(rules, chains)]
    if rules.max_launches is not None or rules.no_sync:
        unknown = _why_unknown(trace)
        if unknown:
            names = ["max_launches"] * (rules.max_launches is not None) + ["no_sync"] * rules.no_sync
            found.append(f"{' and '.join(names)} cannot be checked: {unknown}")
        else:
            found += [*_launches(rules, trace, chains), *_waits(rules, trace, chains)]
    return found


def _never(rules: Rules, chains: _Chains) -> Iterator[str]:
    for pattern in rules.never:
        rows = chains.fitting(pattern)
        if len(rows):
            calls = f"{count(len(rows), 'call')}"
            yield "\n".join([f'never=["{pattern}"]: it ran, {calls}', *chains.lines(rows)])


def _must_run(rules: Rules, chains: _Chains) -> Iterator[str]:
    for pattern in rules.must_run:
        if len(chains.fitting(pattern)):
            continue
        ops = chains.ops()
        near = get_close_matches(pattern, ops, _NEAR, 0.5) or ops[:_NEAR]
        ran = f"ran: {', '.join(near)}" + ", ..." * (len(ops) > len(near)) if ops else "no op ran"
        yield visible(f'must_run=["{pattern}"]: it did not run; {ran}')


def _launches(rules: Rules, trace: Trace, chains: _Chains) -> Iterator[str]:
    if rules.max_launches is None:
        return
    calls = trace.api_calls.filter(
        _role(LAUNCH) & pl.col("parent").is_null() & ~pl.col("captured").fill_null(False)
    )
    if len(calls) > rules.max_launches:
        title = f"max_launches={rules.max_launches}: {len(calls):,} kernels were launched"
        yield "\n".join([title, *chains.lines(chains.of_calls(calls))])


def _waits(rules: Rules, trace: Trace, chains: _Chains) -> Iterator[str]:
    if not rules.no_sync:
        return
    waiting = _role(SYNCHRONISATION) | (
        pl.col("name").cast(pl.String).str.contains(r"^cu(?:da)?Memcpy")
        & ~pl.col("name").cast(pl.String).str.contains("Async|Peer")
    )
    calls = trace.api_calls.filter(
        waiting & pl.col("parent").is_null() & ~pl.col("captured").fill_null(False)
    )
    if len(calls):
        title = f"no_sync: the host waited for the GPU, {count(len(calls), 'time')}"
        yield "\n".join([title, *chains.lines(chains.of_calls(calls))])


def _role(role: str) -> pl.Expr:
    return (pl.col("role").cast(pl.String) == role).fill_null(False)


def _why_unknown(trace: Trace) -> str:
    """Why the trace does not tell what the GPU did; "" if it does."""
    cuda = trace.certificate.get("cuda") or {}
    state = cuda.get("state", "not used")
    if state == "recorded" or state in _NO_GPU:
        return ""
    return f"CUDA was not recorded ({cuda.get('why') or state})"


class _Chains:
    """The rows around a row, outermost first, as lines."""

    def __init__(self, trace: Trace) -> None:
        self._rows = combine(trace, every_call=True).rows
        self._forest = Forest.of(self._rows)
        self._ops = self._rows["op"].cast(pl.String)
        self._is_hop = self._rows["kind"].cast(pl.String).is_in(HOP_KINDS).to_numpy()
        self._sources = SourceLines.of(trace)

    def ops(self) -> list[str]:
        """What ran, most often first."""
        return self._ops.filter(pl.Series(self._is_hop)).drop_nulls().value_counts(sort=True)["op"].to_list()

    def fitting(self, pattern: str) -> np.ndarray:
        """The op calls that fit a pattern: of an op and its redispatches the first."""
        names = [op for op in self._ops.unique().drop_nulls() if fits_op(op, pattern)]
        calls = (self._rows["kind"].cast(pl.String) != "redispatch").to_numpy()
        return np.flatnonzero(self._ops.is_in(names).fill_null(False).to_numpy() & calls)

    def of_calls(self, calls: pl.DataFrame) -> np.ndarray:
        wanted = self._rows["api_call"].is_in(calls["id"].cast(pl.Int64).implode()).fill_null(False)
        return np.flatnonzero(wanted.to_numpy() & (self._rows["kind"].cast(pl.String) == "api").to_numpy())

    def lines(self, rows: np.ndarray) -> Iterator[str]:
        """The first chains to these rows: of rows with one line and chain, one."""
        seen: dict[tuple[str, ...], int] = {}
        for row in rows.tolist():
            chain = tuple(self._chain(row))
            seen[chain] = seen.get(chain, 0) + 1
        for chain, number in list(seen.items())[:_SHOWN]:
            times = f"  ({number:,} times)" if number > 1 else ""
            yield f"  {chain[0]}{times}"
            yield from (f"  {line}" for line in chain[1:])
        if len(seen) > _SHOWN:
            yield f"  ... {count(len(seen) - _SHOWN, 'more path')}"

    def _chain(self, row: int) -> Iterator[str]:
        around = [row]
        while (above := int(self._forest.parent[around[-1]])) >= 0:
            around.append(above)
        yield visible(self._line(around[-1]))
        columns = self._rows.select(pl.col("op", "key", "kernel", "kind").cast(pl.String))
        for level, place in enumerate(reversed(around)):
            op, key, kernel, kind = columns.row(place)
            arrow = "-> " if kind == "redispatch" else ""
            words = [f"{arrow}{op or '?'}", *([f"[{key}]"] if key else []), *([kernel] if kernel else [])]
            yield visible(f"{'  ' * (level + 1)}{' '.join(words)}")

    def _line(self, row: int) -> str:
        source, node = self._rows.select(pl.col("source", "backward_node").cast(pl.String)).row(row)
        if not source:
            return NO_LINE
        backward = f" backward: {node}" if node else ""
        return f"{self._sources.name(source)}{backward}  {self._sources.text(source)}".rstrip()
