"""The tables of hops and of the signatures of their inputs."""

from __future__ import annotations

import os

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.definitions import (
    Definitions,
    HopDefinition,
    ModulePath,
    PythonStack,
    ScalarDefinition,
    Signature,
)
from tracer.trace.names.demangle import kernel_name
from tracer.trace.names.kernels import node_name
from tracer.trace.names.keys import KeyNames
from tracer.trace.names.libraries import Libraries
from tracer.trace.names.modules import module_texts, modules_around
from tracer.trace.tables.gather import Gathered, HopColumns
from tracer.trace.tables.overrides import OverrideNames
from tracer.trace.tables.schema import (
    HOP_KINDS,
    HOPS,
    MODULES,
    PYTHON_STACKS,
    SCALARS,
    SIGNATURES,
    STRING,
)
from tracer.trace.tables.series import (
    categories,
    in_order,
    indices,
    lists,
    named,
    nanoseconds,
    nullable,
    slices,
)
from tracer.trace.tables.steps import PHASES, Steps, steps_of_rows


class KernelNames:
    """Names of kernel functions, and the addresses without a name."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._libraries = Libraries(definitions)
        self.unresolved: set[tuple[int, int]] = set()

    def name(self, process: int, hop: HopDefinition) -> str | None:
        address = hop.kernel_address
        if hop.python_kernel:
            return hop.python_kernel
        if not address:
            return None
        known = self._definitions.symbol(process, address)
        if known and known.symbol:
            return kernel_name(known.symbol, hop.rule)
        self.unresolved.add((process, address))
        if known and known.library:
            return f"{os.path.basename(known.library)}+{known.offset:#x}"
        return self._libraries.of(process).offset(address)


def hops_table(
    gathered: Gathered,
    definitions: Definitions,
    keys: dict[int, KeyNames],
    kernels: KernelNames,
    key_sets: list[int],
    steps: dict[int, Steps],
    to_ns: float,
) -> pl.DataFrame:
    """Empties the columns of hops one by one: both do not fit into memory as well as one of them does."""
    columns, vocabulary = gathered.hops, gathered.vocabulary
    count = len(columns.start)
    start, end = nanoseconds(columns.taken("start"), to_ns), nanoseconds(columns.taken("end"), to_ns)
    step, phase = steps_of_rows(steps, columns.process, start)
    defined = list(vocabulary.definitions.numbers)
    rows = [definitions.hops[process][hop] for process, hop in defined]
    overrides = OverrideNames(definitions)
    hop_row = indices(columns.definition)
    sources = list(vocabulary.sources.numbers)

    def of_definition(values: list[str | None]) -> pl.Series:
        return categories([value or None for value in values]).gather(hop_row)

    op = of_definition([row.op for row in rows])
    kind, key = _kinds(columns, op, key_sets), _keys(columns, rows, keys, key_sets)
    key_set = columns.taken("key_set")
    columns.taken("call_site"), columns.taken("definition")
    self_ns = _self_times(start, end, columns.parent)
    table = pl.DataFrame(
        {
            "id": pl.Series(np.arange(count, dtype=np.uint32)),
            "parent": indices(columns.taken("parent")),
            "process": columns.taken("process"),
            "thread": columns.taken("thread"),
            "kind": kind,
            "op": op,
            "key": key,
            "kernel": of_definition(
                [kernels.name(process, row) for (process, _), row in zip(defined, rows, strict=True)]
            ),
            "registered_at": of_definition([row.registered_at for row in rows]),
            "rule": of_definition([row.rule for row in rows]),
            "start_ns": start,
            "end_ns": end,
            "self_ns": self_ns,
            "inputs": indices(columns.taken("signature")),
            "source": named(sources, columns.taken("source")),
            "called_from": named(sources, columns.taken("called_from")),
            "python_stack": indices(columns.taken("python_stack")),
            "module": named(module_texts(list(vocabulary.modules.numbers)), columns.taken("module")),
            "range": named(list(vocabulary.names.numbers), columns.taken("range")),
            "sequence_nr": nullable(columns.taken("sequence")),
            "backward_node": named(
                [node_name(name) for name in vocabulary.names.numbers], columns.taken("node")
            ),
            "forward_hop": indices(columns.taken("forward")),
            "raised": columns.taken("raised"),
            "override": of_definition(
                [overrides.name(process, row) for (process, _), row in zip(defined, rows, strict=True)]
            ),
            "step": nullable(step),
            "phase": named(PHASES, phase),
            **_why(columns, key_set),
            "open": columns.taken("open"),
        }
    )
    return in_order(table, HOPS)


def _why(columns: HopColumns, key_set: NDArray[np.uint32]) -> dict[str, pl.Series]:
    """Which keys each hop had and its thread added and hid, where a recording has the latter."""
    if columns.thread_keys is None:
        return {}
    return {"key_set": pl.Series(key_set), "thread_keys": indices(columns.thread_keys)}


def _kinds(columns: HopColumns, op: pl.Series, key_sets: list[int]) -> pl.Series:
    codes = op.to_physical()
    enclosing = codes.gather(indices(columns.parent))
    same = (codes == enclosing).fill_null(False).to_numpy()
    level = priorities(key_sets)[columns.key_set]
    below = level < level[columns.parent] if len(level) else same
    return named(
        list(HOP_KINDS), is_redispatch(columns.call_site, same_op=same, below=below).astype(np.int32)
    )


def priorities(key_sets: list[int]) -> NDArray[np.int64]:
    """Of each key set a number that is larger where its highest functionality comes earlier."""
    return np.array([key_set.bit_length() for key_set in key_sets], np.int64)


def is_redispatch(
    call_site: NDArray[np.integer], *, same_op: NDArray[np.bool_], below: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Whether a hop continues the op call of the hop around it.

    If the code that called it has not asked torch's profiler: if it has the same op, which a fallback
    may pass on at a key as high. If that code does not tell: if it has the same op, at a key below that
    hop's. An operator that calls itself begins again at a key as high.
    """
    by_op = (call_site == fmt.UNASKED) | (call_site == fmt.BY_PARENT) & below
    redispatch: NDArray[np.bool_] = (call_site == fmt.REDISPATCH) | by_op & same_op
    return redispatch


