"""Attention that is written out, or that ran on torch's math back end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from tracer.advice.experiments import Attention
from tracer.advice.finding import Finding
from tracer.advice.steady import Steady, Tensor
from tracer.analysis.phases import in_backward

looks_for = "a matrix product, a softmax and a product with its result, in one module; or the math back end"
threshold = "2 % of a step: the scores, which a fused kernel never writes, are part of that only"
needs: tuple[str, ...] = ("shapes", "sources")

LEAST = 0.02
_PRODUCTS = ("aten::matmul", "aten::bmm", "aten::baddbmm")
_SOFTMAX = ("aten::softmax.int", "aten::_softmax")
_MASKS = ("mask", "aten::add", "aten::where", "tril", "triu")
_BETWEEN = (
    *("add", "add_", "arange", "bitwise_and", "bitwise_not", "__not__", "div", "div_", "dropout", "full"),
    *("masked_fill", "masked_fill_", "mul", "mul_", "ones", "rsub", "softmax", "_softmax", "to", "transpose"),
    *("tril", "triu", "where", "expand", "lt", "le", "gt", "ge", "unsqueeze", "float", "type_as"),
)
_BEFORE, _AFTER = 10, 6
"""How many ops before and after the softmax a product may be"""
_MATH = "aten::_scaled_dot_product_attention_math"


@dataclass
class _Chain:
    hops: list[int] = field(default_factory=list)
    number: int = 0
    masked: bool = False
    operands: tuple[Tensor, Tensor, Tensor] | None = None


def find(steady: Steady) -> Iterator[Finding]:
    yield from _by_hand(steady)
    yield from _on_math(steady)


def _by_hand(steady: Steady) -> Iterator[Finding]:
    roots = steady.roots
    forward = roots.filter(~in_backward())
    chains: dict[str | None, _Chain] = {}
    if not forward["op"].is_in(_SOFTMAX).any():
        return
    rows = forward.select("op", "inputs", "source", "module", "id", "thread").to_dicts()
    for place, row in enumerate(rows):
        if row["op"] in _SOFTMAX and (span := _span(steady, rows, place)):
            first, last, operands = span
            chain = chains.setdefault(row["source"], _Chain())
            chain.hops += [rows[at]["id"] for at in range(first, last + 1)]
            chain.number += 1
            chain.masked |= any(_is_mask(rows[at]["op"]) for at in range(first + 1, last))
            chain.operands = operands
    for line, chain in chains.items():
        of_backward = roots.filter((pl.col("source") == line) & in_backward())
        ops = roots.filter(pl.col("id").is_in(chain.hops))
        cost = steady.cost_ns(ops) + steady.cost_ns(of_backward)
        if cost < LEAST * steady.step_ns or chain.operands is None:
            continue
        query, key, value = chain.operands
        yield Finding(
            line=line,
            do="F.scaled_dot_product_attention(q, k, v): the scores are never written to memory",
            evidence=(
                f"{steady.a_step(chain.number):,.0f} times a step matmul, softmax and matmul, with scores of "
                f"{'x'.join(map(str, (*query.shape[:-1], key.shape[-1])))}"
            ),
            cost_ns=cost,
            most_ns=cost,
            hops=frozenset([*chain.hops, *of_backward["id"].to_list()]),
            experiment=_experiment(query, key, value, chain.masked, len(of_backward) > 0),
        )


def _experiment(query: Tensor, key: Tensor, value: Tensor, masked: bool, backward: bool) -> Attention | None:
    if query.stride is None or key.stride is None or value.stride is None:
        return None
    return Attention(
        query=(query.shape, query.stride),
        key=(key.shape, key.stride),
        value=(value.shape, value.stride),
        dtype=query.dtype,
        device=query.device,
        masked=masked,
        backward=backward,
    )


def _is_mask(op: str) -> bool:
    return any(part in op for part in _MASKS)


def _span(
    steady: Steady, rows: list[dict[str, object]], place: int
) -> tuple[int, int, tuple[Tensor, Tensor, Tensor]] | None:
    """From the product before this softmax to the one after it, and query, key and value."""
    scores = steady.tensors(rows[place]["inputs"])  # type: ignore[arg-type]
    if not scores or len(scores[0].shape) < 3:
        return None
    here = (rows[place]["module"], rows[place]["thread"])

    def product(places: range) -> int | None:
        fits = (at for at in places if 0 <= at < len(rows) and rows[at]["op"] in _PRODUCTS)
        return next((at for at in fits if (rows[at]["module"], rows[at]["thread"]) == here), None)

    first = product(range(place - 1, place - _BEFORE, -1))
    last = product(range(place + 1, place + _AFTER))
    if first is None or last is None:
        return None
    names = [str(rows[at]["op"]).removeprefix("aten::").partition(".")[0] for at in range(first + 1, last)]
    before, after = (steady.tensors(rows[at]["inputs"])[:2] for at in (first, last))  # type: ignore[arg-type]
    if any(name not in _BETWEEN for name in names) or len(before) < 2 or len(after) < 2:
        return None
    (query, key), (weights, value) = before, after
    rows_of, columns = scores[0].shape[-2:]
    fits = weights.shape[-2:] == (rows_of, columns) and len(query.shape) >= 2 and len(key.shape) >= 2
    if not fits or (query.shape[-2], key.shape[-1], value.shape[-2]) != (rows_of, columns, columns):
        return None
    return first, last, (query, key, value)


def _on_math(steady: Steady) -> Iterator[Finding]:
    """torch.nn.functional's own, where it chose the back end that writes the scores."""
    if not steady.on_gpu:
        return
    math = steady.calls.filter(pl.col("op") == _MATH)
    for (line,), calls in math.group_by("source", maintain_order=True):
        kernels = steady.gpu_ns_below(calls)
        if kernels < LEAST * steady.step_ns:
            continue
        tensors = steady.tensors(calls["inputs"][0])
        why = _why_math(tensors)
        yield Finding(
            line=None if line is None else str(line),
            do=f"let it take a fused kernel{why and f': {why}'}",
            evidence=f"{steady.a_step(len(calls)):,.0f} attentions a step on the math back end",
            cost_ns=kernels,
            most_ns=kernels,
            hops=frozenset(calls["id"].to_list()),
        )


def _why_math(tensors: list[Tensor]) -> str:
    """What the fused kernels do not take, of what a recording tells; "" if it is something else."""
    if not tensors:
        return ""
    if tensors[0].dtype == "float64":
        return "they take no float64"
    if tensors[0].shape and tensors[0].shape[-1] % 8:
        return f"heads of {tensors[0].shape[-1]} are no multiple of 8"
    if tensors[0].dtype == "float32" and len(tensors) > 3 and tensors[3].requires_grad:
        return "the mask needs a gradient"
    return ""
