"""Tracer's own ranges: calls of compiled code, its kernels, phases of the compiler, modules, imports, and
calls that an override left to stock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.base.numerals import number_of
from tracer.trace.bytes.arrays import Numbering, climb, nearest, take
from tracer.trace.bytes.definitions import Definitions
from tracer.trace.tables.distinct import numbered, same
from tracer.trace.tables.ranges import OWN, Columns
from tracer.trace.tables.schema import (
    COMPILE_PHASES,
    COMPILED_CALLS,
    COMPILED_KERNELS,
    IMPORTS,
    MODULE_CALLS,
    Schema,
)
from tracer.trace.tables.series import (
    categories,
    grouped,
    in_order,
    indices,
    lists,
    named,
    nanoseconds,
    nullable,
    numbers,
    texts,
)
from tracer.trace.tables.steps import PHASES, Steps, steps_of_rows
from tracer.trace.tables.texts import longest_that_fits

Index = NDArray[np.int64]

_LIBRARIES = "/(?:site|dist)-packages/"
_FROM_NAME = {"C++": r"cpp_", "Triton": r"triton_"}
_BYTES_OF_NODE = 64
"""In `fused_ops`, `sources` and `nodes`, without its texts"""


@dataclass(frozen=True)
class CompiledTables:
    calls: pl.DataFrame
    kernels: pl.DataFrame
    phases: pl.DataFrame
    modules: pl.DataFrame
    imports: pl.DataFrame
    documents: list[dict[str, Any]] = field(default_factory=list)
    """The description of the region of each call; {}: there is none"""
    handed_over: tuple[Index, list[str]] = field(default_factory=lambda: (np.empty(0, np.int64), []))
    """Rows of hops whose override left the call to stock, and why"""
    functions: pl.DataFrame = field(default_factory=lambda: _functions([], categories([])))
    """See _functions"""


@dataclass(frozen=True)
class _Shared:
    """What the tables are made from."""

    columns: Columns
    kinds: list[str]
    """What each row is: call, kernel, bench, phase, module, import, handed over"""
    texts: list[str]
    """The text of each row after its kind"""
    sources: list[str]
    steps: dict[int, Steps]
    hops: pl.DataFrame
    to_ns: float

    def rows(self, *kinds: str) -> Index:
        return np.flatnonzero(np.array([kind in kinds for kind in self.kinds], np.bool_))

    def frame(self, rows: Index) -> pl.DataFrame:
        """The columns that all of these tables have."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        start, end = nanoseconds(columns["start"], self.to_ns), nanoseconds(columns["end"], self.to_ns)
        step, phase = steps_of_rows(self.steps, columns["process"], start)
        return pl.DataFrame(
            {
                "id": pl.Series(np.arange(len(rows), dtype=np.uint32)),
                "process": columns["process"],
                "thread": columns["thread"],
                "start_ns": start,
                "end_ns": end,
                "called_from": named(self.sources, columns["source"]),
                "hop": indices(innermost(self.hops, columns["process"], columns["thread"], start)),
                "step": nullable(step),
                "phase": named(PHASES, phase),
                "open": columns["open"],
            }
        )

    def above(self, rows: Index, wanted: Index) -> Index:
        """For each of `rows` the place in `wanted` of the innermost of these around it; -1: none."""
        place = np.full(len(self.kinds), -1, np.int64)
        place[wanted] = np.arange(len(wanted))
        parent = self.columns["parent"]
        return take(place, take(nearest(parent, place >= 0), take(parent, rows)))


def compiled_tables(
    columns: Columns,
    names: list[str],
    sources: list[str],
    definitions: Definitions,
    hops: pl.DataFrame,
    steps: dict[int, Steps],
    to_ns: float,
    most: int,
) -> CompiledTables:
    """The tables of tracer's own ranges (`columns`); their order is that of process, thread and start.

    The lists of nodes of all kernels together have at most `most` bytes.
    """
    if not len(columns["start"]):
        schemas = (COMPILED_CALLS, COMPILED_KERNELS, COMPILE_PHASES, MODULE_CALLS, IMPORTS)
        nothing = [pl.DataFrame(schema=schema) for schema in schemas]
        return CompiledTables(nothing[0], nothing[1], nothing[2], nothing[3], nothing[4])
    parts = [names[code].removeprefix(OWN).partition(":") for code in columns["name"].tolist()]
    shared = _Shared(
        columns, [part[0] for part in parts], [part[2] for part in parts], sources, steps, hops, to_ns
    )
    calls = shared.rows("call")
    documents = _documents(shared, calls, definitions)
    calls_table = _calls_table(shared, calls, documents)
    functions = _functions(documents, calls_table["called_from"])
    return CompiledTables(
        calls_table,
        _kernels_table(shared, calls, documents, functions, definitions, most),
        _phases_table(shared),
        _modules_table(shared, "module", MODULE_CALLS),
        _modules_table(shared, "import", IMPORTS),
        documents,
        _handed_over(shared),
        functions,
    )


