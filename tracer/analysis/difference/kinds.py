"""Kinds of op calls of one trace: those of one operator at one Python line, forward or backward."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl

from tracer.analysis.chain import Chain, Link, folded
from tracer.analysis.compiled import outermost
from tracer.analysis.cuda_tables import has_cuda
from tracer.analysis.device_kernels import short_device_kernel
from tracer.analysis.difference.places import WHOLE
from tracer.analysis.links import Links, combine
from tracer.analysis.phases import RANGE_OPS, in_backward
from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.analysis.trees import Forest, counts

if TYPE_CHECKING:
    from tracer.trace import Trace

OF_INPUTS = ("dtype", "shape", "stride", "device", "layout", "requires_grad")
ORDER = "order"
"""Beside OF_INPUTS: how the dimensions of each tensor lie in memory, which no size of them changes"""
_LONGEST_CHAIN = 400  # lines
T = TypeVar("T")
ALIGNMENT = re.compile(r"align\d+")
_SIZES = re.compile(r"(?<!\w)\w+=[\d.]+(?:, |$)")


@dataclass(frozen=True)
class Kind:
    """Outermost op calls of one operator at one line, forward or backward, of one run or of a side's runs."""

    line: str
    text: str
    op: str
    backward: bool
    modules: frozenset[str]
    calls: int
    first_ns: int
    chains: Counter[Chain]
    """The chain of hops, library calls and kernels, by how often it ran; most often first"""
    inputs: dict[str, set[str]]
    """dtype, shape, stride, ... -> what the tensors had"""
    step_ns: list[int]
    """Host time of each step"""
    gpu_ns: list[int]
    """GPU time of each step; empty: the trace has no CUDA"""
    of_runs: tuple[Kind, ...] = ()
    """Each run's own, of a kind of several; without calls where a run has none"""

    @property
    def file(self) -> str:
        return self.key[0]

    @property
    def key(self) -> Key:
        return key_of(self.line, self.text, self.op, self.backward)

    @property
    def runs(self) -> tuple[Kind, ...]:
        return self.of_runs or (self,)

    @property
    def in_every_run(self) -> bool:
        return all(run.calls for run in self.runs)

    def always(self, values: Callable[[Kind], Iterable[T]]) -> set[T]:
        """What each run has that has such calls: the rest differs from run to run of one program."""
        return set.intersection(*(set(values(run)) for run in self.runs if run.calls))


Key = tuple[str, str, str, bool]
"""(file, text of the line or its name, op, backward)"""


@dataclass(frozen=True)
class Side:
    """What one trace has in the steps that are compared.

    steps           how many
    ops, modules    name -> host time of each step in outermost ops; a module counts those within it too
    gpu_ns          GPU time of each step; empty: the trace has no CUDA
    gpu_of_ops, gpu_of_modules    the same of each name
    outside         time outside ops of each step, by the lines before and after it
    """

    kinds: dict[Key, Kind]
    steps: int
    ops: dict[str, list[int]]
    modules: dict[str, list[int]]
    gpu_ns: list[int]
    gpu_of_ops: dict[str, list[int]]
    gpu_of_modules: dict[str, list[int]]
    outside: dict[tuple[str, str], list[float]] = field(default_factory=dict)


def name_and_text(sources: SourceLines, line: str | None) -> tuple[str, str]:
    return (sources.name(line), sources.text(line)) if line else (NO_LINE, "")


def key_of(name: str, text: str, op: str, backward: bool) -> Key:
    """What tells calls of one side among those of the other: the file, and the line's text if it is known."""
    return name.rpartition(":")[0], text or name, op, backward


