"""Survey of the CUDA API: which functions PyTorch called, when, from where, and what that cost.

Every function takes the tables of a trace and returns a frame. "Per step" is the mean over the
steps of a phase; the columns are null where the trace has no such steps. Calls within another API
call (driver calls in runtime calls) count as calls, but their time is in the outer call's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracer.analysis.components import components
from tracer.analysis.links import UNKNOWN_FUNCTION
from tracer.trace.tables.distinct import distinct
from tracer.trace.tables.steps import FEWEST_STEPS

if TYPE_CHECKING:
    from tracer.trace import Trace

SYNCHRONISATION, COPY, ALLOCATION, LAUNCH = "synchronisation", "copy", "memory allocation", "launch"
_DURATION = pl.col("end_ns") - pl.col("start_ns")
_TOP = 3
_SIZE = r"(?:^|, )(?:size|bytesize|sizeBytes)=(\d+)"
_DIRECTION = r"^memcpy (?:HtoD|DtoH) \((.*)\)"
_ALLOCATES = (
    r"Malloc|Alloc|Free|MemCreate|MemRelease|MemMap|MemUnmap|AddressReserve|HostRegister|HostUnregister"
)


@dataclass(frozen=True)
class Steps:
    """How many steps of each phase the trace has, summed over processes; 0 where they are unknown."""

    warmup: int
    steady: int
    untold: int = 0
    """Steps without a phase: their process has too few to tell, or --no-phases was given"""
    too_few: bool = True
    """No process has steps enough"""


def count_steps(trace: Trace, process: int | None = None) -> Steps:
    """Steps in which a hop or an API call was recorded, of all processes or of one."""
    told = [
        distinct(table, "process", "step", "phase").select(
            pl.col("process").cast(pl.Int64), pl.col("step").cast(pl.Int64), pl.col("phase").cast(pl.String)
        )
        for table in (trace.hops, trace.api_calls)
    ]
    steps = pl.concat(told).drop_nulls("step").unique()
    if process is not None:
        steps = steps.filter(pl.col("process") == process)
    phases, of_a_process = steps["phase"], steps.group_by("process").len()["len"].to_list()
    return Steps(
        int((phases == "warmup").sum()),
        int((phases == "steady").sum()),
        phases.null_count(),
        too_few=max(of_a_process, default=0) < FEWEST_STEPS,
    )


def calls_with_context(trace: Trace) -> pl.DataFrame:
    """api_calls with op (of the hop, null outside ops), component, inner and duration.

    `inner` (bool): it is inside another API call, and its duration (ns) counts as 0.
    """
    calls = trace.api_calls
    hop = calls["hop"].cast(pl.Int64)
    hops = trace.hops
    return calls.with_columns(
        pl.col("role", "phase", "source", "library", "library_call").cast(pl.String),
        name=pl.col("name").cast(pl.String).fill_null(UNKNOWN_FUNCTION),
        op=hops["op"].cast(pl.String).gather(hop),
        backward_node=hops["backward_node"].cast(pl.String).gather(hop),
        called_from=hops["called_from"].cast(pl.String).gather(hop),
        component=components(calls, trace.stacks),
        inner=pl.col("parent").is_not_null(),
        duration=pl.when(pl.col("parent").is_not_null()).then(0).otherwise(_DURATION),
    )


def per_function(calls: pl.DataFrame, steps: Steps) -> pl.DataFrame:
    """A row a function of `calls` (from calls_with_context), most host time first.

    Columns: name, domain, role, calls, total_ns, median_ns, failed (calls that did not return 0),
    warmup_calls and steady_calls (a step), warmup_ns and steady_ns (a step), components, ops
    (lists of {what, count}, most first; calls outside ops count as null), sources (distinct lines),
    stack (id of the most frequent stack, or null).
    """
    keys = ["name", "domain", "role"]
    calls = calls.with_columns(pl.col("role").fill_null(""))  # null joins nothing
    survey = calls.group_by(keys, maintain_order=True).agg(
        calls=pl.len(),
        total_ns=pl.col("duration").sum(),
        median_ns=_DURATION.median().round().cast(pl.Int64),
        failed=(pl.col("result") != 0).sum(),
        **_per_step(steps),
        sources=pl.col("source").n_unique(),
        stack=pl.col("stack").drop_nulls().mode(maintain_order=True).first(),
    )
    for title, column in (("components", "component"), ("ops", "op")):
        survey = survey.join(
            _most_frequent(calls, keys, column, title), on=keys, how="left", maintain_order="left"
        )
    survey = survey.with_columns(role=pl.when(pl.col("role") != "").then("role"))
    return survey.sort("total_ns", "calls", descending=True, maintain_order=True)


def per_component(calls: pl.DataFrame, steps: Steps) -> pl.DataFrame:
    """component, calls, total_ns, functions (list of {what, count}), most host time first.

    And warmup_calls, warmup_ns, steady_calls, steady_ns: a step.
    """
    survey = calls.group_by("component", maintain_order=True).agg(
        calls=pl.len(), total_ns=pl.col("duration").sum(), **_per_step(steps)
    )
    functions = _most_frequent(calls, ["component"], "name", "functions")
    return survey.join(functions, on="component", how="left", maintain_order="left").sort(
        "total_ns", descending=True, maintain_order=True
    )


def per_role(calls: pl.DataFrame, steps: Steps) -> pl.DataFrame:
    """role, functions (how many), calls, total_ns, warmup_ and steady_calls and _ns a step."""
    return (
        calls.group_by("role", maintain_order=True)
        .agg(
            functions=pl.col("name").n_unique(),
            calls=pl.len(),
            total_ns=pl.col("duration").sum(),
            **_per_step(steps),
        )
        .sort("total_ns", descending=True, maintain_order=True)
    )


def launches_that_ran(calls: pl.DataFrame) -> pl.DataFrame:
    """Those of `calls` that made a kernel run: not failed, not captured in a graph, the outer of two."""
    ran = (pl.col("result") == 0) & ~pl.col("captured").fill_null(False)
    return calls.filter((pl.col("role") == LAUNCH) & ran & ~pl.col("inner"))


def launches_per_op(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """op, op_calls, launches (in its own hops), per_call, host_ns (in launches), gpu_ns; most launches first.

    An op call counts where one of its own hops launched; launches of the ops that it calls are theirs.
    """
    launches = launches_that_ran(calls)
    of_op = (
        launches.filter(pl.col("op").is_not_null())
        .group_by("op", maintain_order=True)
        .agg(launches=pl.len(), host_ns=pl.col("duration").sum(), op_calls=pl.col("hop").n_unique())
    )
    kernels = trace.gpu_activities.filter(
        pl.col("hop").is_not_null() & (pl.col("kind").cast(pl.String) == "kernel")
    )
    op = trace.hops["op"].cast(pl.String).gather(kernels["hop"].cast(pl.Int64))
    gpu = kernels.select(op=op, time=_DURATION).group_by("op").agg(gpu_ns=pl.col("time").sum())
    return (
        of_op.join(gpu, on="op", how="left", maintain_order="left")
        .with_columns(per_call=pl.col("launches") / pl.col("op_calls"), gpu_ns=pl.col("gpu_ns").fill_null(0))
        .select("op", "op_calls", "launches", "per_call", "host_ns", "gpu_ns")
        .sort("launches", descending=True, maintain_order=True)
    )


def hidden_synchronisations(trace: Trace, calls: pl.DataFrame, steps: Steps) -> pl.DataFrame:
    """Where the host waited for the GPU inside an op or a library, most host time first.

    Waiting are synchronising functions, copies whose name has no Async, and copies from or to pageable
    memory: the host stages what is copied, and may wait for the stream. What the script itself calls
    (outside ops and libraries) is not hidden. Columns: source, called_from, backward_node, op,
    library_call, what (the calls that waited, in order), count (op calls, or calls outside ops),
    total_ns, steady_calls and steady_ns (a step).
    """
    copied = trace.gpu_activities.filter(
        (pl.col("kind").cast(pl.String) == "memcpy") & pl.col("api_call").is_not_null()
    )
    directions = copied.group_by(id=pl.col("api_call").cast(calls["id"].dtype)).agg(
        direction=pl.col("name").cast(pl.String).str.extract(_DIRECTION).first()
    )
    calls = calls.join(directions, on="id", how="left", maintain_order="left")
    blocking = pl.col("name").str.contains(r"^cu(?:da)?Memcpy") & ~pl.col("name").str.contains("Async|Peer")
    by_staging = pl.col("direction").str.contains("pageable").fill_null(False)
    waits = calls.filter(
        ~pl.col("inner")
        & ((pl.col("role") == SYNCHRONISATION) | blocking | by_staging)
        & (pl.col("hop").is_not_null() | pl.col("library").is_not_null())
        & ~pl.col("captured").fill_null(False)
    ).with_columns(
        what=pl.coalesce(pl.format("{} ({})", "name", "direction"), "name"),
        group=pl.coalesce(pl.col("hop").cast(pl.Int64), -1 - pl.col("id").cast(pl.Int64)),
    )
    places = ["source", "called_from", "backward_node", "op", "library_call"]
    return (
        waits.group_by("group", maintain_order=True)
        .agg(
            pl.col(*places, "phase").first(),
            what=pl.col("what").unique(maintain_order=True).str.join(" + "),
            duration=pl.col("duration").sum(),
        )
        .group_by(*places, "what", maintain_order=True)
        .agg(
            count=pl.len(),
            total_ns=pl.col("duration").sum(),
            **_means("steady", steps.steady),
        )
        .sort("total_ns", descending=True, maintain_order=True)
    )


def steady_allocations(calls: pl.DataFrame) -> pl.DataFrame:
    """Device or pinned memory that was taken from CUDA or given back in steady state, most time first.

    Columns: name, source, called_from, op, component, calls, bytes (asked for, null if unknown), total_ns.
    """
    size = pl.col("arguments").str.extract(_SIZE).cast(pl.Int64, strict=False)
    return (
        calls.filter(
            (pl.col("role") == ALLOCATION)
            & pl.col("name").str.contains(_ALLOCATES)
            & (pl.col("phase") == "steady")
            & ~pl.col("inner")
        )
        .group_by("name", "source", "called_from", "op", "component", maintain_order=True)
        .agg(
            calls=pl.len(),
            bytes=pl.when(size.count() > 0).then(size.sum()),
            total_ns=pl.col("duration").sum(),
        )
        .sort("total_ns", descending=True, maintain_order=True)
    )


def copies(activities: pl.DataFrame, steps: Steps) -> pl.DataFrame:
    """GPU copies and fills by kind, most time first.

    Columns: name, kind, count, bytes, total_ns, gb_per_s, steady_calls and steady_ns (a step).
    """
    return (
        activities.with_columns(pl.col("name", "kind", "phase").cast(pl.String), duration=_DURATION)
        .filter(pl.col("kind") != "kernel")
        .group_by("name", "kind", maintain_order=True)
        .agg(
            count=pl.len(),
            bytes=pl.col("bytes").sum(),
            total_ns=_DURATION.sum(),
            **_means("steady", steps.steady),
        )
        .with_columns(gb_per_s=pl.when(pl.col("total_ns") > 0).then(pl.col("bytes") / pl.col("total_ns")))
        .sort("total_ns", descending=True, maintain_order=True)
    )


def _per_step(steps: Steps) -> dict[str, pl.Expr]:
    return {
        name: mean
        for phase, count in (("warmup", steps.warmup), ("steady", steps.steady))
        for name, mean in _means(phase, count).items()
    }


def _means(phase: str, steps: int) -> dict[str, pl.Expr]:
    """Calls and host time per step of a phase; null if there are no such steps."""
    rows = (pl.col("phase") == phase).fill_null(False)
    if not steps:
        return {f"{phase}_{what}": pl.lit(None, dtype=pl.Float64) for what in ("calls", "ns")}
    return {
        f"{phase}_calls": rows.sum() / steps,
        f"{phase}_ns": pl.col("duration").filter(rows).sum() / steps,
    }


def _most_frequent(calls: pl.DataFrame, keys: list[str], column: str, title: str) -> pl.DataFrame:
    counted = calls.group_by(*keys, column, maintain_order=True).agg(count=pl.len())
    return (
        counted.sort("count", descending=True, maintain_order=True)
        .group_by(keys, maintain_order=True)
        .agg(pl.struct(what=column, count="count").head(_TOP + 1).alias(title))
    )
