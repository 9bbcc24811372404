"""A trace as tables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace import format as fmt
from tracer.trace.certificate import Findings, build_certificate
from tracer.trace.completion import complete_symbols, library_offset
from tracer.trace.definitions import Definitions, HopDefinition, Signature
from tracer.trace.hops import Codes, Gathered, HopColumns, gather_hops
from tracer.trace.keys import KeyNames, find_key_names
from tracer.trace.names import kernel_name, node_name
from tracer.trace.reader import Recording, read_recording
from tracer.trace.schema import (
    API_CALLS,
    GPU_ACTIVITIES,
    HOPS,
    ID,
    PROCESSES,
    SIGNATURES,
    STACKS,
    STRING,
    THREADS,
)


@dataclass(frozen=True, eq=False)
class Trace:
    """What a trace file holds; times are nanoseconds since the recording began.

    `hops` is ordered by process, thread and start, and `id` is the row. Ids of other tables that
    do not apply are null. `signatures` has a row for each tensor, `threads` for each OS thread.
    """

    path: str
    hops: pl.DataFrame
    signatures: pl.DataFrame
    api_calls: pl.DataFrame
    gpu_activities: pl.DataFrame
    stacks: pl.DataFrame
    processes: pl.DataFrame
    threads: pl.DataFrame
    environment: dict[str, Any]
    certificate: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Trace {self.path}: {self.certificate['verdict']}>"


def load(path: str | os.PathLike[str]) -> Trace:
    """Reads a trace file, also one that is being written, was cut or is damaged.

    What cannot be read is counted in `certificate`. Names of kernel functions that a killed
    process could not write are completed in the file, where its libraries are on this machine.

    Raises TraceError if there is no such file, or it is no trace, is empty, is cut within its
    header, or is of a newer format.
    """
    recording = read_recording(path)
    why = complete_symbols(recording)
    gathered = gather_hops(recording)
    columns, vocabulary = gathered.hops, gathered.vocabulary
    definitions = recording.definitions
    keys = find_key_names(definitions)
    kernels = _Kernels(definitions)
    to_ns, clock_known = _clock(recording.header)
    hops = _hops_table(gathered, definitions, keys, kernels, list(recording.key_sets), to_ns)
    thread_names = definitions.thread_names
    threads = sorted(gathered.threads | thread_names.keys())
    findings = Findings(
        threads=len(threads),
        hops=len(hops),
        op_calls=int((hops["kind"] == "call").sum()),
        open_hops=int(columns.open.sum()),
        lost_exits=gathered.lost_exits,
        unmatched_exits=gathered.unmatched_exits,
        undefined_hops=int((columns.definition < 0).sum()),
        unresolved_kernels=len(kernels.unresolved),
        unresolved_why=tuple(why),
        clock_known=clock_known,
    )
    documents = definitions.documents
    environment = next(
        (
            document
            for process in sorted(documents)
            if isinstance(document := documents[process].get("environment"), dict)
        ),
        {},
    )
    return Trace(
        path=recording.path,
        hops=hops,
        signatures=_signatures_table(list(vocabulary.signatures.numbers), keys),
        api_calls=pl.DataFrame(schema=API_CALLS),
        gpu_activities=pl.DataFrame(schema=GPU_ACTIVITIES),
        stacks=pl.DataFrame(schema=STACKS),
        processes=_processes_table(recording),
        threads=pl.DataFrame(
            [(*thread, thread_names.get(thread)) for thread in threads], THREADS, orient="row"
        ),
        environment=environment,
        certificate=build_certificate(recording, findings),
    )


class _Kernels:
    """Names of kernel functions, and the addresses for which there is none."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self.unresolved: set[tuple[int, int]] = set()

    def name(self, process: int, hop: HopDefinition) -> str | None:
        address = hop.kernel_address
        if hop.python_kernel:
            return hop.python_kernel
        if not address:
            return None
        symbols = self._definitions.symbols
        lineage = self._definitions.lineage(process)
        known = next(
            (symbols[owner][address] for owner in lineage if address in symbols.get(owner, {})), None
        )
        if known and known.symbol:
            return kernel_name(known.symbol, hop.rule)
        self.unresolved.add((process, address))
        if known and known.library:
            return f"{os.path.basename(known.library)}+{known.offset:#x}"
        return library_offset(self._definitions, process, address)