def _keys(
    columns: HopColumns,
    rows: list[HopDefinition],
    keys: dict[int, KeyNames],
    key_sets: list[int],
) -> pl.Series:
    """The highest key of each key set; the key of the table entry where its name is unknown."""
    entry = categories([row.key or None for row in rows]).gather(indices(columns.definition))
    found = pl.Series([None], dtype=STRING).new_from_index(0, 0)
    for process in np.unique(columns.process).tolist():
        first, last = np.searchsorted(columns.process, [process, process + 1])
        names = keys.get(process)
        codes = columns.key_set[first:last]
        used = np.flatnonzero(np.bincount(codes))
        values = [names.highest(key_sets[code]) if names else None for code in used.tolist()]
        place = np.zeros(int(used[-1]) + 1, np.uint32)
        place[used] = np.arange(len(used))
        found = found.append(categories(values).gather(place[codes]))
    return pl.select(pl.coalesce(found, entry)).to_series() if len(found) else entry


def _self_times(
    start: NDArray[np.int64], end: NDArray[np.int64], parent: NDArray[np.int64]
) -> NDArray[np.int64]:
    self_times = end - start
    for part in slices(len(start)):
        inner = np.flatnonzero(parent[part] >= 0)
        if not len(inner):
            continue
        above, duration = parent[part][inner], end[part][inner] - start[part][inner]
        first = int(above.min())
        nested = np.bincount(above - first, weights=duration).astype(np.int64)
        self_times[first : first + len(nested)] -= nested
    return np.maximum(self_times, 0, out=self_times)


def python_stacks_table(stacks: list[PythonStack]) -> pl.DataFrame:
    return in_order(pl.DataFrame({"id": range(len(stacks)), "frames": lists(stacks)}), PYTHON_STACKS)


def modules_table(paths: list[ModulePath]) -> pl.DataFrame:
    return pl.DataFrame(list(modules_around(paths).items()), MODULES, orient="row")


def scalars_table(signatures: list[Signature]) -> pl.DataFrame:
    rows = [
        (number, argument.position, argument.value)
        for number, signature in enumerate(signatures)
        for argument in signature
        if isinstance(argument, ScalarDefinition)
    ]
    return pl.DataFrame(rows, SCALARS, orient="row")


def signatures_table(signatures: list[Signature], keys: dict[int, KeyNames]) -> pl.DataFrame:
    names = next(iter(keys.values()), KeyNames.nothing())
    rows = []
    texts: dict[int, str] = {}
    for number, signature in enumerate(signatures):
        for tensor in signature:
            if isinstance(tensor, ScalarDefinition):
                continue
            defined = not tensor.flags & fmt.UNDEFINED
            rows.append(
                (
                    number,
                    tensor.position,
                    tensor.shape if defined else None,
                    tensor.stride if defined else None,
                    names.dtype(tensor.dtype),
                    names.device(tensor.device_type, tensor.device_index) if defined else None,
                    bool(tensor.flags & fmt.REQUIRES_GRAD),
                    names.layout(tensor.layout),
                    texts.setdefault(tensor.key_set, ", ".join(names.names(tensor.key_set))),
                    tensor.list_length,
                )
            )
    transposed = zip(*rows, strict=True) if rows else [()] * len(SIGNATURES)
    return pl.DataFrame(
        [
            categories(values).alias(name) if dtype is STRING else pl.Series(name, list(values), dtype)
            for (name, dtype), values in zip(SIGNATURES.items(), transposed, strict=True)
        ]
    )
