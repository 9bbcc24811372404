"""One rank in small tables: how many rows they have depends on what ran, not on how often it ran.

The exceptions are `calls`, `lines`, `messages` and `steps`: rows for each call of another rank, and step.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.job.collectives import CALLS, collectives_of
from tracer.analysis.job.lines_before import LINES, lines_before
from tracer.analysis.job.messages import CALLS as MESSAGE_CALLS
from tracer.analysis.job.messages import message_calls
from tracer.analysis.job.numbering import whole_from
from tracer.analysis.job.outstanding import MOMENT, moment
from tracer.analysis.job.overlap import Overlap, overlap_of
from tracer.analysis.job.part import RankPart
from tracer.analysis.job.ranks import ranks_of
from tracer.analysis.job.schedule import SCHEDULE, schedule_of
from tracer.analysis.memory_use import memory_use
from tracer.analysis.source_lines import SourceLines

if TYPE_CHECKING:
    from tracer.trace import Trace

Schema = dict[str, "pl.DataType | type[pl.DataType]"]
_MOST = (1 << 63) - 1
"""That a column of integers holds"""
NO_RANK = -1
"""The rank of a trace that says none"""

RANK: Schema = {
    "trace": pl.String,
    "process": pl.Int64,
    "pid": pl.Int64,
    "ranks": pl.Int64,
    "restarts": pl.Int64,
    "boot": pl.String,
    "began_ns": pl.Int64,
    "torch": pl.String,
    "python": pl.String,
    "hops": pl.Int64,
    "op_calls": pl.Int64,
    "open_hops": pl.Int64,
    "op_ns": pl.Int64,
    "kernels": pl.Int64,
    "kernel_ns": pl.Int64,
    "collective_calls": pl.Int64,
    "steps": pl.Int64,
    "step_ns": pl.Int64,
    "peak_bytes": pl.Int64,
    "complete": pl.Boolean,
    "whole_dump": pl.Boolean,
    "dumps_left_out": pl.Int64,
    "verdict": pl.String,
    "only_ops": pl.List(pl.String),
    "error": pl.String,
    "whole_from_ns": pl.Int64,
    **MOMENT,
    **SCHEDULE,
}
OPS: Schema = {
    "op": pl.String,
    "key": pl.String,
    "calls": pl.Int64,
    "hops": pl.Int64,
    "self_ns": pl.Int64,
    "total_ns": pl.Int64,
    "longest_ns": pl.Int64,
    "gpu_ns": pl.Int64,
}
KERNELS: Schema = {"kernel": pl.String, "runs": pl.Int64, "total_ns": pl.Int64, "longest_ns": pl.Int64}
GROUPS: Schema = {
    "group": pl.String,
    "description": pl.String,
    "op": pl.String,
    "calls": pl.Int64,
    "bytes": pl.Int64,
    "first_ns": pl.Int64,
    "last_ns": pl.Int64,
}
RANK_CALLS: Schema = {name: kind for name, kind in CALLS.items() if name not in ("rank", "hop")}
STEPS: Schema = {"step": pl.Int64, "phase": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
MEMORY: Schema = {
    "device": pl.String,
    "peak_bytes": pl.Int64,
    "peak_step": pl.Int64,
    "allocated_bytes": pl.Int64,
    "blocks": pl.Int64,
    "end_bytes": pl.Int64,
    "most_line": pl.String,
    "most_bytes": pl.Int64,
}
OVERLAP: Schema = {field.name: pl.Int64 for field in fields(Overlap)}
CERTIFICATE: Schema = {"complete": pl.Boolean, "verdict": pl.String, "certificate": pl.String}
SCHEMAS: dict[str, Schema] = {
    "ranks": RANK,
    "ops": OPS,
    "kernels": KERNELS,
    "groups": GROUPS,
    "calls": RANK_CALLS,
    "lines": LINES,
    "messages": MESSAGE_CALLS,
    "steps": STEPS,
    "memory": MEMORY,
    "overlap": OVERLAP,
    "certificates": CERTIFICATE,
}


def parts_of(trace: Trace) -> list[RankPart]:
    """The ranks in a trace; of one that says no rank its first process, as rank NO_RANK."""
    found = ranks_of(trace)
    if found:
        return found
    first = trace.processes.sort("process").head(1)
    process = first["process"][0] if len(first) else 0
    host = (trace.environment or {}).get("host")
    return [RankPart(NO_RANK, 0, str(host or ""), "", trace.began_ns, process, trace)]


def partial_tables(part: RankPart, trace: Trace, name: str, dumps: int = 0) -> dict[str, pl.DataFrame]:
    """The tables of SCHEMAS of one rank, rows in an order that depends on nothing but the trace.

    ranks         one row: what the rank is, and how much is in its trace. `trace` is `name`; op_ns is self
                  time of all hops, step_ns the median of the steady steps (of all where none is steady),
                  peak_bytes the most of one device (null: recorded without --memory), whole_from_ns see
                  job.numbering.whole_from, whole_dump whether it is a dump that lacks
                  only what its ring overwrote, dumps_left_out (`dumps`) how many dumps of the same
                  recording were not read as this trace was, and where a dumped rank was: see
                  job.outstanding.MOMENT, job.schedule.SCHEDULE
    ops           a row for each op and dispatch key: op calls, hops, self time, time of the op calls with all
                  below, the longest hop, and the device kernels below
    kernels       a row for each device kernel
    groups        a row for each process group (with its description, as DeviceMesh gives it: `mesh_dp`) and
                  collective op: calls, bytes, first start and last end
    calls         a row for each collective call, see job.collectives.collectives_of, by group and number
    lines         what took time before each collective call: see job.lines_before
    messages      a row for each send and receive: see job.messages.message_calls
    steps         a row for each step
    memory        a row for each device; most_line had most at the peak, most_bytes then
    overlap       a row if the GPU ran kernels of NCCL: see job.overlap.Overlap
    certificates  one row: the certificate as JSON

    Times are nanoseconds since the trace began.
    """
    of_process = pl.col("process") == part.process
    hops = trace.hops.filter(of_process)
    kernels = trace.gpu_activities.filter(of_process & (pl.col("kind").cast(pl.String) == "kernel"))
    calls = collectives_of(part)
    sources = SourceLines.of(trace)
    steps = _steps(trace.steps.filter(of_process))
    memory = _memory(part, trace)
    tables = {
        "ops": _ops(hops, kernels),
        "kernels": _kernels(kernels),
        "groups": _groups(calls, trace.process_groups.filter(of_process)),
        "calls": _named(calls.sort("group", "number", "start_ns"), sources, "source"),
        "lines": _named(lines_before(part, calls), sources, "before", "after"),
        "messages": _named(message_calls(part), sources, "source", "before", "after"),
        "steps": steps,
        "memory": _named(memory, sources, "most_line"),
        "overlap": pl.DataFrame([asdict(found)] if (found := overlap_of(part)) else [], OVERLAP),
        "certificates": pl.DataFrame(
            {
                "complete": [bool(trace.certificate["complete"])],
                "verdict": [str(trace.certificate["verdict"])],
                "certificate": [json.dumps(trace.certificate, sort_keys=True, default=str)],
            }
        ),
        "ranks": _named(
            _rank(part, trace, name, dumps, hops, kernels, calls, steps, memory),
            sources,
            "op_line",
            "op_next",
            "launched",
        ),
    }
    return {name: _typed(tables[name], schema) for name, schema in SCHEMAS.items()}


def unread_tables(name: str, error: str) -> dict[str, pl.DataFrame]:
    """The tables of a trace that could not be read: one row that says why, and nothing else."""
    row = {"trace": name, "complete": False, "dumps_left_out": 0, "verdict": "not read", "error": error}
    rows = pl.DataFrame([{column: row.get(column) for column in RANK}], schema=RANK)
    return {table: pl.DataFrame(schema=schema) for table, schema in SCHEMAS.items()} | {"ranks": rows}


def _typed(table: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    return table.select(pl.col(name).cast(kind) for name, kind in schema.items())


def _rank(
    part: RankPart,
    trace: Trace,
    name: str,
    dumps: int,
    hops: pl.DataFrame,
    kernels: pl.DataFrame,
    calls: pl.DataFrame,
    steps: pl.DataFrame,
    memory: pl.DataFrame,
) -> pl.DataFrame:
    steady = steps.filter(pl.col("phase") == "steady")
    lengths = (steady if len(steady) else steps).select(pl.col("end_ns") - pl.col("start_ns")).to_series()
    pids = trace.processes.filter(pl.col("process") == part.process)["pid"]
    environment = trace.environment or {}
    row = {
        "trace": name,
        "process": part.process,
        "pid": pids[0] if len(pids) else None,
        "ranks": part.ranks,
        "restarts": part.restarts,
        "boot": part.boot,
        "began_ns": part.began_ns,
        "torch": _text(environment.get("torch")),
        "python": _text(environment.get("python")),
        "hops": len(hops),
        "op_calls": int((hops["kind"] == "call").sum()),
        "open_hops": int(hops["open"].sum()),
        "op_ns": int(hops["self_ns"].sum()),
        "kernels": len(kernels),
        "kernel_ns": int((kernels["end_ns"] - kernels["start_ns"]).sum()),
        "collective_calls": len(calls),
        "steps": len(steps),
        "step_ns": int(lengths.median()) if len(lengths) else None,  # type: ignore[arg-type]
        "peak_bytes": memory["peak_bytes"].max() if len(memory) else None,
        "complete": bool(trace.certificate["complete"]),
        "whole_dump": _is_whole_dump(trace.certificate),
        "dumps_left_out": dumps,
        "verdict": str(trace.certificate["verdict"]),
        "only_ops": trace.only_ops,
        "error": None,
        "whole_from_ns": whole_from(part),
        **moment(part, calls),
        **schedule_of(part),
    }
    return pl.DataFrame([{name: _storable(value) for name, value in row.items()}], schema=RANK)


def _storable(value: Any) -> Any:
    """None of a number that no column holds: times of a damaged trace may be any."""
    return None if isinstance(value, int) and abs(value) > _MOST else value


def _is_whole_dump(certificate: dict[str, Any]) -> bool:
    """Its verdict has a clause for each thing that is missing, and one for all that was overwritten."""
    overwritten = any(certificate.get(f"overwritten_{what}") for what in ("hops", "calls", "activities"))
    return certificate.get("dumped_ns") is not None and certificate["verdict"].count("; ") == overwritten


def _named(table: pl.DataFrame, sources: SourceLines, *columns: str) -> pl.DataFrame:
    """Lines as `train.py:7`: the folder of a script differs from host to host, and its lines are the same."""
    names = {
        line: sources.name(line)
        for column in columns
        for line in table[column].explode().unique().drop_nulls().to_list()
    }

    def named(lines: pl.Expr) -> pl.Expr:
        return lines.replace_strict(names, default=None, return_dtype=pl.String)

    return table.with_columns(
        pl.col(column).list.eval(named(pl.element()))
        if table[column].dtype == pl.List
        else named(pl.col(column))
        for column in columns
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _ops(hops: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    is_call = pl.col("kind") == "call"
    length = pl.col("end_ns") - pl.col("start_ns")
    ops = hops.group_by("op", "key").agg(
        calls=is_call.sum(),
        hops=pl.len(),
        self_ns=pl.col("self_ns").sum(),
        total_ns=length.filter(is_call).sum(),
        longest_ns=length.max(),
    )
    ops = ops.with_columns(pl.col("op", "key").cast(pl.String))
    launched = kernels.filter(pl.col("hop").is_not_null()).select(
        id="hop", gpu_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    on_gpu = (
        launched.join(hops.select("id", pl.col("op", "key").cast(pl.String)), on="id")
        .group_by("op", "key")
        .agg(pl.col("gpu_ns").sum())
    )
    return (
        ops.join(on_gpu, on=["op", "key"], how="left", nulls_equal=True)
        .with_columns(pl.col("gpu_ns").fill_null(0))
        .sort("op", "key")
    )


def _kernels(kernels: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        kernels.group_by(kernel=pl.col("name").cast(pl.String))
        .agg(runs=pl.len(), total_ns=length.sum(), longest_ns=length.max())
        .sort("kernel")
    )


def _groups(calls: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    return (
        calls.group_by("group", "op")
        .agg(
            calls=pl.len(),
            bytes=pl.col("bytes").sum(),
            first_ns=pl.col("start_ns").min(),
            last_ns=pl.max_horizontal(pl.col("end_ns").max(), pl.col("gpu_end_ns").max()),
        )
        .join(known.select("group", "description"), on="group", how="left")
        .sort("group", "op")
    )


def _steps(steps: pl.DataFrame) -> pl.DataFrame:
    return steps.with_columns(pl.col("phase").cast(pl.String)).sort("step", "start_ns")


def _memory(part: RankPart, trace: Trace) -> pl.DataFrame:
    rows = [
        (use.device, use.peak_bytes, use.peak_step, use.allocated_bytes, use.blocks, use.end_bytes)
        + (use.table.select("source", "peak_bytes").head(1).rows() or [(None, None)])[0]
        for use in memory_use(trace)
        if use.process == part.process
    ]
    return pl.DataFrame(rows, MEMORY, orient="row").sort("device")
