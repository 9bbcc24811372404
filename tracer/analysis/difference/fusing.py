"""Joins the op calls of an eager run to the kernels of compiled code that replaced them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracer.analysis.difference.alignment import renamed_files
from tracer.analysis.difference.compiled_runs import CompiledRuns, compiled_runs
from tracer.analysis.difference.eager_calls import EagerCalls, eager_calls
from tracer.analysis.difference.fusion import Cost, FusedKernel, FusedLine, FusedModule, FusedOp, Fusion
from tracer.analysis.difference.op_calls import matched_name
from tracer.analysis.difference.places import WHOLE, Places, by_step
from tracer.analysis.difference.times import times_of
from tracer.analysis.source_lines import NO_LINE, SourceLines

if TYPE_CHECKING:
    from tracer.trace import Trace

KEPT = 0
"""Instead of the number of a kernel: an op that compiled code calls (ranks of kernels begin at 1)"""
Nanoseconds = Any
"""An array of one number for each step"""


def fusion(traces: tuple[Trace, Trace], steps: tuple[Sequence[int], Sequence[int]]) -> Fusion | None:
    """None unless one of the traces has compiled code and the other has none.

    `steps` are those that are compared; if a trace has none, the whole runs are.
    """
    compiled = [bool(len(trace.compiled_calls)) for trace in traces]
    if compiled[0] == compiled[1]:
        return None
    after = compiled.index(True)
    whole = not all(steps)
    of_eager, of_compiled = (None, None) if whole else (steps[1 - after], steps[after])
    places = Places(renamed_files(*(texts_of(traces[side]) for side in (1 - after, after))))
    runs = compiled_runs(traces[after], of_compiled, places)
    nodes = _nodes(runs)
    eager = eager_calls(traces[1 - after], of_eager, places, nodes)
    return _Joined(places, runs, nodes, eager, of_eager, of_compiled).fusion(eager_first=after == 1)


def texts_of(trace: Trace) -> dict[str, set[str]]:
    """The texts of the lines of each file."""
    sources, found = SourceLines.of(trace), dict[str, set[str]]()
    for source, text in trace.source_lines.select("source", "text").iter_rows():
        if text:
            found.setdefault(sources.name(source).rpartition(":")[0], set()).add(text)
    return found


def _nodes(runs: CompiledRuns) -> pl.DataFrame:
    """Nodes of kernels, and those that stayed ops (kernel KEPT): those of CompiledRuns, matched, share.

    `share` is what of the eager calls of such a node counts for the kernel.
    """
    kept = runs.ops.group_by("line", "op", "backward", maintain_order=True).agg(
        weight=pl.len().cast(pl.Int64)
    )
    nodes = pl.concat(
        [runs.nodes, kept.with_columns(kernel=pl.lit(KEPT, pl.Int64), work=True)], how="diagonal_relaxed"
    )
    nodes = nodes.with_columns(matched=matched_name())
    key = ["line", "matched", "backward"]
    # Where compiled code calls the op itself, a kernel with a node of it prepares its inputs (padding).
    prepares = (pl.col("kernel") != KEPT) & (pl.col("kernel") == KEPT).any().over(key)
    claim = pl.when(prepares).then(0).otherwise("weight")
    return nodes.with_columns(share=claim / claim.sum().over(key))


def _replaced(calls: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """The calls with the kernels that they count for, and the share of each.

    One that no node has counts for kernels that have its op and its line in different nodes, as Inductor
    merges nodes; if there are none, for those that compute anything at its line.

    Kernel 0 has a node of add at line 1 and one of mul (weight 1) at line 2, kernel 1 of mul (weight 3) at 2.

    call         kernel: share
    add, line 1  0: 1
    mul, line 2  0: 0.25, 1: 0.75
    mul, line 1  0: 1                by its line: kernel 0 has that line, and mul at another
    neg, line 2  0: 0.25, 1: 0.75    by its line: no kernel has neg
    """
    key, place = ["line", "matched", "backward"], ["line", "backward"]
    counted = nodes.filter("work", pl.col("share") > 0)
    shares = counted.group_by("kernel", *key, maintain_order=True).agg(pl.col("share").sum())
    lines = (
        nodes.drop_nulls("line")
        .group_by("kernel", *place, maintain_order=True)
        .agg(pl.col("weight").max(), pl.col("work").any())
    )
    work = nodes.filter("work").select("kernel", "matched").unique(maintain_order=True)
    merged = _shared_out(lines.join(work, on="kernel", maintain_order="left"), key)
    others = _shared_out(lines.filter("work"), place)
    left = calls.filter("by_line")
    parts = [
        calls.filter(~pl.col("by_line")).join(shares, on=key, nulls_equal=True, maintain_order="left"),
        left.join(merged, on=key, maintain_order="left"),
        left.join(merged, on=key, how="anti", maintain_order="left").join(
            others, on=place, maintain_order="left"
        ),
    ]
    return pl.concat(parts, how="diagonal")


def _shared_out(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    share = pl.col("weight") / pl.col("weight").sum().over(key)
    return rows.select("kernel", *key, share=share)


class _Joined:
    """The tables of both sides, by step."""

    def __init__(
        self,
        places: Places,
        runs: CompiledRuns,
        nodes: pl.DataFrame,
        eager: EagerCalls,
        before: Sequence[int] | None,
        after: Sequence[int] | None,
    ) -> None:
        self.places, self.runs, self.eager = places, runs, eager
        self.before, self.after = before, after
        self.on_gpu = bool(runs.kernels["on_gpu"].any()) or bool(runs.ops["launches"].sum())
        self.nodes = nodes.filter("work")
        self.replaced = _replaced(eager.calls, nodes)
        """Eager op calls, a row for each kernel that each counts for"""

    def fusion(self, *, eager_first: bool) -> Fusion:
        of_kernel = self.replaced.partition_by("kernel", as_dict=True, maintain_order=True)
        nothing = self.replaced.clear()
        runs = self.runs.runs.partition_by("kernel", as_dict=True)
        kernels = [
            self._kernel(row, of_kernel.get((row["kernel"],), nothing), runs[(row["kernel"],)])
            for row in self.runs.kernels.iter_rows(named=True)
        ]
        known = [kernel for kernel in kernels if None not in kernel.cost.bytes]
        fused = self.replaced.filter(pl.col("kernel") != KEPT)
        bytes_of = [sum(kernel.cost.bytes[side] or 0 for kernel in known) for side in (0, 1)]
        kernels.sort(key=lambda kernel: -max(kernel.cost.times.before or 0, kernel.cost.times.after or 0))
        return Fusion(
            eager_first=eager_first,
            whole=self.before is None,
            on_gpu=self.on_gpu,
            fused=self._cost(
                fused,
                self.runs.runs,
                (bytes_of[0], bytes_of[1]) if known else (None, None),
                on_gpu=self.on_gpu,
            ),
            kept=self._kept(),
            kernels=kernels,
            lines=self._lines(),
            modules=self._modules(),
            own=times_of([], [self.runs.own_ns]).after,
            unknown=int((~self.runs.kernels["known"]).sum()),
            bytes_unknown=len(kernels) - len(known),
            hidden=self.runs.hidden,
        )

    def _kernel(self, row: dict[str, Any], replaced: pl.DataFrame, runs: pl.DataFrame) -> FusedKernel:
        written = None if row["bytes"] is None else row["bytes"] * len(runs) / self._steps(self.after)
        ops = replaced.group_by("line", "op", "by_line", maintain_order=True).agg(pl.col("share").sum())
        return FusedKernel(
            name=row["name"],
            function=row["function"],
            backward=row["backward"],
            known=row["known"],
            ops=[
                FusedOp(*self._line(line), op, calls / self._steps(self.before), by_line)
                for line, op, by_line, calls in ops.iter_rows()
            ],
            cost=self._cost(
                replaced, runs, (_bytes(replaced, self._steps(self.before)), written), row["on_gpu"]
            ),
        )

    def _cost(
        self,
        replaced: pl.DataFrame,
        runs: pl.DataFrame,
        moved: tuple[float | None, float | None],
        on_gpu: bool,
    ) -> Cost:
        before, after = self._steps(self.before), self._steps(self.after)
        launches = (pl.col("launches") * pl.col("share")).sum()
        taken = pl.col("gpu_ns" if on_gpu else "ns") * pl.col("share")
        return Cost(
            calls=(float(replaced["share"].sum()) / before, len(runs) / after),
            launches=(replaced.select(launches).item() / before, len(runs) / after) if on_gpu else None,
            bytes=moved,
            times=times_of(
                [by_step(replaced.with_columns(taken=taken), "taken", self.before)],
                [by_step(runs, "ns", self.after)],
            ),
        )

    def _kept(self) -> Cost:
        kept, ops = self.replaced.filter(pl.col("kernel") == KEPT), self.runs.ops
        column = "gpu_ns" if self.on_gpu else "ns"
        cost = self._cost(kept, ops.with_columns(ns=pl.col(column)), (None, None), self.on_gpu)
        launches = cost.launches and (
            cost.launches[0],
            float(ops["launches"].sum()) / self._steps(self.after),
        )
        return Cost(cost.calls, launches, cost.bytes, cost.times)

    def _lines(self) -> list[FusedLine]:
        column = "gpu_ns" if self.on_gpu else "ns"
        before = _by_line(self.eager.lines, column, self.before)
        after = _by_line(self.runs.ops, column, self.after)
        names: defaultdict[tuple[int, bool], dict[str, None]] = defaultdict(dict)
        shares = self._shares_of_lines(column)
        runs = self.runs.runs.partition_by("kernel", as_dict=True)
        for row in self.runs.kernels.iter_rows(named=True):
            if bool(row["on_gpu"]) != self.on_gpu:
                continue
            taken = np.array(by_step(runs[(row["kernel"],)], "ns", self.after))
            for line, share in shares.get(row["kernel"], {}).items():
                place = line, row["backward"]
                after[place] = after.get(place, 0) + taken * share
                names[place][row["name"]] = None
        found = [
            FusedLine(
                *self._line(line),
                backward,
                list(names[line, backward]),
                times_of([list(before.get((line, backward), ()))], [list(after[line, backward])]),
            )
            for line, backward in after
        ]
        return sorted(found, key=lambda line: -abs(line.times.change_ns))

    def _shares_of_lines(self, column: str) -> dict[int, dict[int, float]]:
        """What of each kernel's time counts for each line: as its ops took; if it has none, the same."""
        eager = self.replaced.group_by("kernel", "line").agg(
            (pl.col(column) * pl.col("share")).sum().alias("ns")
        )
        lines = (
            self.nodes.filter(pl.col("kernel") != KEPT).select("kernel", "line").unique(maintain_order=True)
        )
        lines = lines.drop_nulls().join(eager, on=["kernel", "line"], how="left", maintain_order="left")
        whole = pl.col("ns").sum().over("kernel")
        share = (
            pl.when(whole > 0).then(pl.col("ns").fill_null(0) / whole).otherwise(1 / pl.len().over("kernel"))
        )
        shares: defaultdict[int, dict[int, float]] = defaultdict(dict)
        for kernel, line, part in lines.select("kernel", "line", share.alias("share")).iter_rows():
            shares[kernel][line] = part
        return shares

    def _modules(self) -> list[FusedModule]:
        column = "gpu_ns" if self.on_gpu else "ns"
        # What takes the place of an op call: a kernel, or the op calls of one line that compiled code makes.
        group = ["kernel", "line", "matched", "backward"]
        kept = pl.col("kernel") == KEPT
        rows = self.replaced.with_columns(
            pl.when(kept).then(pl.col(name)).alias(name) for name in group[1:]
        ).with_columns(taken=pl.col(column) * pl.col("share"))
        ops = self.runs.ops.with_columns(matched_name().alias("matched"), kernel=pl.lit(KEPT, pl.Int64))
        kernels = self.runs.runs.join(self.runs.kernels.select("kernel", "on_gpu"), on="kernel")
        kernels = kernels.filter(pl.col("on_gpu") == self.on_gpu)
        ran = pl.concat(
            [kernels.select("kernel", "step", "ns"), ops.select(*group, "step", ns=column)], how="diagonal"
        )
        before: dict[str, Nanoseconds] = {}
        after: dict[str, Nanoseconds] = {}
        parts = rows.partition_by(group, as_dict=True, maintain_order=True)
        spent = ran.partition_by(group, as_dict=True)
        for key, part in parts.items():
            whole = float(part["taken"].sum())
            if key not in spent or whole <= 0:
                continue
            taken = np.array(by_step(spent[key], "ns", self.after))
            for (module,), of_module in (
                part.drop_nulls("module").partition_by("module", as_dict=True).items()
            ):
                share = float(of_module["taken"].sum()) / whole
                own = np.array(by_step(of_module, "taken", self.before))
                for name in _with_those_around(str(module)):
                    before[name] = before.get(name, 0) + own
                    after[name] = after.get(name, 0) + taken * share
        found = [FusedModule(name, times_of([list(before[name])], [list(after[name])])) for name in before]
        return sorted(found, key=lambda module: -abs(module.times.change_ns))

    def _line(self, number: int | None) -> tuple[str, str]:
        return (NO_LINE, "") if number is None else (self.places.names[number], self.places.texts[number])

    def _steps(self, steps: Sequence[int] | None) -> int:
        return len([WHOLE] if steps is None else steps)


def _with_those_around(module: str) -> list[str]:
    """`net`, `net.0`, `net.0.up` of the last."""
    parts = module.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def _bytes(replaced: pl.DataFrame, steps: int) -> float | None:
    """Of a step; None if those of an op are not known, or there is no op."""
    if replaced.is_empty() or replaced["bytes"].null_count():
        return None
    return float((replaced["bytes"] * replaced["share"]).sum()) / steps


def _by_line(
    rows: pl.DataFrame, column: str, steps: Sequence[int] | None
) -> dict[tuple[int, bool], Nanoseconds]:
    parts = rows.drop_nulls("line").partition_by("line", "backward", as_dict=True, maintain_order=True)
    return {key: np.array(by_step(part, column, steps)) for key, part in parts.items()}
