"""The dispatch lock of a trace: the paths of each Python line, without times, addresses and counts of calls.

A section is a Python line, forward or backward. Its chains are the distinct dispatch paths of the outermost
op calls there: hops, library calls, compiled code, waits for the GPU, and the families of device kernels.
What ran while torch.compile compiled is left out: with a warm cache it does not run.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracer.analysis.chain import WAIT, Chain, Link, folded, joined, shape
from tracer.analysis.compiled import COMPILED_KINDS
from tracer.analysis.families import family_of
from tracer.analysis.links import combine
from tracer.analysis.phases import RANGE_OPS
from tracer.analysis.runtime_survey import SYNCHRONISATION
from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.analysis.trees import Forest, counts, own_or_forward_line
from tracer.base.numerals import number_of
from tracer.base.paths import short_path
from tracer.base.visible import visible
from tracer.trace.bytes.arrays import nearest, take
from tracer.trace.tables.compiled import innermost
from tracer.trace.tables.schema import GPU_KINDS, HOP_KINDS
from tracer.trace.tables.series import numbers

if TYPE_CHECKING:
    from tracer.trace import Trace

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_WHERE = re.compile(r" \([^()]*:\d+\)$")
"""The file and line at the end of a Python kernel's name"""
_ARCHITECTURE = re.compile(r"_?sm_?\d+\w?")
_DEEPEST = 200
"""Levels below a Python line; more are left out, since each line of a lock is indented by its level"""


@dataclass
class Section:
    """The chains of one Python line. `lines` has it as `train.py:7`, if that is known."""

    heading: str
    chains: list[Chain] = field(default_factory=list)
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lock:
    torch: str | None
    sections: dict[str, Section]
    """heading -> section"""


def lock_of(trace: Trace, *, folder: str | None = None, steady: bool = False) -> Lock:
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
    found: dict[str, tuple[dict[Any, Chain], set[tuple[str, int]]]] = {}
    for source, node, _, row in places.iter_rows():
        file, number, heading = names.heading(source, node)
        heading = visible(heading)
        chains, lines = found.setdefault(heading, ({}, set()))
        chain = trees.chain(row)
        same = shape(chain)
        chains[same] = joined(chains[same], chain) if same in chains else chain
        if number:
            lines.add((file, number))
    order = sorted(found, key=lambda heading: _place(heading, found[heading][1]))
    sections = {
        heading: Section(
            heading,
            sorted(found[heading][0].values(), key=lambda chain: [link.line for link in chain]),
            tuple(visible(f"{file}:{number}") for file, number in sorted(found[heading][1])),
        )
        for heading in order
    }
    return Lock(visible(trace.environment.get("torch") or "") or None, sections)


def _place(heading: str, lines: set[tuple[str, int]]) -> tuple[Any, ...]:
    """By file and line, forward before backward; sections without a line come last."""
    return (not lines, min(lines, default=("", 0)), heading.startswith("backward "), heading)


def _forest(trace: Trace) -> Forest:
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
    above = numbers(rows["parent"])
    keep = kept.to_numpy() & ~_compiling(trace, rows)
    if keep.all():
        return Forest.of(rows)
    above = take(nearest(above, keep), above)
    rows = rows.with_columns(parent=pl.when(pl.Series(above) >= 0).then(pl.Series(above)))
    return Forest.of(rows.filter(pl.Series(keep)))


def _compiling(trace: Trace, rows: pl.DataFrame) -> np.ndarray:
    """True for rows that began in a phase of the compiler, and for what the GPU did for them."""
    process, thread, start = (numbers(rows[name]) for name in ("process", "thread", "start_ns"))
    inside = innermost(trace.compile_phases, process, thread, start) >= 0
    gpu = rows["kind"].cast(pl.String).is_in(GPU_KINDS).to_numpy()
    above = numbers(rows["parent"])
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
    """The chain of each outermost row of a forest."""

    def __init__(self, forest: Forest) -> None:
        self._sizes, self._depth = counts(forest.root, len(forest.root)), forest.depth
        self._columns = forest.hops.select(
            pl.col("op", "key", "kernel", "kind").cast(pl.String), pl.col("raised").fill_null(False)
        )

    def chain(self, row: int) -> Chain:
        span = slice(row, row + int(self._sizes[row]))
        rows = zip(self._depth[span].tolist(), self._columns[span].iter_rows(), strict=True)
        return folded(_link(level, *cells) for level, cells in rows if level < _DEEPEST)


def _link(level: int, op: str, key: str, kernel: str, kind: str, raised: bool) -> Link:
    """Its text says no more than what a lock holds."""
    if kind in HOP_KINDS:
        op, key, kernel = (visible(name or "") for name in (op, key, kernel))
        return Link(level, kind, op, key, kernel, "raises" if raised else "")
    known = kind in GPU_KINDS or kind in COMPILED_KINDS or kind == "library"
    return Link(level, kind if known else WAIT, visible(op or ""))


class _Names:
    """Lines by file and text, which stay when other lines are inserted above them."""

    def __init__(self, trace: Trace, folder: str | None) -> None:
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
