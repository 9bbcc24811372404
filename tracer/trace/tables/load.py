"""A trace as tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from tracer.base import heap, progress
from tracer.trace.bytes.activities import gather_activities
from tracer.trace.bytes.clock import ns_per_tick
from tracer.trace.bytes.contents import Contents
from tracer.trace.bytes.reader import read_recording
from tracer.trace.certificate.compiled import CompiledFindings
from tracer.trace.certificate.cuda import CudaFindings, CudaTables, count_cuda
from tracer.trace.certificate.hops import Findings, build_certificate, stated_certificates
from tracer.trace.names.completion import complete_symbols
from tracer.trace.names.demangle import prepare
from tracer.trace.names.keys import KeyNames, find_key_names
from tracer.trace.names.roles import allocates, loads_code
from tracer.trace.tables.call_arguments import CallArguments
from tracer.trace.tables.compiled import compiled_tables, with_compiled_kernels, with_handed_over
from tracer.trace.tables.compiled_ops import with_lines_of_nodes
from tracer.trace.tables.cuda import CallTables, activity_table, call_tables, device_table
from tracer.trace.tables.gather import Gathered, gather_hops
from tracer.trace.tables.hops import (
    KernelNames,
    hops_table,
    modules_table,
    python_stacks_table,
    scalars_table,
    signatures_table,
)
from tracer.trace.tables.keys import dispatch_keys_table, key_sets_table, thread_keys_table
from tracer.trace.tables.memory import memory_table
from tracer.trace.tables.one_step import read_step
from tracer.trace.tables.overrides import overrides_of
from tracer.trace.tables.ranges import ranges_table, split
from tracer.trace.tables.schema import (
    COMPILE_PHASES,
    COMPILED_CALLS,
    COMPILED_KERNELS,
    DEVICES,
    DISPATCH_KEYS,
    IMPORTS,
    KEY_SETS,
    LIBRARY_CALLS,
    LOADERS,
    MEMORY,
    MODULE_CALLS,
    MODULES,
    OPTIMIZERS,
    PROCESS_GROUPS,
    PROCESSES,
    PYTHON_STACKS,
    RANGES,
    SCALARS,
    SOURCE_LINES,
    STEPS,
    TENSORS,
    THREAD_KEYS,
    THREADS,
    VALUES,
)
from tracer.trace.tables.series import nanoseconds
from tracer.trace.tables.setups import loaders_table, optimizers_table
from tracer.trace.tables.stacks import Stacks
from tracer.trace.tables.steps import Steps, find_steps, steps_table
from tracer.trace.tables.tensors import tensors_table
from tracer.trace.tables.texts import fitted, most_text
from tracer.trace.tables.values import values_table

_LATEST_NS = 1 << 62
"""Of the clock, 146 years after a start: a larger one is no time, and a sum of two must fit a column"""
# Of the time that loading takes, as it was measured of 10 million hops.
_UNTIL_READ, _UNTIL_GATHERED = 0.2, 0.65
_OF_OTHER_DOCUMENTS = ("settings", "cuda")
"""What Trace.environment has from documents that say it, and from nowhere else"""


@dataclass(frozen=True, eq=False)
class Trace:
    """The tables of a trace file; times are nanoseconds since the recording began.

    `hops`, `api_calls` and `library_calls` are ordered by process, thread (the main one first) and start,
    `gpu_activities` by process and start; `id` is the row. Ids of other tables that do not apply
    are null. `signatures` has a row for each tensor, `threads` for each OS thread, `devices` for
    each GPU of each process, `python_stacks` for each distinct stack; its first line is `source`.
    `steps` has a row for each step that ended: its process, number, phase, start and end.
    `ranges` has a row for each range of torch.profiler.record_function.
    `modules` has a row for each nn.Module that was called or contains one, and names the one around it.
    `memory` has a row for each block that torch's allocators gave out or took back, with `--memory`.
    `values` has a row for each hop that returned tensors, with `--values hash`.
    `tensors` has a row for each tensor that an op call got or returned, with `--values scalars`.
    `scalars` has a row for each argument that is no tensor, with `--values scalars`.
    `compiled_calls` has a row for each call of code that torch.compile or AOTInductor made,
    `compiled_kernels` for each run of a kernel in it, and `compile_phases` for each phase of the compiler.
    `module_calls` has a row for each call of an nn.Module that no other one called.
    `imports` has a row for each outermost import of a module that was not loaded.
    `dispatch_keys` has every dispatch key of the torch that was recorded, lowest priority first.
    `key_sets` and `thread_keys` have what the columns of that name in `hops` mean, with `--why`.
    `source_lines` has the text of each line that the column `source` names, as far as it is known.
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
    library_calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LIBRARY_CALLS))
    devices: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=DEVICES))
    python_stacks: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PYTHON_STACKS))
    steps: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=STEPS))
    memory: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MEMORY))
    values: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=VALUES))
    tensors: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=TENSORS))
    scalars: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SCALARS))
    ranges: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=RANGES))
    optimizers: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=OPTIMIZERS))
    loaders: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LOADERS))
    process_groups: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PROCESS_GROUPS))
    modules: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MODULES))
    compiled_calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COMPILED_CALLS))
    compiled_kernels: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COMPILED_KERNELS))
    compile_phases: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COMPILE_PHASES))
    module_calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MODULE_CALLS))
    imports: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=IMPORTS))
    key_sets: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=KEY_SETS))
    dispatch_keys: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=DISPATCH_KEYS))
    thread_keys: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=THREAD_KEYS))
    source_lines: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SOURCE_LINES))
    owner: int = -1
    """The user whose file it is"""
    began_ns: int = 0
    """The clock of the host (CLOCK_MONOTONIC) at time 0"""
    _arguments: tuple[CallArguments, CallTables] | None = None

    def __repr__(self) -> str:
        return f"<Trace {self.path}: {self.certificate['verdict']}>"

    @property
    def only_ops(self) -> list[str]:
        """The patterns of --ops: other ops ran unseen. Empty: `hops` has all that ran while tracer recorded.

        Who says "outside ops", "no op" or "Python" of what is not in `hops` must ask.
        """
        return self.certificate.get("only_ops") or []

    @property
    def whole_run(self) -> bool:
        """Whether what is not in `hops` never ran: they have all ops of the process, from first to last."""
        options = self.environment.get("options") or {}
        narrowed = self.only_ops or options.get("steps")
        launched = self.environment.get("launched") is True
        return launched and not narrowed and bool(self.certificate.get("complete"))

    def without_phases(self) -> Trace:
        """The same trace, with no step marked as warm-up or steady."""
        none = pl.lit(None).alias("phase")

        def of(table: pl.DataFrame) -> pl.DataFrame:
            return table.with_columns(none.cast(table.schema["phase"]))

        return replace(
            self,
            hops=of(self.hops),
            api_calls=of(self.api_calls),
            library_calls=of(self.library_calls),
            gpu_activities=of(self.gpu_activities),
            steps=of(self.steps),
            ranges=of(self.ranges),
            compiled_calls=of(self.compiled_calls),
            compiled_kernels=of(self.compiled_kernels),
            module_calls=of(self.module_calls),
        )

    def arguments(self, function: str) -> pl.DataFrame:
        """The arguments of all calls of an API or library function, a typed column each.

        `id` is that of the call in `api_calls` or `library_calls`. Pointers and handles are
        integers, enumerations the names of their values. What was not recorded of a call is null.

        Raises KeyError where no call of the function was recorded.
        """
        if self._arguments is None:
            raise KeyError(f"no call of {function} was recorded")
        arguments, calls = self._arguments
        return arguments.table(function, calls.ids)


