"""A Python loop that calls the same op for each item or time step."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracer.advice.dependence import Dependence, Flow
from tracer.advice.finding import Finding
from tracer.advice.steady import Steady
from tracer.analysis.phases import OF_LOADERS, OF_STEPS, in_backward

looks_for = (
    "a line that calls one op 16 times or more a step, with the same shapes, each call short; "
    "with --values scalars not if each call needs the result of the one before"
)
threshold = "2 % of a step; calls of 100 us or more gain little from being one, and views do not count"
needs: tuple[str, ...] = ("shapes", "sources")

LEAST, TIMES, SHORT_NS, VIEW_NS = 0.02, 16, 100_000, 500
_READS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal")
_SUMS = ("add", "add_", "mul", "mul_", "maximum", "minimum", "logical_or", "logical_and")
"""Ops that one call replaces although each call needs the result of the one before: sum, prod, amax"""
_UNKNOWN = "if no call needs the result of the one before"
_PARTLY = "only for calls that do not need the result of the one before"
_NOT_RECORDED = f"{_UNKNOWN}: the recording has no --values scalars"
_SAME = ("source", "module", "op", "inputs")


def find(steady: Steady) -> Iterator[Finding]:
    last_step = pl.col("step") == steady.steps[-1]
    own = ~pl.col("range").str.starts_with(OF_STEPS) & ~pl.col("range").str.starts_with(OF_LOADERS)
    rows = steady.roots.filter(own.fill_null(True) & ~pl.col("op").is_in(_READS))
    rows = rows.filter(pl.col("source").is_not_null())
    forward = rows.filter(~in_backward())
    often = forward.filter(last_step).group_by(_SAME).agg(times=pl.len()).filter(pl.col("times") >= TIMES)
    of_lines = rows.filter(pl.col("source").is_in(often["source"].implode()))
    often_of = often.partition_by("source", as_dict=True)
    flow = Flow(steady.roots.filter(last_step), steady.trace.tensors)
    for line, of_line in steady.costly(of_lines, "source", LEAST).items():
        same = often_of[line,]
        hot = of_line.filter(~in_backward()).join(same, on=_SAME, how="semi", nulls_equal=True)
        real = hot.filter(pl.col("ns") > VIEW_NS)
        cost = steady.usual_ns(of_line) + steady.usual_ns(of_line, "gap")
        names = hot["op"].unique(maintain_order=True).to_list()
        median = float(real["ns"].median() or 0)  # type: ignore[arg-type]
        if len(real) < TIMES * len(steady.steps) or cost < LEAST * steady.step_ns:
            continue
        if median > SHORT_NS and not any(name.endswith("_cell") for name in names):
            continue
        chains = _chains(flow, hot.filter(last_step & pl.col("op").is_in(real["op"].implode())))
        if chains and all(map(_has_no_one_call, chains)):
            continue
        times = int(same["times"].max())  # type: ignore[arg-type]
        short = [name.removeprefix("aten::").partition(".")[0] for name in names]
        yield Finding(
            line=line,
            do=_do(short),
            evidence=f"{times:,} times a step: {', '.join(short[:5])}; {median / 1000:.1f} us an op",
            cost_ns=cost,
            # Its nodes in the backward pass, which have no line, are fewer too.
            most_ns=max(cost, steady.parts["forward_ns"] + steady.parts["backward_ns"]),
            hops=frozenset(of_line["id"].to_list()),
            caveat="" if _cell(short) else _caveat(steady, chains),
        )


def _chains(flow: Flow, calls: pl.DataFrame) -> list[tuple[str, Dependence]]:
    """Of each op whose calls return tensors of their own how they need each other; none: not recorded."""
    groups = calls.group_by("op", "module", maintain_order=True).agg("id") if flow.is_known else calls[:0]
    found = ((str(group["op"]), flow.dependence(group["id"])) for group in groups.iter_rows(named=True))
    return [(op, chain) for op, chain in found if chain.made]


def _has_no_one_call(of_op: tuple[str, Dependence]) -> bool:
    return of_op[1].is_dependent and not _is_replaced_whole(*of_op)


def _is_replaced_whole(op: str, chain: Dependence) -> bool:
    """Whether one call replaces calls that need each other: nn.GRU, sum."""
    direct = chain.direct >= chain.calls - 1
    return op.endswith("_cell") or (direct and op.removeprefix("aten::").partition(".")[0] in _SUMS)


def _caveat(steady: Steady, chains: list[tuple[str, Dependence]]) -> str:
    if chains:
        some = any(chain.longest > 1 and not _is_replaced_whole(op, chain) for op, chain in chains)
        return _PARTLY if some else ""
    return _UNKNOWN if steady.trace.tensors.height or steady.trace.scalars.height else _NOT_RECORDED


def _do(names: list[str]) -> str:
    if cell := _cell(names):
        whole = {"lstm": "LSTM", "gru": "GRU"}.get(cell, "RNN")
        return f"nn.{whole} over the whole sequence: one op call in place of one for each time step"
    if {"select", "unbind"} & set(names):
        return "one call on the whole tensor in place of one for each item"
    return "one call on stacked tensors, or a torch._foreach_ function, in place of one for each item"


def _cell(names: list[str]) -> str:
    """`gru` of gru_cell, whose op over all time steps is there; else ""."""
    return next((name.removesuffix("_cell") for name in names if name.endswith("_cell")), "")