def with_handed_over(hops: pl.DataFrame, compiled: CompiledTables) -> pl.DataFrame:
    """The hops with the reason why an override left a call to stock, where it did and the trace has it."""
    rows, reasons = compiled.handed_over
    if not len(rows):
        return hops
    numbering: Numbering[str] = Numbering()
    code = np.full(len(hops), -1, np.int32)
    code[rows] = [numbering(reason) for reason in reasons]
    return hops.with_columns(handed_over=named(list(numbering.numbers), code))


def with_compiled_kernels(
    activities: pl.DataFrame, api_calls: pl.DataFrame, kernels: pl.DataFrame
) -> pl.DataFrame:
    """The activities with the run of a compiled kernel that each is of.

    That run launched it, or was captured as its node of a CUDA graph.
    """
    if kernels.is_empty() or activities.is_empty():
        return activities
    places = (api_calls[name].cast(pl.Int64).to_numpy() for name in ("process", "thread", "start_ns"))
    of_calls = innermost(kernels, *places)
    cause = pl.select(
        pl.coalesce(activities["captured_by"], activities["api_call"]).cast(pl.Int64).fill_null(-1)
    )
    found = np.append(of_calls, -1)[cause.to_series().to_numpy()]
    found[(activities["kind"] != "kernel").to_numpy()] = -1
    return activities.with_columns(compiled_kernel=indices(found))


def at_definitions(
    table: pl.DataFrame, call: Index, functions: pl.DataFrame, columns: tuple[str, ...]
) -> pl.DataFrame:
    """Rows in calls of compiled code, with a line of the function (see _functions) for that of its begin.

    The latter is all that Python knows of code that Dynamo generated. `call`: of each row, or -1.
    """
    rows = np.flatnonzero(call >= 0)
    of = functions[call[rows]]
    for column in columns if len(rows) else ():
        begins = same(table[column].gather(rows), of["begin"])
        code = np.full(len(table), -1, np.int64)
        code[rows[begins]], lines = numbered(of["shown"].filter(begins))
        line = named(lines, code)
        table = table.with_columns(
            pl.when(line.is_not_null()).then(line).otherwise(pl.col(column)).alias(column)
        )
    return table


def _functions(documents: list[dict[str, Any]], called_from: pl.Series) -> pl.DataFrame:
    """Of the function of each call: where it begins, with its first decorator, and the line shown for that.

    The line of the `def`; of a function of an installed library the line that called it.
    """
    place = categories(document.get("defined_at") for document in documents)
    begin = categories(document.get("decorated_at") or document.get("defined_at") for document in documents)
    number, names = numbered(place)
    of_library = pl.Series(names, dtype=pl.String).str.contains(_LIBRARIES).to_numpy()
    from_library = pl.Series(np.append(of_library, False)[number])  # of none: number is -1
    shown = pl.when(from_library).then(called_from).otherwise(place)
    return pl.select(begin=begin, shown=shown)


def innermost(table: pl.DataFrame, process: NDArray[Any], thread: NDArray[Any], times: Index) -> Index:
    """The row of `table` that was innermost at each place and time; -1: none.

    `table` has process, thread, start_ns, end_ns and parent; rows of a thread follow each other, by start.
    """
    if not len(table) or not len(times):
        return np.full(len(times), -1, np.int64)
    keys, wanted = _thread_numbers(table["process"].to_numpy(), table["thread"].to_numpy(), process, thread)
    start, end = table["start_ns"].to_numpy(), table["end_ns"].fill_null(1 << 62).to_numpy()
    parent = numbers(table["parent"])
    row = np.full(len(times), -1, np.int64)
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    ends = np.append(begins[1:], len(keys))
    for key, first, last in zip(keys[begins].tolist(), begins.tolist(), ends.tolist(), strict=True):
        of_thread = wanted == key
        place = first + np.searchsorted(start[first:last], times[of_thread], "right") - 1
        row[of_thread] = np.where(place >= first, place, -1)
    return climb(parent, row, lambda at: end[at] <= times)


def _thread_numbers(*columns: NDArray[Any]) -> tuple[Index, Index]:
    process, thread, of_process, of_thread = (column.astype(np.int64) for column in columns)
    return process << 32 | thread, of_process << 32 | of_thread