def load(path: str | os.PathLike[str], *, step: int | None = None) -> Trace:
    """Reads a trace file, also one that is still being written, cut off, damaged or packed.

    What cannot be read is counted in `certificate`. Names of functions that a killed process could
    not write are completed in the file, where its libraries are on this machine.

    With `step` only what holds that step of the program is read: every row that has it in its
    column `step`, and some around it. Ids count what was read, `phase` is null, and `certificate`
    holds for what was read and has nothing on CUDA.

    Raises TraceError if the file does not exist, is not a trace, is empty, ends inside its
    header, or is of another format, or has no such step.
    """
    with progress.portion(0.0, _UNTIL_READ):
        recording = read_recording(path) if step is None else read_step(path, step)
    why = complete_symbols(recording)
    prepare(recording.definitions.symbol_names())
    with progress.portion(_UNTIL_READ, _UNTIL_GATHERED):
        gathered = gather_hops(recording)
    vocabulary = gathered.vocabulary
    open_hops, undefined = int(gathered.hops.open.sum()), int((gathered.hops.definition < 0).sum())
    definitions = recording.definitions
    to_ns, clock_known = ns_per_tick(recording.header)
    arguments = CallArguments(gathered.calls, vocabulary.functions, definitions)
    stacks = Stacks(list(vocabulary.stacks.numbers), definitions)
    steps = _steps(gathered, arguments.names(), to_ns)
    if step is not None:  # how long the others took, and what was allocated in them, is not known
        steps = {process: replace(known, first_steady=-1) for process, known in steps.items()}
    calls = call_tables(gathered, arguments, stacks, steps, to_ns)
    activities = activity_table(gather_activities(recording), calls.api_calls, definitions, steps, to_ns)
    keys = find_key_names(definitions)
    first_keys = next(iter(keys.values()), KeyNames.nothing())
    kernels = KernelNames(definitions)
    hop_flags = [definitions.hops[process][hop].flags for process, hop in vocabulary.definitions.numbers]
    values = values_table(gathered.values, gathered.hops.definition, hop_flags)
    most = most_text(recording.end)
    hops = hops_table(gathered, definitions, keys, kernels, list(recording.key_sets), steps, to_ns)
    names = list(vocabulary.names.numbers)
    ranges, own_ranges = split(gathered.ranges, names)
    compiled = compiled_tables(
        own_ranges, names, list(vocabulary.sources.numbers), definitions, hops, steps, to_ns, most
    )
    hops = with_handed_over(with_lines_of_nodes(hops, compiled), compiled)
    activities = with_compiled_kernels(activities, calls.api_calls, compiled.kernels)
    environment = _environment(definitions.documents)
    thread_names = definitions.thread_names
    threads = sorted(gathered.threads | thread_names.keys())
    findings = Findings(
        threads=len(threads),
        hops=len(hops),
        op_calls=int((hops["kind"] == "call").sum()),
        open_hops=open_hops,
        lost_exits=gathered.lost_exits,
        unmatched_exits=gathered.unmatched_exits,
        in_crossing_ranges=gathered.in_crossing_ranges,
        undefined_hops=undefined,
        python_dispatched=int((hops["key"] == "PythonDispatcher").sum()),
        unresolved_kernels=len(kernels.unresolved),
        unresolved_why=tuple(why),
        clock_tick_ns=to_ns if clock_known else None,
        compiled=CompiledFindings(compiled.calls, compiled.kernels, activities),
        cuda=_cuda_findings(recording, gathered, calls, activities, stacks) if step is None else None,
        overrides=overrides_of(definitions, hops, recording.header.start_ns, _only(environment, step)),
        whole=step is None,
    )
    heap.give_back()
    trace = Trace(
        path=recording.path,
        hops=hops,
        signatures=signatures_table(list(vocabulary.signatures.numbers), keys),
        api_calls=calls.api_calls,
        gpu_activities=activities,
        stacks=stacks.table(),
        processes=_processes_table(recording),
        threads=pl.DataFrame(
            [(*thread, thread_names.get(thread)) for thread in threads], THREADS, orient="row"
        ),
        environment=environment,
        certificate=build_certificate(recording, findings),
        library_calls=calls.library_calls,
        devices=device_table(definitions),
        python_stacks=python_stacks_table(list(vocabulary.python_stacks.numbers)),
        steps=steps_table(steps),
        memory=memory_table(gathered.memory, keys, list(vocabulary.sources.numbers), steps, to_ns),
        values=values,
        tensors=tensors_table(gathered.tensors, list(vocabulary.signatures.numbers)),
        scalars=scalars_table(list(vocabulary.signatures.numbers)),
        ranges=ranges_table(ranges, names, steps, to_ns),
        optimizers=optimizers_table(definitions.documents),
        loaders=loaders_table(definitions.documents),
        process_groups=_process_groups_table(recording),
        modules=modules_table(list(vocabulary.modules.numbers)),
        compiled_calls=compiled.calls,
        compiled_kernels=compiled.kernels,
        compile_phases=compiled.phases,
        module_calls=compiled.modules,
        imports=compiled.imports,
        dispatch_keys=dispatch_keys_table(first_keys),
        key_sets=key_sets_table(recording.key_sets if vocabulary.thread_keys.numbers else (), first_keys),
        thread_keys=thread_keys_table(vocabulary.thread_keys.numbers, keys),
        source_lines=_source_lines(definitions.documents),
        owner=recording.owner,
        began_ns=recording.header.start_ns if recording.header.start_ns < _LATEST_NS else 0,
        _arguments=(arguments, calls),
    )
    tables = {name: value for name, value in vars(trace).items() if isinstance(value, pl.DataFrame)}
    shorter: dict[str, Any] = dict(fitted(tables, most))
    return replace(trace, **shorter)


