"""Survey of the device kernels: what each had to do, how it was spread, how far it is from its limit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.families import Family, family_of
from tracer.analysis.library_work import gemm_work, rnn_work
from tracer.analysis.limits import Limits, unit_of, uses_tf32
from tracer.analysis.links import UNKNOWN_KERNEL, library_texts, short_names
from tracer.analysis.occupancy import Launch, Occupancy, occupancy
from tracer.analysis.op_work import outputs_of_backward, why_unknown, work_of
from tracer.analysis.work import Work

if TYPE_CHECKING:
    from tracer.trace import Trace

SHORT_NS = 5_000
"""Below this a kernel takes about as long as launching it."""
FLOOR_NS = 2_000
"""No kernel is expected to end sooner, or than the shortest of the trace where that is shorter."""
SHORTEST, LEAST = "the shortest kernel", "the time that any kernel is given"
"""What a limit is by where bytes and operations make none that is longer"""


@dataclass(frozen=True)
class Limit:
    """The least time for the work of one call: by bytes, by operations on a unit, or that of any kernel.

    `in_cache`: all bytes fit into the L2 cache, so that the memory's bandwidth is no lower bound.
    """

    ns: float
    by: str
    in_cache: bool


@dataclass(frozen=True)
class KernelRow:
    """One device kernel launched by one op with one signature, grid and block, beside the same others.

    `work` and `limit` are those of one call of the op (or of the library function, where `of` says
    so), `of_ns` the mean GPU time of all kernels of such a call: head-room compares those two, so
    that a call's kernels share one. All of them are None where the work is unknown: `unknown` says why.
    """

    kernel: str
    symbol: str
    op: str | None
    signature: int | None
    library_call: str
    sources: list[str]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...] | None
    registers: int
    shared_bytes: int
    device: int
    calls: int
    total_ns: int
    median_ns: int
    least_ns: int
    occupancy: Occupancy | None
    work: Work | None
    limit: Limit | None
    of: str | None
    of_ns: float | None
    of_kernels: float | None
    family: Family | None
    unknown: str = ""
    tf32: bool = False
    """Whether a kernel of the same op call multiplies in TF32"""
    beside_others_too: bool = False
    """Whether calls that launched other kernels beside it have a row for it too"""

    @property
    def threads(self) -> int:
        return prod(self.grid) * prod(self.block)

    @property
    def headroom(self) -> float | None:
        """The share of the time that the limit would save."""
        if self.limit is None or not self.of_ns:
            return None
        return max(0.0, 1 - self.limit.ns / self.of_ns)

    @property
    def score_ns(self) -> float | None:
        return None if self.headroom is None else self.headroom * self.total_ns

    @property
    def is_one_of_several(self) -> bool:
        """Whether most of its calls launched more than this one kernel."""
        return self.of_kernels is not None and self.of_kernels > 1.5

    @property
    def elements_per_thread(self) -> float | None:
        output = self.work.output if self.work else None
        return prod(output) / self.threads if output and self.threads else None

    @property
    def tile(self) -> tuple[int, int] | None:
        """The tile of the output that a GEMM kernel's name says, where its op is that product."""
        is_product = self.work is not None and self.work.family == "GEMM"
        found = _TILE.search(self.kernel) if is_product else None
        return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True)
class KernelSurvey:
    """`rows`: those with a known limit by time x head-room, then the others by time."""

    rows: list[KernelRow]
    total_ns: int
    launches: int
    left_out: int
    """Launches in warm-up steps, which are not in `rows`"""
    outside: int
    """Launches after the steps of a process that has steady ones"""
    outside_counts: bool
    """Whether those are in `rows`: they took more of the GPU's time than the others"""
    untimed: int
    """Launches without times of CUPTI: they are not in `rows`"""
    limits: dict[int, Limits]
    """device -> its limits"""
    floor_ns: int


_TILE = re.compile(r"(?:tilesize|tile|_)(\d{2,3})x(\d{2,3})(?=[x_])")
_SAME = (
    *("kernel", "op", "signature", "library_name", "short_arguments"),
    *("grid", "block", "registers", "shared", "device", "tf32"),
)
"""Columns in which the kernels of a row are equal; of signatures for the same work it is the first"""