def _handed_over(shared: _Shared) -> tuple[Index, list[str]]:
    rows = shared.rows("handed over")
    columns = {name: shared.columns[name][rows] for name in ("process", "thread", "start")}
    start = nanoseconds(columns["start"], shared.to_ns)
    hop = innermost(shared.hops, columns["process"], columns["thread"], start)
    known = np.append(shared.hops["override"].is_not_null().to_numpy(), [False])[hop]
    return hop[known], [shared.texts[row] for row in rows[known].tolist()]


def _documents(shared: _Shared, calls: Index, definitions: Definitions) -> list[dict[str, Any]]:
    """The description of each call's region: that of its process, or of the one that it was forked from."""
    known: dict[tuple[int, str], dict[str, Any]] = {}
    found = []
    for row, process in zip(calls.tolist(), shared.columns["process"][calls].tolist(), strict=True):
        key = process, shared.texts[row]
        if key not in known:
            known[key] = _document(definitions, process, f"compiled:{key[1]}")
        found.append(known[key])
    return found


def _document(definitions: Definitions, process: int, kind: str) -> dict[str, Any]:
    """A document of a process, or of the one that it was forked from; {}: there is none."""
    documents = (definitions.documents.get(of, {}).get(kind) for of in definitions.lineage(process))
    return next((document for document in documents if document), {})


def _calls_table(shared: _Shared, calls: Index, documents: list[dict[str, Any]]) -> pl.DataFrame:
    def of(name: str) -> pl.Series:
        return categories([document.get(name) for document in documents])

    numbers = [number_of(shared.texts[row], (1 << 32) - 1) for row in calls.tolist()]
    table = shared.frame(calls).with_columns(
        parent=indices(shared.above(calls, calls)),
        region=pl.Series([number or None for number in numbers], dtype=pl.UInt32),
        **{
            name: of(name)
            for name in (
                *("function", "defined_at", "direction", "compile_id", "cache"),
                *("recompiled", "generated", "artifact", "hidden"),
            )
        },
        graph_id=pl.Series([document.get("graph_id") for document in documents], dtype=pl.Int64),
        kernels=pl.Series([len(document.get("kernels") or {}) for document in documents], dtype=pl.UInt32),
        visible=pl.Series([_is_visible(document) for document in documents], dtype=pl.Boolean),
    )
    return in_order(table, COMPILED_CALLS)


def _is_visible(document: dict[str, Any]) -> bool | None:
    """Whether the calls of all kernels of the region are recorded; None: nothing is known of it."""
    return not document.get("hidden") if document else None