def _only(environment: dict[str, Any], step: int | None) -> str:
    """The options by which the table lacks hops, in words; "" if it has all."""
    if step is not None:
        return f"only step {step} was read"
    options = environment.get("options")
    given = options if isinstance(options, dict) else {}
    names = [name for name in ("ops", "steps", "max_size") if given.get(name)]
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _source_lines(documents: Mapping[int, dict[str, Any]]) -> pl.DataFrame:
    """What the processes knew at their end; where two had different texts for a line, the first one's."""
    rows: dict[str, tuple[str, str, str | None]] = {}
    for process in sorted(documents):
        for file, known in (documents[process].get("source_lines") or {}).items():
            for number, text in (known or {}).get("lines", {}).items():
                rows.setdefault(f"{file}:{number}", (f"{file}:{number}", text, known.get("cell")))
    return pl.DataFrame(list(rows.values()), SOURCE_LINES, orient="row")


def _steps(gathered: Gathered, functions: list[str], to_ns: float) -> dict[int, Steps]:
    if not gathered.steps:
        return {}
    calls, hops = gathered.calls, gathered.hops
    warm = [allocates(name) or loads_code(name) for name in functions]
    warming = np.append(np.array(warm, np.bool_), False)[calls.function] & (calls.result == 0)
    begins: dict[int, int] = {}
    for process in gathered.steps:
        first = [columns.start[columns.process == process] for columns in (hops, calls)]
        begins[process] = int(nanoseconds(np.concatenate(first), to_ns).min(initial=np.iinfo(np.int64).max))
    return find_steps(
        {process: ends.in_nanoseconds(to_ns) for process, ends in gathered.steps.items()},
        begins,
        {
            process: nanoseconds(calls.start[warming & (calls.process == process)], to_ns)
            for process in gathered.steps
        },
    )


