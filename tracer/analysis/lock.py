"""The dispatch lock of a trace: the paths of each Python line, without times, addresses and counts of calls.

A section is a Python line, forward or backward. Its chains are the distinct dispatch paths of the outermost
op calls there: hops, library calls, compiled code, waits for the GPU, and the families of device kernels.
What ran while torch.compile compiled is left out: with a warm cache it does not run.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import polars as pl

from tracer.analysis.compiled import COMPILED, COMPILED_KERNEL
from tracer.analysis.cuda_tables import CudaTables
from tracer.analysis.families import family_of
from tracer.analysis.links import GPU_KINDS, HOP_KINDS, combine
from tracer.analysis.runtime_survey import SYNCHRONISATION
from tracer.analysis.source_lines import SourceLines, WithLines
from tracer.analysis.step_times import RANGE_OPS
from tracer.analysis.trees import Forest, depths, own_or_forward_line
from tracer.base.paths import short_path
from tracer.base.quoting import one_line
from tracer.trace.bytes.arrays import nearest, take
from tracer.trace.bytes.damage import number_of
from tracer.trace.tables.compiled import innermost

NO_LINE = "no Python line"
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_WHERE = re.compile(r" \([^()]*:\d+\)$")
"""Of a Python kernel: its file and line"""
_NAMED_KINDS = ("library", COMPILED_KERNEL)
_ARCHITECTURE = re.compile(r"_?sm_?\d+\w?")


class Lockable(CudaTables, WithLines, Protocol):
    """What this reads of a trace."""

    @property
    def compile_phases(self) -> pl.DataFrame: ...


DEEPEST = 200
"""Levels of a chain; what is deeper is left out. No program has them, and readers go down one by one"""


@dataclass(frozen=True)
class Node:
    """One line of a chain: `least` to `most` of it follow each other in the line above."""

    text: str
    below: tuple[Node, ...] = ()
    least: int = 1
    most: int = 1

    @property
    def shape(self) -> tuple[Any, ...]:
        """Equal where all lines are, whatever their counts."""
        return (self.text, *(node.shape for node in self.below))


@dataclass
class Section:
    """The chains of one Python line. `lines` has it as `train.py:7`, if that is known."""

    heading: str
    chains: list[Node] = field(default_factory=list)
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lock:
    torch: str | None
    sections: dict[str, Section]
    """By heading"""


def lock_of(trace: Lockable, *, folder: str | None = None, steady: bool = False) -> Lock:
    """`folder`: what paths are relative to (default: the script's). `steady`: without warm-up steps."""
    forest = _forest(trace)
    rows = forest.hops
    wanted = (forest.parent < 0) & ~_open_inside(forest)
    wanted &= (~rows["op"].cast(pl.String).str.starts_with(RANGE_OPS).fill_null(False)).to_numpy()
    if steady:
        wanted &= (rows["phase"].cast(pl.String) == "steady").fill_null(False).to_numpy()
    places = (
        rows.with_columns(source=own_or_forward_line())
        .filter(pl.Series(wanted))
        .select(pl.col("source", "backward_node").cast(pl.String))
        .with_columns(structure=pl.Series(forest.structure[wanted]), row=pl.Series(np.flatnonzero(wanted)))
        .group_by("source", "backward_node", "structure", maintain_order=True)
        .agg(pl.col("row").first())
    )
    trees = _Trees(forest)
    names = _Names(trace, folder)
    found: dict[str, tuple[dict[Any, Node], set[tuple[str, int]]]] = {}
    for source, node, _, row in places.iter_rows():
        file, number, heading = names.heading(source, node)
        heading = one_line(heading)
        chains, lines = found.setdefault(heading, ({}, set()))
        chain = trees.chain(row)
        chains[chain.shape] = _joined(chains[chain.shape], chain) if chain.shape in chains else chain
        if number:
            lines.add((file, number))
    order = sorted(found, key=lambda heading: _place(heading, found[heading][1]))
    sections = {
        heading: Section(
            heading,
            sorted(found[heading][0].values(), key=lambda node: "\n".join(chain_lines(node))),
            tuple(one_line(f"{file}:{number}") for file, number in sorted(found[heading][1])),
        )
        for heading in order
    }
    return Lock(one_line(trace.environment.get("torch") or "") or None, sections)


def _place(heading: str, lines: set[tuple[str, int]]) -> tuple[Any, ...]:
    """By file and line, forward before backward; sections without a line come last."""
    return (not lines, min(lines, default=("", 0)), heading.startswith("backward "), heading)


def chain_lines(node: Node, level: int = 0) -> Iterator[str]:
    """`2..4 x aten::mm [CPU] wrapper_CPU_mm`, indented by the level."""
    count = "" if node.most == 1 else f"{node.most} x "
    if node.least != node.most:
        count = f"{node.least}..{node.most} x "
    yield f"{'  ' * level}{count}{node.text}"
    for below in node.below:
        yield from chain_lines(below, level + 1)


def _forest(trace: Lockable) -> Forest:
    """Without API calls other than waits: what they caused is below the row around them."""
    linked = combine(trace)
    rows = linked.rows
    kind = rows["kind"].cast(pl.String)
    kept = kind != "api"
    if linked.has_gpu:
        role = trace.api_calls["role"].cast(pl.String).gather(rows["api_call"])
        kept |= (role == SYNCHRONISATION).fill_null(False)
    gpu = kind.is_in(GPU_KINDS)
    rows = rows.with_columns(
        op=pl.when(gpu).then(_families(rows["op"])).otherwise(pl.col("op").cast(pl.String)),
        kernel=pl.col("kernel")
        .cast(pl.String)
        .str.replace_all(_ADDRESS.pattern, "unknown")
        .str.replace(_WHERE.pattern, ""),
    )
    above = rows["parent"].cast(pl.Int64).fill_null(-1).to_numpy()
    keep = kept.to_numpy() & ~_compiling(trace, rows) & (depths(above) < DEEPEST)
    if keep.all():
        return Forest.of(rows)
    above = take(nearest(above, keep), above)
    rows = rows.with_columns(parent=pl.when(pl.Series(above) >= 0).then(pl.Series(above)))
    return Forest.of(rows.filter(pl.Series(keep)))


def _compiling(trace: Lockable, rows: pl.DataFrame) -> np.ndarray:
    """True for rows that began in a phase of the compiler, and for what the GPU did for them."""
    process, thread, start = (
        rows[name].cast(pl.Int64).fill_null(-1).to_numpy() for name in ("process", "thread", "start_ns")
    )
    inside = innermost(trace.compile_phases, process, thread, start) >= 0
    gpu = rows["kind"].cast(pl.String).is_in(GPU_KINDS).to_numpy()
    above = rows["parent"].cast(pl.Int64).fill_null(-1).to_numpy()
    inside[gpu] = (above >= 0)[gpu] & inside[above][gpu]
    return inside


def _families(names: pl.Series) -> pl.Series:
    names = names.cast(pl.String)
    distinct = names.unique().drop_nulls()
    return names.replace_strict(
        distinct, [_family(name) for name in distinct], default=None, return_dtype=pl.String
    )


def _family(name: str) -> str:
    """The family of a device kernel, or its name without an instruction set; of a copy or fill its name."""
    if name.startswith(("memcpy", "memset")):
        return name
    family = family_of(name)
    return family.name if family else _ARCHITECTURE.sub("", name.partition("<")[0])


def _open_inside(forest: Forest) -> np.ndarray:
    """True for outermost rows that had not ended, or had something in them that had not."""
    unfinished = np.zeros(len(forest.root), bool)
    unfinished[forest.root[forest.hops["open"].fill_null(False).to_numpy()]] = True
    return unfinished


class _Trees:
    """Chains of rows of a forest; equal subtrees are made once."""

    def __init__(self, forest: Forest) -> None:
        self._structure = forest.structure
        self._columns = forest.hops.select(
            pl.col("op", "key", "kernel", "kind").cast(pl.String), pl.col("raised").fill_null(False)
        )
        order = np.argsort(forest.parent, kind="stable")
        self._children, self._parents = order, forest.parent[order]
        self._made: dict[int, Node] = {}

    def chain(self, row: int) -> Node:
        known = self._made.get(int(self._structure[row]))
        if known is not None:
            return known
        first, last = np.searchsorted(self._parents, [row, row + 1]).tolist()
        nodes = [self.chain(int(below)) for below in self._children[first:last]]
        node = Node(one_line(self._text(row)), _folded(nodes))
        self._made[int(self._structure[row])] = node
        return node

    def _text(self, row: int) -> str:
        op, key, kernel, kind, raised = self._columns.row(row)
        if kind in GPU_KINDS:
            return f"GPU {op}"
        if kind not in HOP_KINDS:
            return op or "?" if kind == COMPILED else f"{kind if kind in _NAMED_KINDS else 'wait'} {op}"
        words = ["->"] if kind == "redispatch" else []
        words += [op or "?", *([f"[{key}]"] if key else []), *([kernel] if kernel else [])]
        return " ".join([*words, *(["raises"] if raised else [])])


def _folded(nodes: list[Node]) -> tuple[Node, ...]:
    """Neighbours of one shape as one node."""
    folded = []
    for _, run in groupby(nodes, key=lambda node: node.shape):
        same = list(run)
        joined = same[0]
        for node in same[1:]:
            joined = _joined(joined, node)
        folded.append(replace(joined, least=len(same), most=len(same)))
    return tuple(folded)


def _joined(one: Node, other: Node) -> Node:
    """Both have one shape: the counts of both."""
    if one is other:
        return one
    below = tuple(_joined(a, b) for a, b in zip(one.below, other.below, strict=True))
    return Node(one.text, below, min(one.least, other.least), max(one.most, other.most))


class _Names:
    """Lines by file and text, which stay when other lines are inserted above them."""

    def __init__(self, trace: Lockable, folder: str | None) -> None:
        self._sources = SourceLines.of(trace)
        environment = trace.environment
        self._cwd = environment.get("cwd") or ""
        argv = environment.get("argv") or [""]
        script = posixpath.normpath(posixpath.join(self._cwd, argv[0]))
        self._folder = folder or posixpath.dirname(script)

    def heading(self, source: str | None, node: str | None) -> tuple[str, int, str]:
        """(file, line, heading) of forward ops, or of the backward ops of an autograd node."""
        backward = f"backward {node}" if node else ""
        if not source:
            return "", 0, backward or NO_LINE
        file, number = self._file(source)
        text = " ".join(self._sources.text(source).split())
        place = f"{file}: {text}" if text else f"{file}:{number}"
        return file, number, f"{backward} of {place}" if backward else place

    def _file(self, source: str) -> tuple[str, int]:
        file, _, number = source.rpartition(":")
        if file in self._sources.cells:
            name = self._sources.cells[file]
        else:
            name = short_path(file, self._folder, self._cwd)
        return name, number_of(number) or 0