def _hops_table(
    gathered: Gathered,
    definitions: Definitions,
    keys: dict[int, KeyNames],
    kernels: _Kernels,
    key_sets: list[int],
    to_ns: float,
) -> pl.DataFrame:
    columns, vocabulary = gathered.hops, gathered.vocabulary
    count = len(columns.start)
    start, end = _nanoseconds(columns.start, to_ns), _nanoseconds(columns.end, to_ns)
    columns.start = columns.end = start[:0]
    defined = list(vocabulary.definitions.numbers)
    rows = [definitions.hops[process][hop] for process, hop in defined]
    hop_row = _indices(columns.definition)

    def of_definition(values: list[str | None]) -> pl.Series:
        return _categories([value or None for value in values]).gather(hop_row)

    op = of_definition([row.op for row in rows])
    table = pl.DataFrame(
        {
            "id": pl.Series(np.arange(count, dtype=np.uint32)),
            "parent": _indices(columns.parent),
            "process": columns.process,
            "thread": columns.thread,
            "kind": _kinds(columns, op),
            "op": op,
            "key": _keys(columns, rows, keys, key_sets),
            "kernel": of_definition(
                [kernels.name(process, row) for (process, _), row in zip(defined, rows, strict=True)]
            ),
            "registered_at": of_definition([row.registered_at for row in rows]),
            "rule": of_definition([row.rule for row in rows]),
            "start_ns": start,
            "end_ns": end,
            "self_ns": _self_times(start, end, columns.parent),
            "inputs": _indices(columns.signature),
            "source": _named(list(vocabulary.sources.numbers), columns.source),
            "called_from": _named(list(vocabulary.sources.numbers), columns.called_from),
            "range": _named(list(vocabulary.names.numbers), columns.range),
            "sequence_nr": _nullable(columns.sequence),
            "backward_node": _named([node_name(name) for name in vocabulary.names.numbers], columns.node),
            "forward_hop": _indices(columns.forward),
            "raised": columns.raised,
            "open": columns.open,
        }
    )
    missing = [
        pl.Series(name, [None], dtype).new_from_index(0, count)
        for name, dtype in HOPS.items()
        if name not in table.columns
    ]
    return table.with_columns(missing).select(list(HOPS))


def _kinds(columns: HopColumns, op: pl.Series) -> pl.Series:
    codes = op.to_physical()
    enclosing = codes.gather(_indices(columns.parent))
    same = (codes == enclosing).fill_null(False).to_numpy()
    is_redispatch = (columns.call_site == fmt.REDISPATCH) | ((columns.call_site == fmt.BY_PARENT) & same)
    return _named(["call", "redispatch"], is_redispatch.astype(np.int32))


def _keys(
    columns: HopColumns,
    rows: list[HopDefinition],
    keys: dict[int, KeyNames],
    key_sets: list[int],
) -> pl.Series:
    """The highest key of each key set; the key of the table entry where its name is unknown."""
    entry = _categories([row.key or None for row in rows]).gather(_indices(columns.definition))
    found = pl.Series([None], dtype=STRING).new_from_index(0, 0)
    for process in np.unique(columns.process).tolist():
        first, last = np.searchsorted(columns.process, [process, process + 1])
        names = keys.get(process)
        values = [names.highest(key_set) if names else None for key_set in key_sets]
        part = _categories(values or [None]).gather(columns.key_set[first:last])
        found = found.append(part)
    return pl.select(pl.coalesce(found, entry)).to_series() if len(found) else entry


def _self_times(
    start: NDArray[np.int64], end: NDArray[np.int64], parent: NDArray[np.int64]
) -> NDArray[np.int64]:
    duration = end - start
    inner = np.flatnonzero(parent >= 0)
    nested = np.bincount(parent[inner], weights=duration[inner], minlength=len(start))
    self_times: NDArray[np.int64] = np.maximum(duration - nested.astype(np.int64), 0)
    return self_times


def _signatures_table(signatures: list[Signature], keys: dict[int, KeyNames]) -> pl.DataFrame:
    names = next(iter(keys.values()), KeyNames.nothing())
    rows = []
    for number, signature in enumerate(signatures):
        for tensor in signature:
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
                )
            )
    transposed = zip(*rows, strict=True) if rows else [()] * len(SIGNATURES)
    return pl.DataFrame(
        [
            pl.Series(name, list(values), dtype)
            for (name, dtype), values in zip(SIGNATURES.items(), transposed, strict=True)
        ]
    )


def _processes_table(recording: Recording) -> pl.DataFrame:
    defined = recording.definitions.processes
    rows: list[tuple[int, int, str | None, str | None]] = []
    for process in sorted(recording.pids.keys() | defined.keys()):
        if process in defined:
            _, pid, _, how, command = defined[process]
            rows.append((process, pid, how, command))
        else:
            rows.append((process, recording.pids[process], None, None))
    return pl.DataFrame(rows, PROCESSES, orient="row")


def _clock(header: fmt.FileHeader) -> tuple[float, bool]:
    """Nanoseconds of a tick, and whether they are known."""
    if header.clock == fmt.MONOTONIC:
        return 1.0, True
    ticks = header.last_ticks - header.start_ticks
    elapsed = header.last_ns - header.start_ns
    if ticks <= 0 or elapsed <= 0 or not 1e-3 < elapsed / ticks < 1e3:
        return 1.0, False
    return elapsed / ticks, True


def _nanoseconds(ticks: NDArray[np.int64], to_ns: float) -> NDArray[np.int64]:
    if to_ns == 1.0:
        return ticks
    nanoseconds: NDArray[np.int64] = np.minimum(ticks * to_ns, float(1 << 62)).astype(np.int64)
    return nanoseconds


def _categories(values: list[str | None]) -> pl.Series:
    return pl.Series(values, dtype=STRING)


def _named(values: list[str], codes: Codes) -> pl.Series:
    return _categories(list(values)).gather(_indices(codes))


def _indices(rows: NDArray[Any]) -> pl.Series:
    return _nullable(rows).cast(ID)


def _nullable(values: NDArray[Any]) -> pl.Series:
    series = pl.Series(values)
    return series.set(series < 0, None) if len(values) and values.min() < 0 else series