def _kernels_table(
    shared: _Shared,
    calls: Index,
    documents: list[dict[str, Any]],
    functions: pl.DataFrame,
    definitions: Definitions,
    most: int,
) -> pl.DataFrame:
    rows = shared.rows("kernel", "bench")
    call = shared.above(rows, calls)
    tuned = np.array([shared.kinds[row] == "bench" for row in rows.tolist()], np.bool_)
    tuned |= shared.above(rows, shared.rows("bench")) >= 0
    parts = [shared.texts[row].partition("#") for row in rows.tolist()]
    names = [part[0] for part in parts]
    described: dict[tuple[int, str], dict[str, Any]] = {}
    launches = []
    for (_, _, number), process in zip(parts, shared.columns["process"][rows].tolist(), strict=True):
        if (process, number) not in described:
            described[process, number] = _document(definitions, process, f"launch:{number}") if number else {}
        launches.append(described[process, number])
    written = pl.Series([bool(launch.get("defined_at")) for launch in launches], dtype=pl.Boolean)
    seen: dict[tuple[int, str], int] = {}
    origins: dict[tuple[int, str, int], _Origin] = {}
    found: list[_Origin] = []
    for at, name, is_tuning in zip(call.tolist(), names, tuned.tolist(), strict=True):
        document = documents[at] if at >= 0 else {}
        nth = -1 if is_tuning else seen.get((at, name), 0)
        seen[at, name] = nth + 1
        key = id(document), name, nth
        if key not in origins:
            origins[key] = _origin(document, name, nth)
        found.append(origins[key])
    uses = np.bincount([max(len(one.nodes or ()), len(one.ops or ())) for one in found] or [0])
    first = slice(longest_that_fits(uses, most // _BYTES_OF_NODE))
    table = at_definitions(shared.frame(rows), call, functions, ("called_from",)).with_columns(
        compiled_call=indices(call),
        parent=indices(shared.above(rows, rows)),
        name=categories(list(names)),
        autotuning=pl.Series(tuned),
        language=categories(
            [
                origin.language or ("Triton" if part[2] else None)
                for origin, part in zip(found, parts, strict=True)
            ]
        ),
        fused_ops=lists((origin.ops or ())[first] for origin in found),
        source=categories([origin.sources[0] if origin.sources else None for origin in found]),
        sources=lists((origin.sources or ())[first] for origin in found),
        nodes=_nodes([(origin.nodes or ())[first] for origin in found]),
        origin=categories([origin.how for origin in found]),
        generated=categories(
            [
                origin.generated or launch.get("file") or launch.get("defined_at")
                for origin, launch in zip(found, launches, strict=True)
            ]
        ),
        threads=pl.Series([origin.threads for origin in found], dtype=pl.UInt32),
        bytes=pl.Series([origin.bytes for origin in found], dtype=pl.Int64),
        **{
            name: pl.Series([launch.get(name) for launch in launches], dtype=pl.Int64)
            for name in ("registers", "spills", "num_warps")
        },
    )
    of_user = written & pl.col("sources").is_null()
    table = table.with_columns(
        origin=pl.when(of_user).then(pl.lit("written")).otherwise(pl.col("origin").cast(pl.String)),
        source=pl.when(of_user).then("called_from").otherwise("source"),
    )
    return in_order(table, COMPILED_KERNELS)


def _nodes(of_rows: Sequence[Sequence[tuple[str | None, str | None]]]) -> pl.Series:
    """Lists of nodes; null where one is empty."""
    columns = {
        name: texts(node[place] for nodes in of_rows for node in nodes)
        for place, name in enumerate(("op", "source"))
    }
    return grouped(pl.DataFrame(columns).to_struct(), np.array([len(nodes) for nodes in of_rows], np.int64))


@dataclass(frozen=True)
class _Origin:
    """What a run of a kernel is known to come from."""

    language: str | None
    ops: list[str] | None
    sources: list[str] | None
    nodes: list[tuple[str | None, str | None]] | None
    """op and source of each node, without repetition"""
    how: str | None
    generated: str | None
    threads: int | None
    bytes: int | None


def _origin(document: dict[str, Any], name: str, nth: int) -> _Origin:
    """Of the nth run of a kernel in a call of its region; if it has no such place, of all its places."""
    facts = (document.get("kernels") or {}).get(name) or {}
    uses = (document.get("uses") or {}).get(name) or []
    chosen = uses[nth : nth + 1] if 0 <= nth < len(uses) else uses
    nodes = [node for use in chosen for node in use.get("nodes") or ()]
    ops = list(dict.fromkeys(node["op"] for node in nodes if node.get("op")))
    sources = list(dict.fromkeys(node["source"] for node in nodes if node.get("source")))
    pairs = dict.fromkeys((node.get("op"), node.get("source")) for node in nodes)
    how = document.get("how") if nodes else None
    if not nodes and (guessed := _ops_of_name(name)):
        ops, how = guessed, "name"
    sizes = [use.get("bytes") for use in chosen]
    file, line = document.get("generated"), facts.get("line")
    return _Origin(
        language=facts.get("language") or _language_of_name(name),
        ops=ops or None,
        sources=sources or None,
        nodes=list(pairs) or None,
        how=how,
        generated=f"{file}:{line}" if file and line else file,
        threads=facts.get("threads"),
        bytes=sizes[0] if len(set(sizes)) == 1 else None,
    )


def _language_of_name(name: str) -> str | None:
    return next((language for language, begin in _FROM_NAME.items() if name.startswith(begin)), None)


def _ops_of_name(name: str) -> list[str]:
    """`gelu_layer_norm` of `triton_per_fused_gelu_layer_norm_0`: where it splits is not known."""
    _, found, rest = name.partition("_fused_")
    words = rest.rstrip("0123456789").strip("_") if found else ""
    return [words] if words else []


def _phases_table(shared: _Shared) -> pl.DataFrame:
    rows = shared.rows("phase")
    texts = [shared.texts[row].rpartition(":") for row in rows.tolist()]
    table = shared.frame(rows).with_columns(
        name=categories([name for name, _, _ in texts]),
        compile_id=categories([number or None for _, _, number in texts]),
        parent=indices(shared.above(rows, rows)),
        source=pl.col("called_from"),
    )
    return in_order(table, COMPILE_PHASES)


def _modules_table(shared: _Shared, kind: str, schema: Schema) -> pl.DataFrame:
    rows = shared.rows(kind)
    table = shared.frame(rows).with_columns(
        module=categories([shared.texts[row] for row in rows.tolist()]), source=pl.col("called_from")
    )
    return in_order(table, schema)