def survey_kernels(
    trace: Trace, *, bandwidth: float | None = None, flops: float | None = None
) -> KernelSurvey:
    """Every kernel of steady steps, and of processes where none is known to be steady.

    What ran outside steps is of another phase of the program, such as a test after the training, and is left
    out, as of paths in steady steps. Where that is most of the work, the steps are not what the program is
    about, and it counts.
    `bandwidth` (bytes/s) and `flops` (FLOP/s) replace what is known of the device.
    """
    kernels = trace.gpu_activities.filter(pl.col("kind").cast(pl.String) == "kernel")
    launches = len(kernels)
    kernels = kernels.filter((pl.col("start_ns") > 0) & (pl.col("end_ns") >= pl.col("start_ns")))
    untimed = launches - len(kernels)
    warm = (kernels["phase"].cast(pl.String) == "warmup").fill_null(False)
    left_out = int(warm.sum())
    kernels = kernels.filter(~warm)
    outside = _after_steady_steps(kernels)
    outside_counts = _gpu_ns(kernels.filter(outside)) > _gpu_ns(kernels.filter(~outside))
    kernels = _with_context(trace, kernels if outside_counts else kernels.filter(~outside))
    signatures = {
        int(key[0]): table.to_dicts()
        for key, table in trace.signatures.partition_by("id", as_dict=True, maintain_order=True).items()
    }
    devices = {int(row["device"]): row for row in trace.devices.iter_rows(named=True)}
    limits = {number: Limits.of(row, bandwidth, flops) for number, row in devices.items()}
    works = _Works(trace, signatures)
    kernels = _with_calls(kernels, works)
    least = int((kernels["end_ns"] - kernels["start_ns"]).min() or 0)  # type: ignore[arg-type]
    floor = min(least, FLOOR_NS)
    rows = [_row(group, works, devices, limits, floor) for group in _groups(kernels).iter_rows(named=True)]
    rows.sort(key=lambda row: (row.score_ns is None, -(row.score_ns or 0), -row.total_ns))
    return KernelSurvey(
        rows=rows,
        total_ns=_gpu_ns(kernels),
        launches=len(kernels),
        left_out=left_out,
        outside=int(outside.sum()),
        outside_counts=outside_counts,
        untimed=untimed,
        limits=limits,
        floor_ns=floor,
    )


def _after_steady_steps(kernels: pl.DataFrame) -> pl.Series:
    """Which kernels are of no step, though their process has steady ones."""
    steady = kernels.filter(pl.col("phase").cast(pl.String) == "steady")["process"].unique()
    of_no_step = kernels["step"].is_null() & kernels["phase"].is_null()
    return of_no_step & kernels["process"].is_in(steady.implode())


def _gpu_ns(kernels: pl.DataFrame) -> int:
    return int((kernels["end_ns"] - kernels["start_ns"]).sum())


class _Works:
    """The work of ops and library calls, each worked out once."""

    def __init__(self, trace: Trace, signatures: dict[int, list[dict[str, Any]]]) -> None:
        self._signatures = signatures
        self._outputs = outputs_of_backward(trace.hops, signatures)
        self._known: dict[Any, Work | None] = {}

    def of_op(self, op: str | None, signature: int | None) -> Work | None:
        if op is None or signature not in self._signatures:
            return None
        if (op, signature) not in self._known:
            self._known[op, signature] = work_of(op, self._signatures[signature], self._outputs)
        return self._known[op, signature]

    def why_unknown(self, op: str | None, signature: int | None, work: Work | None) -> str:
        if work is not None:
            return "nothing is known of the device"
        inputs = self._signatures.get(signature) if signature is not None else None
        return why_unknown(op, inputs, self._outputs)

    def of_library(self, name: str | None, arguments: str | None) -> Work | None:
        if not name or not arguments:
            return None
        fields = dict(field.partition("=")[::2] for field in arguments.split(", "))
        return rnn_work(fields, name) if "RNN" in name else gemm_work(fields, name)

    def known_of(
        self, op: str | None, signature: int | None, library: str | None, arguments: str | None
    ) -> str | None:
        """What the work is known of: an "op", else a "library call", or None."""
        if self.of_op(op, signature):
            return "op"
        return "library call" if self.of_library(library, arguments) else None


