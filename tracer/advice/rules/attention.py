"""Attention that is written out, or that ran on torch's math back end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tracer.advice.experiments import Attention
from tracer.advice.finding import Finding
from tracer.advice.often import often
from tracer.advice.steady import Steady, Tensor
from tracer.analysis.phases import in_backward

looks_for = "a matrix product, a softmax and a product with its result, in one module; or the math back end"
threshold = "2 % of a step: the scores, which a fused kernel never writes, are part of that only"
needs: tuple[str, ...] = ("shapes", "sources")

LEAST = 0.02
_PRODUCTS = ("aten::matmul", "aten::bmm", "aten::baddbmm")
_SOFTMAX = ("aten::softmax.int", "aten::_softmax")
_MASKS = {"masked_fill": 1, "masked_fill_": 1, "add": 1, "add_": 1, "where": 0}
"""Which of the tensors of an op is a mask"""
_SCALES = ("div", "div_", "mul", "mul_")
_BETWEEN = (
    *("add", "add_", "arange", "bitwise_and", "bitwise_not", "__not__", "div", "div_", "dropout", "full"),
    *("masked_fill", "masked_fill_", "mul", "mul_", "ones", "rsub", "softmax", "_softmax", "to", "transpose"),
    *("tril", "triu", "where", "expand", "lt", "le", "gt", "ge", "unsqueeze", "float", "type_as"),
)
_BEHIND = ("dropout", "to", "type_as", "float", "softmax", "_softmax")
"""Between the softmax and the product: what is changed else are no weights of scaled_dot_product_attention"""
_BEFORE, _AFTER = 10, 6
"""How many ops before and after the softmax a product may be"""
_OVER_KEYS = "if the softmax is over the keys: the recording has no --values scalars"
_MATH = "aten::_scaled_dot_product_attention_math"


@dataclass
class _Chain:
    """The attentions of a line: `hops` of all, `number` of them; `between`, `operands`: of the last one."""

    hops: list[int] = field(default_factory=list)
    number: int = 0
    between: list[dict[str, Any]] = field(default_factory=list)
    operands: tuple[Tensor, Tensor, Tensor] | None = None


def find(steady: Steady) -> Iterator[Finding]:
    yield from _by_hand(steady)
    yield from _on_math(steady)


def _by_hand(steady: Steady) -> Iterator[Finding]:
    roots = steady.roots
    forward = roots.filter(~in_backward())
    chains: dict[str, _Chain] = {}
    if not forward["op"].is_in(_SOFTMAX).any():
        return
    rows = forward.select("op", "inputs", "source", "module", "id", "thread").to_dicts()
    for place, row in enumerate(rows):
        if row["op"] in _SOFTMAX and (span := _span(steady, rows, place)):
            first, last, operands = span
            chain = chains.setdefault(str(row["source"] or ""), _Chain())
            chain.hops += [rows[at]["id"] for at in range(first, last + 1)]
            chain.number += 1
            chain.between, chain.operands = rows[first + 1 : last], operands
    of_chains = {hop for chain in chains.values() for hop in chain.hops}
    last_reader = {row["inputs"]: row["id"] for row in rows if row["id"] not in of_chains}
    for line, ops in _costly(steady, chains).items():
        chain, of_backward = chains[line], ops.filter(in_backward())
        cost = steady.cost_ns(ops.filter(~in_backward())) + steady.cost_ns(of_backward)
        if cost < LEAST * steady.step_ns or chain.operands is None:
            continue
        if _else_reads_weights(steady, chain, last_reader):
            continue
        times = steady.a_step(chain.number)
        query, key, _ = chain.operands
        yield Finding(
            line=line or None,
            do="F.scaled_dot_product_attention(q, k, v): the scores are never written to memory",
            evidence=(
                f"{often(times, 'attention')} as matmul, softmax and matmul, with scores of "
                f"{'x'.join(map(str, (*query.shape[:-1], key.shape[-1])))}"
            ),
            cost_ns=cost,
            most_ns=cost,
            hops=frozenset(ops["id"].to_list()),
            experiment=_experiment(steady, chain, times, len(of_backward) > 0),
            caveat=_OVER_KEYS if steady.trace.scalars.is_empty() else "",
        )


def _else_reads_weights(steady: Steady, chain: _Chain, last_reader: dict[int, int]) -> bool:
    """Whether an op behind the attentions reads tensors as large as their weights: a fused kernel gives none.

    `last_reader`: inputs -> the last op with them that is part of no attention.
    """
    if chain.operands is None:
        return False
    query, key, _ = chain.operands
    scores = (*query.shape[:-1], key.shape[-1])
    reads = steady.with_inputs(lambda of: any(one.shape == scores for one in of))
    return any(last_reader.get(inputs, -1) > min(chain.hops) for inputs in reads)


def _costly(steady: Steady, chains: dict[str, _Chain]) -> dict[str, pl.DataFrame]:
    """The ops of each line that may be worth a row, those of their backward pass included."""
    chain_of = {hop: line for line, chain in chains.items() for hop in chain.hops}
    nodes = steady.roots.filter(in_backward() & pl.col("forward_hop").is_not_null())
    forward = steady.roots_of(nodes["forward_hop"])
    chain_of |= {
        hop: chain_of[of]
        for hop, of in zip(nodes["id"].to_list(), forward, strict=True)
        if of is not None and of in chain_of
    }
    lines = pl.DataFrame(
        {"id": list(chain_of), "chain": list(chain_of.values())},
        {"id": steady.roots.schema["id"], "chain": pl.String},
    )
    ops = steady.roots.join(lines, on="id", maintain_order="left")
    return steady.costly(ops, "chain", 0.0 if steady.on_gpu else LEAST)


def _experiment(steady: Steady, chain: _Chain, times: float, backward: bool) -> Attention | None:
    """None if what it got is not known, or if the mask is not."""
    names = [_name(row) for row in chain.between]
    if chain.operands is None or any(one.stride is None for one in chain.operands):
        return None
    query, key, value = chain.operands
    scores = (*query.shape[:-1], key.shape[-1])
    masks = [one for row in chain.between if (one := _mask(steady, row, scores))]
    if len(masks) != sum(name in _MASKS for name in names):
        return None
    return Attention(
        query=(query.shape, query.stride or ()),
        key=(key.shape, key.stride or ()),
        value=(value.shape, value.stride or ()),
        dtype=query.dtype,
        device=query.device,
        times=times,
        mask=masks[-1] if masks else None,
        scaled=any(name in _SCALES for name in names),
        dropout=any(_name(row) == "dropout" and steady.has_calls(row["id"]) for row in chain.between),
        backward=backward,
    )


def _name(row: dict[str, Any]) -> str:
    """`add` of `aten::add.Tensor`"""
    return str(row["op"]).removeprefix("aten::").partition(".")[0]


def _mask(
    steady: Steady, row: dict[str, Any], scores: tuple[int, ...]
) -> tuple[str, tuple[int, ...], str] | None:
    """Name of the op, shape and dtype of the mask; None if it masks no scores of this shape."""
    name, tensors = _name(row), steady.tensors(row["inputs"])
    place = _MASKS.get(name)
    if place is None or len(tensors) < 2 or scores != tensors[1 - place].shape:
        return None
    return name, tensors[place].shape, tensors[place].dtype


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
    names = [_name(rows[at]) for at in range(first + 1, last)]
    before, after = (steady.tensors(rows[at]["inputs"])[:2] for at in (first, last))  # type: ignore[arg-type]
    behind = [_name(rows[at]) for at in range(place + 1, last)]
    if any(name not in _BETWEEN for name in names) or any(name not in _BEHIND for name in behind):
        return None
    if len(before) < 2 or len(after) < 2 or not _is_over_keys(steady, rows[place], len(scores[0].shape)):
        return None
    if any(_scales_by_tensor(steady, rows[at]) for at in range(first + 1, place)):
        return None
    (query, key), (weights, value) = before, after
    rows_of, columns = scores[0].shape[-2:]
    fits = weights.shape[-2:] == (rows_of, columns) and len(query.shape) >= 2 and len(key.shape) >= 2
    if not fits or (query.shape[-2], key.shape[-1], value.shape[-2]) != (rows_of, columns, columns):
        return None
    return first, last, (query, key, value)


def _is_over_keys(steady: Steady, softmax: dict[str, Any], dims: int) -> bool:
    """Over the last dimension, as far as the recording tells: it has numbers with --values scalars."""
    dim = steady.first_number(softmax["inputs"])
    return dim is None or dim in (-1, dims - 1)


def _scales_by_tensor(steady: Steady, row: dict[str, Any]) -> bool:
    """Scores times other numbers than one for all are no mask that a fused kernel takes."""
    tensors = steady.tensors(row["inputs"])
    return _name(row) in _SCALES and len(tensors) > 1 and tensors[1].numbers > 1


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
            evidence=f"{often(steady.a_step(len(calls)), 'attention')} on the math back end",
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