def side_of(trace: Trace, steady: bool, steps: Sequence[int] | None, *, cuda: bool) -> Side:
    """Kinds in these steps if `steady`, else in the whole trace; times by these steps (None: one, the run).

    cuda: chains go on below the hops, to library calls and kernels, if the trace has them. A kernel of
    compiled code is a kind of its own, and so is an op that compiled code calls.
    """
    links = combine(trace) if cuda or not has_cuda(trace) else Links(trace.hops, {})
    rows, texts = links.rows, links.details
    forest = Forest.of(rows)
    sources = SourceLines.of(trace)
    op = rows["op"].cast(pl.String)
    wanted = outermost(forest) & (~op.str.starts_with(RANGE_OPS).fill_null(False)).to_numpy()
    if steady:
        wanted &= rows["step"].is_in(list(steps or ())).fill_null(False).to_numpy()
    table = (
        rows.filter(pl.Series(wanted))
        .select(
            "inputs",
            "start_ns",
            (pl.lit(WHOLE) if steps is None else pl.col("step").cast(pl.Int64)).alias("step"),
            pl.col("op").cast(pl.String).fill_null("?"),
            pl.col("module").cast(pl.String),
            line=pl.coalesce(pl.col("source").cast(pl.String), pl.lit("")),
            backward=in_backward(),
            ns=pl.col("end_ns") - pl.col("start_ns"),
            gpu=pl.col("gpu_ns") if links.has_gpu else pl.lit(0),
        )
        .with_columns(structure=pl.Series(forest.structure[wanted]), row=pl.Series(np.flatnonzero(wanted)))
    )
    steps = [WHOLE] if steps is None else steps
    chains = _chains(forest, table, texts)
    inputs = _inputs(trace.signatures)
    kinds: dict[Key, Kind] = {}
    groups = table.partition_by("line", "op", "backward", as_dict=True, maintain_order=True)
    for (line, name, backward), part in groups.items():
        where, text = name_and_text(sources, line)
        counted = part["structure"].value_counts(sort=True).iter_rows()
        made = Kind(
            line=where,
            text=text,
            op=name,
            backward=backward,
            modules=frozenset(part["module"].drop_nulls().unique()),
            calls=len(part),
            first_ns=int(part["start_ns"][0]),
            chains=_counted((chains[structure], count) for structure, count in counted),
            inputs=merged([inputs[number] for number in part["inputs"].unique() if number in inputs]),
            step_ns=_by_step(part, "ns", steps),
            gpu_ns=_by_step(part, "gpu", steps) if links.has_gpu else [],
        )
        kinds[made.key] = _joined(kinds[made.key], made) if made.key in kinds else made
    gpu = links.has_gpu
    return Side(
        kinds=kinds,
        steps=len(steps),
        ops=_ops(table, "ns", steps),
        modules=_modules(table, "ns", steps),
        gpu_ns=_by_step(table, "gpu", steps) if gpu else [],
        gpu_of_ops=_ops(table, "gpu", steps) if gpu else {},
        gpu_of_modules=_modules(table, "gpu", steps) if gpu else {},
    )


def _by_step(part: pl.DataFrame, column: str, steps: Sequence[int]) -> list[int]:
    found = dict(part.group_by("step").agg(pl.col(column).sum()).iter_rows())
    return [found.get(step, 0) for step in steps]


def _ops(table: pl.DataFrame, column: str, steps: Sequence[int]) -> dict[str, list[int]]:
    parts = table.partition_by("op", as_dict=True, maintain_order=True)
    return {name: _by_step(part, column, steps) for (name,), part in parts.items()}


def _modules(table: pl.DataFrame, column: str, steps: Sequence[int]) -> dict[str, list[int]]:
    rows = table.filter(pl.col("module").is_not_null()).group_by("module", "step").agg(pl.col(column).sum())
    found: dict[str, dict[int, int]] = {}
    for module, step, ns in rows.iter_rows():
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            of_step = found.setdefault(".".join(parts[:depth]), {})
            of_step[step] = of_step.get(step, 0) + ns
    return {module: [of_step.get(step, 0) for step in steps] for module, of_step in found.items()}