def _with_context(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernels with op, signature, source, library call and what tells one call from the next."""
    hops, calls, libraries = trace.hops, trace.api_calls, trace.library_calls
    hop = kernels["hop"].cast(pl.Int64)
    call = kernels["api_call"].cast(pl.Int64)
    made_by = pl.select(pl.coalesce(kernels["captured_by"].cast(pl.Int64), call)).to_series()
    library = calls["library_call_id"].cast(pl.Int64).gather(made_by)
    own = hops["inputs"].cast(pl.Int64)
    above = own.gather(hops["parent"].cast(pl.Int64))
    same_op = hops["op"].cast(pl.String) == hops["op"].cast(pl.String).gather(hops["parent"].cast(pl.Int64))
    signature = pl.select(pl.coalesce(own, pl.when(same_op.fill_null(False)).then(above))).to_series()
    replayed = kernels["captured_by"].is_not_null()
    arguments = libraries["arguments"].cast(pl.String).gather(library)
    kernels = kernels.with_columns(
        op=hops["op"].cast(pl.String).gather(hop),
        source=hops["source"].cast(pl.String).gather(hop),
        signature=signature.gather(hop).replace(_first_of_alike(trace.signatures)),
        replay=pl.when(replayed).then(call),
        library=library,
        library_name=pl.coalesce(
            libraries["name"].cast(pl.String).gather(library),
            calls["library_call"].cast(pl.String).gather(made_by),
        ),
        arguments=arguments,
        short_arguments=library_texts(arguments),
        symbol=pl.col("name").cast(pl.String),
        kernel=short_names(kernels["name"]),
        shared=pl.col("static_shared_bytes").fill_null(0) + pl.col("dynamic_shared_bytes").fill_null(0),
        duration=pl.col("end_ns") - pl.col("start_ns"),
    )
    return kernels.with_columns(tf32=_computed_in_tf32(kernels))


def _first_of_alike(signatures: pl.DataFrame) -> dict[int, int]:
    """For each signature the first for the same work: strides count only where a tensor is expanded."""
    stride = pl.col("stride")
    expanded = pl.when(stride.list.contains(0)).then(stride.list.eval(pl.element() == 0))
    tensors = pl.struct("position", "shape", pl.col("dtype", "device", "layout").cast(pl.String), expanded)
    first = (
        signatures.sort("id", "position")
        .group_by(pl.col("id").cast(pl.Int64), maintain_order=True)
        .agg(tensors=tensors)
        .with_columns(first=pl.col("id").first().over("tensors"))
    )
    return dict(first.select("id", "first").iter_rows())


def _computed_in_tf32(kernels: pl.DataFrame) -> pl.Series:
    """Whether one of the kernels of the same op call, or library call outside ops, multiplies in TF32.

    Kernels beside it, such as those that change a convolution's layout, do not say so in their names.
    """
    names = kernels["symbol"].unique().drop_nulls()
    own = pl.col("symbol").is_in([name for name in names if uses_tf32(name)])
    outside = pl.col("hop").is_null()
    library = pl.when(outside).then("library")
    # Outside both a kernel speaks for itself.
    alone = pl.when(outside & pl.col("library").is_null()).then(pl.int_range(pl.len()))
    call = pl.struct("hop", "replay", library, alone=alone)
    return kernels.select(own.fill_null(False).any().over(call)).to_series()


def _with_calls(kernels: pl.DataFrame, works: _Works) -> pl.DataFrame:
    """The kernels with the call that their work is known of, its GPU time and which kernels it launched.

    `of` says what that call is, and `beside` numbers the different sets of kernels that calls launched.
    All are null where no work is known, so that nothing tells such kernels apart by their calls.
    """
    calls = ("op", "signature", "library_name", "short_arguments")
    known = kernels.group_by(calls).agg(pl.col("arguments").first())
    of = [works.known_of(*row) for row in known.select(*calls[:3], "arguments").iter_rows()]
    kernels = kernels.join(
        known.select(*calls, of=pl.Series(of, dtype=pl.String)),
        on=calls,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    call = pl.when(pl.col("of") == "op").then(pl.col("hop").cast(pl.Int64)).otherwise("library")
    number = pl.col("number").first().over("of", call, "replay", "device")
    kernels = kernels.with_row_index("number").with_columns(
        call=pl.when(pl.col("of").is_not_null()).then(number)
    )
    made = (
        kernels.drop_nulls("call")
        .group_by("call")
        .agg(
            call_ns=pl.col("duration").sum(),
            call_kernels=pl.len(),
            names=pl.col("kernel").unique().sort(),
        )
        .with_columns(beside=pl.col("call").first().over("names"))
    )
    return kernels.join(made.drop("names"), on="call", how="left", maintain_order="left")


def _groups(kernels: pl.DataFrame) -> pl.DataFrame:
    first_of_call = pl.col("call").is_first_distinct()
    # Pointers among a library call's arguments differ from call to call, the short text does not.
    groups = kernels.group_by(*_SAME, "beside", maintain_order=True).agg(
        pl.col("symbol", "arguments", "cluster", "of").first(),
        calls=pl.len(),
        total_ns=pl.col("duration").sum(),
        median_ns=pl.col("duration").median().round().cast(pl.Int64),
        least_ns=pl.col("duration").min(),
        sources=pl.col("source").drop_nulls().unique(maintain_order=True),
        of_ns=pl.col("call_ns").filter(first_of_call).mean(),
        of_kernels=pl.col("call_kernels").filter(first_of_call).mean(),
    )
    return groups.with_columns(beside_others_too=pl.len().over(_SAME) > 1)


def _row(
    group: dict[str, Any],
    works: _Works,
    devices: dict[int, dict[str, Any]],
    limits: dict[int, Limits],
    floor: int,
) -> KernelRow:
    device, kernel = int(group["device"] or 0), group["kernel"] or UNKNOWN_KERNEL
    grid, block = tuple(group["grid"] or (1,)), tuple(group["block"] or (1,))
    if group["of"] == "library call":
        work = works.of_library(group["library_name"], group["arguments"])
    else:
        work = works.of_op(group["op"], group["signature"])
    time, bounds = group["of_ns"], limits.get(device)
    limit = _limit(work, kernel, time, bounds, floor, tf32=group["tf32"]) if work and time else None
    arguments = group["short_arguments"]
    return KernelRow(
        kernel=kernel,
        symbol=group["symbol"],
        op=group["op"],
        signature=group["signature"],
        library_call=f"{group['library_name']}({arguments or ''})" if group["library_name"] else "",
        sources=group["sources"],
        grid=grid,
        block=block,
        cluster=tuple(group["cluster"]) if group["cluster"] else None,
        registers=int(group["registers"] or 0),
        shared_bytes=int(group["shared"] or 0),
        device=device,
        calls=group["calls"],
        total_ns=group["total_ns"],
        median_ns=group["median_ns"],
        least_ns=group["least_ns"],
        occupancy=occupancy(
            Launch(prod(grid), prod(block), int(group["registers"] or 0), int(group["shared"] or 0)),
            devices.get(device, {}),
        ),
        work=work,
        limit=limit,
        of=group["of"],
        of_ns=time,
        of_kernels=group["of_kernels"],
        family=family_of(kernel),
        unknown="" if limit else works.why_unknown(group["op"], group["signature"], work),
        tf32=bool(group["tf32"]),
        beside_others_too=group["beside_others_too"],
    )


def _limit(
    work: Work, kernel: str, time: float, limits: Limits | None, floor: int, *, tf32: bool
) -> Limit | None:
    if limits is None or not limits.bytes_per_s:
        return None
    unit = unit_of(work.dtype, kernel, matrix=work.matrix, tf32=tf32)
    peak = limits.flops_per_s.get(unit)
    if work.flops and not peak and work.matrix:
        return None
    computing = work.flops / peak * 1e9 if peak else 0.0
    if unit == "fp32 cores" and work.matrix and computing > time:
        # Faster than CUDA cores can be: it ran on tensor cores, whatever its name says.
        unit = "TF32 tensor"
        tensor = limits.flops_per_s.get(unit)
        computing = work.flops / tensor * 1e9 if tensor else computing
    moving = (work.bytes or 0) / limits.bytes_per_s * 1e9
    in_cache = bool(work.bytes and work.bytes <= limits.l2_bytes)
    if floor > max(moving, computing):
        return Limit(floor, SHORTEST if floor < FLOOR_NS else LEAST, in_cache)
    return Limit(max(moving, computing), "bytes" if moving >= computing else unit, in_cache)


def remarks(row: KernelRow, limits: Limits | None) -> list[str]:
    """Remarks on a kernel: why it may be slow, and what to do."""
    said = []
    if row.median_ns < SHORT_NS and (row.limit is None or row.limit.by in (SHORTEST, LEAST)):
        said.append(
            "short: launching it takes about as long; fuse it, batch it, or replay it in a CUDA graph"
        )
    full = row.occupancy
    if full and limits and limits.multiprocessors:
        blocks = prod(row.grid)
        if blocks < limits.multiprocessors:
            whole = f"{limits.multiprocessors:,} multiprocessors"
            said.append(f"{blocks:,} of {whole} have a block: too little parallel work")
        elif full.waves > 1 and full.tail_share > 0.25 and full.waves < 5:
            said.append(
                f"the last of {full.waves:.1f} waves leaves {100 * full.tail_share:.0f} % of the places empty"
            )
        if full.share < 0.25 and full.limited_by in ("registers", "shared memory"):
            hold = "hold" if full.limited_by == "registers" else "holds"
            said.append(f"{full.limited_by} {hold} occupancy at {100 * full.share:.0f} %")
    if row.is_one_of_several:
        said.append(f"one of {row.of_kernels:.3g} kernels of the {row.of}: the limit is that of all of them")
    if row.limit and row.limit.in_cache and row.limit.by == "bytes":
        said.append(
            "its bytes fit into the L2 cache: what the op before has just written comes from there, "
            "faster than from the memory, whose bandwidth makes the limit"
        )
    return said