def _cuda_findings(
    recording: Contents, gathered: Gathered, calls: CallTables, activities: pl.DataFrame, stacks: Stacks
) -> CudaFindings | None:
    stated = {
        process: document["cuda"] if isinstance(document.get("cuda"), dict) else {}
        for process, document in stated_certificates(recording).items()
    }
    tables = CudaTables(
        calls.api_calls,
        calls.library_calls,
        activities,
        stacks.callers(),
        gathered.lost_call_exits,
        gathered.unmatched_call_exits,
    )
    header = recording.header
    overwritten = header.overwritten_calls, header.overwritten_activities
    return count_cuda(stated, tables, overwritten=overwritten)


def _environment(documents: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """That of the first process that wrote one, with its settings and the versions of CUDA of any process."""
    first = next((p for p in sorted(documents) if isinstance(documents[p].get("environment"), dict)), None)
    given = {} if first is None else documents[first]["environment"]
    environment = {name: fact for name, fact in given.items() if name not in _OF_OTHER_DOCUMENTS}
    if first is not None and isinstance(documents[first].get("settings"), dict):
        environment = {**environment, "settings": documents[first]["settings"]}
    for process in sorted(documents):
        certificate = documents[process].get("certificate")
        cuda = certificate.get("cuda") if isinstance(certificate, dict) else None
        if isinstance(cuda, dict) and cuda.get("driver_version"):
            versions = {
                "runtime": environment.get("torch_cuda"),
                "driver": _version(cuda["driver_version"], 1000),
                "cupti": _version(cuda.get("cupti"), 10000),
            }
            return {**environment, "cuda": versions}
    return environment


def _version(number: object, major: int) -> str | None:
    """13000 or 130001, as CUDA and CUPTI number versions: 13.0"""
    if not isinstance(number, int):
        return None
    return f"{number // major}.{number % major // (major // 100)}"


def _processes_table(recording: Contents) -> pl.DataFrame:
    defined = recording.definitions.processes
    rows: list[tuple[Any, ...]] = []
    for process in sorted(recording.pids.keys() | defined.keys()):
        rank = recording.definitions.documents.get(process, {}).get("rank") or {}
        place = tuple(rank.get(name) for name in ("rank", "ranks", "host", "boot", "restarts"))
        if process in defined:
            _, pid, _, how, command = defined[process]
            rows.append((process, pid, how, command, *place))
        else:
            rows.append((process, recording.pids[process], None, None, *place))
    return pl.DataFrame(rows, PROCESSES, orient="row")


def _process_groups_table(recording: Contents) -> pl.DataFrame:
    rows = [
        (process, name, group.get("description"), group.get("ranks"))
        for process, documents in sorted(recording.definitions.documents.items())
        for name, group in ((documents.get("rank") or {}).get("groups") or {}).items()
    ]
    return pl.DataFrame(rows, PROCESS_GROUPS, orient="row")