def _joined(one: Kind, other: Kind) -> Kind:
    """Two lines of a file with the same text."""
    return Kind(
        line=one.line,
        text=one.text,
        op=one.op,
        backward=one.backward,
        modules=one.modules | other.modules,
        calls=one.calls + other.calls,
        first_ns=min(one.first_ns, other.first_ns),
        chains=one.chains + other.chains,
        inputs=merged([one.inputs, other.inputs]),
        step_ns=[sum(pair) for pair in zip(one.step_ns, other.step_ns, strict=True)],
        gpu_ns=[sum(pair) for pair in zip(one.gpu_ns, other.gpu_ns, strict=True)],
    )


def _counted(pairs: Any) -> Counter[Chain]:
    """Structures that differ in what a chain does not show are one chain."""
    chains: Counter[Chain] = Counter()
    for chain, count in pairs:
        chains[chain] += count
    return chains


def merged(parts: Sequence[Mapping[str, set[str]]]) -> dict[str, set[str]]:
    merged: dict[str, set[str]] = {}
    for part in parts:
        for name, values in part.items():
            merged.setdefault(name, set()).update(values)
    return merged


def _chains(forest: Forest, table: pl.DataFrame, texts: Mapping[int, str]) -> dict[int, Chain]:
    """The chain of each distinct structure."""
    first = table.group_by("structure").agg(pl.col("row").min())
    columns = forest.hops.select(
        pl.col("kind", "op", "key", "kernel", "override", "handed_over").cast(pl.String),
        pl.col("inputs").cast(pl.Int64),
    )
    sizes = counts(forest.root, len(forest.root))
    found = {}
    for structure, row in first.iter_rows():
        span = slice(row, row + min(int(sizes[row]), _LONGEST_CHAIN))
        rows = zip(forest.depth[span].tolist(), columns[span].iter_rows(), strict=True)
        found[structure] = folded(_link(level, cells, texts) for level, cells in rows)
    return found


def _link(level: int, cells: tuple[Any, ...], texts: Mapping[int, str]) -> Link:
    kind, op, key, kernel, override, handed_over, inputs = cells
    left = f", left to stock: {handed_over}" if handed_over else ""
    more = f"(override {override}{left})" if override else ""
    if kind == "library":  # modes such as the compute type; sizes are those of the inputs
        modes = _SIZES.sub("", texts.get(inputs, "")).rstrip(", ")
        more = f"({modes})" if modes else ""
    name = _device_kernel(op) if kind == "kernel" and op else op or "?"
    return Link(level, kind, name, key or "", kernel or "", more)


def _device_kernel(name: str) -> str:
    """The short name, with the alignment of its inputs, which short names leave out."""
    alignment, short = ALIGNMENT.search(name), short_device_kernel(name)
    return short if alignment is None or alignment[0] in short else f"{short} ({alignment[0]})"


def _inputs(signatures: pl.DataFrame) -> dict[int, dict[str, set[str]]]:
    """Of each signature what its tensors had, `0: 32x64` by position."""
    found: dict[int, dict[str, set[str]]] = {}
    for row in signatures.iter_rows(named=True):
        of_call = found.setdefault(row["id"], {})
        for name in OF_INPUTS:
            value = row[name]
            if value is not None:
                text = "x".join(map(str, value)) or "scalar" if isinstance(value, list) else str(value)
                of_call.setdefault(name, set()).add(f"{row['position']}: {text.removeprefix('torch.')}")
        if row["shape"] is not None and row["stride"] is not None:
            order = _order(row["shape"], row["stride"])
            of_call.setdefault(ORDER, set()).add(f"{row['position']}: {order}")
    return found


def _order(shape: Sequence[int], stride: Sequence[int]) -> str:
    """`contiguous`, or the dimensions from the outermost one in memory inwards."""
    wanted, elements = [], 1
    for size in reversed(shape):
        wanted.append(elements)
        elements *= size
    if 0 in shape or all(
        size == 1 or one == other for size, one, other in zip(shape, stride, reversed(wanted), strict=True)
    ):
        return "contiguous"
    order = sorted(range(len(shape)), key=lambda place: -stride[place])
    last = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    return f"{order}{'' if last == elements else ' with holes'}"
