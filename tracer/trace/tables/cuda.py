"""The tables of API calls, library calls, GPU activities and devices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.activities import Activities, copy_names
from tracer.trace.bytes.arrays import Codes, lookup, take
from tracer.trace.bytes.definitions import Definitions
from tracer.trace.bytes.format import GPU_KERNEL, GPU_MEMCPY, PROCESS_LANE
from tracer.trace.names.demangle import demangle
from tracer.trace.names.roles import role
from tracer.trace.tables.call_arguments import CallArguments
from tracer.trace.tables.calls import CallColumns
from tracer.trace.tables.gather import Gathered, HopColumns
from tracer.trace.tables.schema import API_CALLS, DEVICES, GPU_ACTIVITIES, GPU_KINDS, LIBRARY_CALLS
from tracer.trace.tables.series import categories, in_order, indices, named, nanoseconds, nullable, numbers
from tracer.trace.tables.stacks import Stacks, library_of_function
from tracer.trace.tables.steps import PHASES, Steps, steps_of_rows

Index = NDArray[np.int64]

_DOMAINS = ["runtime", "driver"]
_KINDS = ["", *GPU_KINDS]
_MORE_FACTS = 64
"""The most facts of a device that are kept although this version does not know them"""


@dataclass
class CallTables:
    api_calls: pl.DataFrame
    library_calls: pl.DataFrame
    ids: Index
    """The id of each row of CallColumns in its table"""


def _sources(calls: CallColumns, hops: HopColumns) -> Codes:
    """The line of the hop around it; in a Python kernel the line that calls, but for backward hops."""
    of_hop, forward = take(hops.source, calls.hop), take(hops.forward, calls.hop)
    sources: Codes = np.where((calls.called_from >= 0) & (forward < 0), calls.called_from, of_hop)
    return sources


def call_tables(
    gathered: Gathered, arguments: CallArguments, stacks: Stacks, steps: dict[int, Steps], to_ns: float
) -> CallTables:
    """Uses the columns of hops for the lines of their calls."""
    calls, vocabulary = gathered.calls, gathered.vocabulary
    is_library = calls.is_library
    ids = np.where(is_library, np.cumsum(is_library), np.cumsum(~is_library)) - 1
    enclosing_library = calls.enclosing(is_library)
    functions = arguments.names()
    start = nanoseconds(calls.start, to_ns)
    step, phase = steps_of_rows(steps, calls.process, start)
    source = _sources(calls, gathered.hops)
    library, library_call = _libraries(calls, functions, stacks)
    shared = pl.DataFrame(
        {
            "id": indices(ids),
            "hop": indices(calls.hop),
            "process": calls.process,
            "thread": calls.thread,
            "name": named(functions, calls.function),
            "start_ns": start,
            "end_ns": nanoseconds(calls.end, to_ns),
            "arguments": arguments.texts(),
            "result": pl.Series(calls.result).set(pl.Series(~calls.returned), None),
            "source": named(list(vocabulary.sources.numbers), source),
            "step": nullable(step),
            "phase": named(PHASES, phase),
            "open": calls.open,
        }
    )
    api = shared.with_columns(
        parent=indices(take(ids, calls.enclosing(~is_library))),
        library_call_id=indices(take(ids, enclosing_library)),
        domain=named(_DOMAINS, calls.is_driver.astype(np.int32)),
        role=categories([role(name) for name in functions]).gather(indices(calls.function)),
        correlation=pl.Series(calls.correlation).set(
            pl.Series(calls.correlation == fmt.NO_CORRELATION), None
        ),
        stack=indices(calls.stack),
        library=library,
        library_call=library_call,
        kernel=named(list(vocabulary.names.numbers), calls.kernel),
        captured=pl.Series(calls.captured),
    )
    library_calls = shared.with_columns(
        parent=indices(take(ids, enclosing_library)),
        library=categories([library_of_function(name) for name in functions]).gather(indices(calls.function)),
    )
    return CallTables(
        api_calls=in_order(api.filter(pl.Series(~is_library)), API_CALLS),
        library_calls=in_order(library_calls.filter(pl.Series(is_library)), LIBRARY_CALLS),
        ids=ids,
    )


def activity_table(
    activities: Activities,
    api_calls: pl.DataFrame,
    definitions: Definitions,
    steps: dict[int, Steps],
    to_ns: float,
) -> pl.DataFrame:
    """Joins the activities to the calls that caused them, and those of graphs to the captured calls."""
    count = len(activities)
    is_kernel = activities.kind == GPU_KERNEL
    known = (activities.start != 0) & (activities.end != 0)
    start, end = nanoseconds(activities.start, to_ns), nanoseconds(activities.end, to_ns)
    call = _calls_of(api_calls, activities.process, activities.correlation)
    captured_by = _capturing_calls(activities, api_calls, definitions)
    hop_of_call = numbers(api_calls["hop"])
    cause = np.where(captured_by >= 0, captured_by, call)
    hop = take(hop_of_call, cause)
    step, phase = steps_of_rows(steps, activities.process, start)
    phases = take(numbers(api_calls["phase"].cast(pl.String).replace_strict(PHASES, [0, 1])), call)
    step = np.where(call >= 0, take(numbers(api_calls["step"]), call), np.where(known, step, -1))
    phase = np.where(call >= 0, phases, np.where(known, phase, -1))

    def of_kernels(values: np.ndarray) -> pl.Series:
        return pl.Series(values).set(pl.Series(~is_kernel), None)

    def triples(values: Index, there: NDArray[np.bool_]) -> pl.Series:
        lists = (
            pl.Series(values.reshape(-1, 3)).arr.to_list()
            if count
            else pl.Series([], dtype=pl.List(pl.Int64))
        )
        return lists.to_frame("x").select(pl.when(pl.Series(there)).then("x")).to_series()

    table = pl.DataFrame(
        {
            "id": pl.Series(np.arange(count, dtype=np.uint32)),
            "api_call": indices(call),
            "hop": indices(hop),
            "captured_by": indices(captured_by),
            "process": activities.process,
            "kind": named(_KINDS, activities.kind.astype(np.int64)),
            "name": _names(activities, definitions, api_calls["kernel"], np.where(is_kernel, cause, -1)),
            "device": activities.device,
            "context": activities.context,
            "stream": activities.stream,
            "start_ns": pl.Series(start).set(pl.Series(~known), None),
            "end_ns": pl.Series(end).set(pl.Series(~known), None),
            "grid": triples(activities.grid, is_kernel),
            "block": triples(activities.block, is_kernel),
            "cluster": triples(activities.cluster, is_kernel & activities.cluster.any(axis=1)),
            "registers": of_kernels(activities.registers),
            "static_shared_bytes": of_kernels(activities.static_shared_bytes),
            "dynamic_shared_bytes": of_kernels(activities.dynamic_shared_bytes),
            "shared_bytes": of_kernels(activities.shared_bytes),
            "local_bytes": of_kernels(activities.local_bytes),
            "bytes": pl.Series(activities.bytes).set(pl.Series(is_kernel), None),
            "graph": pl.Series(activities.graph).set(pl.Series(activities.graph == 0), None),
            "graph_node": pl.Series(activities.graph_node).set(pl.Series(activities.graph_node == 0), None),
            "step": nullable(step),
            "phase": named(PHASES, phase),
            "correlation": activities.correlation,
        }
    )
    return in_order(table, GPU_ACTIVITIES)


def device_table(definitions: Definitions) -> pl.DataFrame:
    """A row for each GPU of each process, a column for each fact that CUPTI tells of it."""
    rows = [
        {**gpu.facts, "process": process, "device": device, "name": gpu.name}
        for process, gpus in sorted(definitions.gpus.items())
        for device, gpu in sorted(gpus.items())
    ]
    more = dict.fromkeys(name for row in rows for name in row if name not in DEVICES)
    columns = {**DEVICES, **dict.fromkeys(list(more)[:_MORE_FACTS], pl.Int64)}
    return pl.DataFrame(rows, schema=columns, strict=False)


def _libraries(calls: CallColumns, functions: list[str], stacks: Stacks) -> tuple[pl.Series, pl.Series]:
    """For each call the library that made it, and its function that was called from outside.

    From the library call around it, the outermost one, else from its stack.
    """
    of_stack = stacks.library_calls()
    libraries = [library_of_function(name) for name in functions] + [library for library, _ in of_stack]
    names = [*functions, *(name for _, name in of_stack)]
    is_library = calls.is_library
    outermost = calls.outermost(is_library)
    by_event = (calls.enclosing(is_library) >= 0) & (take(calls.function, outermost) >= 0)
    by_stack = np.where(calls.stack >= 0, calls.stack + len(functions), -1)
    code = np.where(by_event, take(calls.function, outermost), by_stack)
    return categories(libraries).gather(indices(code)), categories(names).gather(indices(code))


def _calls_of(api_calls: pl.DataFrame, process: NDArray[np.uint32], correlation: NDArray[np.uint32]) -> Index:
    """The API call of each correlation id, the outermost if several have it; -1: none."""
    keys = _keys(
        api_calls["process"].to_numpy(), api_calls["correlation"].fill_null(fmt.NO_CORRELATION).to_numpy()
    )
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    wanted = _keys(process, correlation)
    at = np.searchsorted(keys, wanted)
    found = (correlation != 0) & (at < len(keys))
    at[~found] = 0
    if len(keys):
        found &= keys[at] == wanted
    return np.where(found, take(order, at), -1)


def _keys(process: NDArray[np.uint32], correlation: NDArray[np.uint32]) -> NDArray[np.uint64]:
    return process.astype(np.uint64) << np.uint64(32) | correlation.astype(np.uint64)


def _capturing_calls(activities: Activities, api_calls: pl.DataFrame, definitions: Definitions) -> Index:
    """For the activities of graphs the call that was captured as their node; -1: none."""
    captured = np.full(len(activities), -1, np.int64)
    rows = np.flatnonzero(activities.graph_node)
    if not len(rows):
        return captured
    pairs = np.stack([activities.process[rows].astype(np.uint64), activities.graph_node[rows]], axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    made: dict[tuple[int, int], int] = {}
    correlations = [_correlation(definitions, process, node, made) for process, node in distinct.tolist()]
    calls = _calls_of(api_calls, distinct[:, 0].astype(np.uint32), np.array(correlations, np.uint32))
    captured[rows] = calls[inverse.reshape(-1)]
    return captured


def _correlation(definitions: Definitions, process: int, node: int, made: dict[tuple[int, int], int]) -> int:
    """The correlation id of the call in which a node, or the one that it is a copy of, was made; 0: none.

    `made` has those of nodes on the way, which are copies of the same one.
    """
    nodes = definitions.graph_nodes.get(process, {})
    way = []
    while (process, node) not in made:
        made[process, node] = nodes[node].correlation if node in nodes else 0
        way.append(node)
        if node in nodes and nodes[node].original:
            node = nodes[node].original
    found = made[process, node]
    made.update(((process, copy), found) for copy in way)
    return found


def _names(
    activities: Activities, definitions: Definitions, launched: pl.Series, launches: Index
) -> pl.Series:
    """The names of the activities. `launches`: rows of `launched`, the kernels that calls launched; -1: none.

    What the launch said is right. CUPTI uses the handle of a function, which may be that of another one
    after its module was unloaded: then its records name the former one.
    """
    names: list[str] = ["memset", *copy_names()]
    codes = np.where(activities.kind == GPU_MEMCPY, activities.copy + 1, 0)
    is_kernel = activities.kind == GPU_KERNEL
    for process in np.unique(activities.process).tolist():
        of_process = np.flatnonzero((activities.process == process) & is_kernel)
        strings = definitions.strings.get((process, PROCESS_LANE), {})
        known = {number: len(names) + nth for nth, number in enumerate(strings)}
        names += [demangle(name) for name in strings.values()]
        codes[of_process] = lookup(known, activities.name[of_process])
    said = launched.gather(indices(launches)).cast(pl.String)
    distinct = said.drop_nulls().unique(maintain_order=True).to_list()
    places = {name: len(names) + nth for nth, name in enumerate(distinct)}
    names += [demangle(name) for name in distinct]
    said_code = numbers(said.replace_strict(places, default=None, return_dtype=pl.Int64))
    return named(names, np.where(said_code >= 0, said_code, codes))
