"""Dispatch chains out of a trace: the lines, the calls in them and what the GPU did."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from tracer.analysis.chain import Link
from tracer.analysis.inputs_text import signature_texts
from tracer.analysis.links import combine
from tracer.analysis.trees import Forest, fold
from tracer.trace import Trace
from tracer.trace.tables.schema import GPU_KINDS, HOP_KINDS


@dataclass(frozen=True)
class Counts:
    """What one call made. `allocations` are calls of the CUDA API, not of torch's caching allocator."""

    op_calls: int
    hops: int
    library_calls: int
    api_calls: int
    launches: int
    allocations: int


@dataclass(frozen=True)
class Chain:
    """What one call became.

    `nodes` are rows of trees.fold; identical subtrees among siblings are one line with a count.
    `gpu_ns` is the sum of the times of its GPU activities. `details` are texts about calls and GPU
    activities by the ids that nodes name, `signatures` those of the trace.
    """

    nodes: pl.DataFrame
    counts: Counts
    gpu_ns: int
    signatures: pl.DataFrame
    details: dict[int, str]

    @property
    def links(self) -> list[Link]:
        """Its lines, for alignment: at one level, since a hop more around others leaves those the same."""
        if self.nodes.is_empty():
            return []
        columns = self.nodes.select(
            "count", "level", pl.col("kind", "op", "key", "kernel").cast(pl.String).fill_null("")
        )
        rows = columns.to_dicts()
        for place, row in enumerate(rows):
            if row["kind"] == "api":
                row["kernel"] = ", ".join(_launched(rows, place))
        return [
            Link(0, row["kind"], row["op"], row["key"], row["kernel"], least=row["count"], most=row["count"])
            for row in rows
        ]


def _launched(rows: list[dict[str, Any]], place: int) -> Iterator[str]:
    """The names of the GPU activities below a call."""
    for below in range(place + 1, len(rows)):
        if rows[below]["level"] <= rows[place]["level"]:
            return
        if rows[below]["kind"] in GPU_KINDS:
            yield rows[below]["op"]


class ChainTables:
    """The chains of a trace, each found by the rows that belong to it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        links = combine(trace)
        self._rows = links.rows
        self._details = links.details
        self._calls_hop = trace.api_calls["hop"].cast(pl.Int64)

    @cached_property
    def _forest(self) -> Forest:
        return Forest.of(self._rows)

    def of_step(self, step: int) -> Chain:
        """All that began in one step of the program (tracer.step)."""
        return self._chain(self._rows.filter(pl.col("step") == step))

    def of_hop(self, hop: int) -> Chain:
        """A hop of the trace, and everything inside it."""
        return self.below(int(self._hop_of(self._rows).index_of(hop) or 0))

    def last(self, op: str) -> Chain | None:
        """The last outermost call of `op`; None if there is none."""
        outermost = pl.Series(self._forest.parent < 0)
        places = (outermost & (self._rows["op"].cast(pl.String) == op)).arg_true()
        return self.below(int(places[-1])) if len(places) else None

    def below(self, place: int) -> Chain:
        """The call at a place (see `calls`), and everything inside it."""
        depth = self._forest.depth
        after = np.flatnonzero(depth[place + 1 :] <= depth[place])  # rows are in the order of entry
        return self._chain(self._rows.slice(place, int(after[0]) + 1 if len(after) else None))

    def of_calls(self, places: Sequence[int]) -> Chain:
        """What calls with one structure (see `calls`) became: the first one, with the median times of all."""
        chosen = np.zeros(len(self._rows), bool)
        chosen[np.asarray(places)] = True
        rows = self._rows.filter(pl.Series(self._forest.below(chosen)))
        nodes = self._nodes(rows.with_columns(process=pl.lit(0)))  # those of all processes are one group
        once = pl.when(pl.col("level") == 0).then(1).otherwise("count").cast(nodes.schema["count"])
        return replace(self.below(places[0]), nodes=nodes.with_columns(count=once))

    def calls(self, operators: Sequence[str]) -> pl.DataFrame:
        """The calls of these operators that no other one of them encloses.

        Columns: place, hop, op, inputs (as text), structure, duration_ns, gpu_ns. `structure` is equal
        where the chains are (Forest.structure).
        """
        kind, op = (pl.col(name).cast(pl.String) for name in ("kind", "op"))
        rows = self._rows.with_row_index("place").with_columns(op=op, structure=self._forest.structure)
        called = self._rows.select((kind == "call") & op.is_in(list(operators))).to_series().to_numpy()
        calls = rows.filter(pl.Series(called & ~self._inside(called)))
        calls = calls.with_columns(pl.col("inputs").cast(pl.Int64))
        texts = signature_texts(self._trace.signatures, calls["inputs"].unique().to_list())
        names = pl.DataFrame(
            {"inputs": list(texts), "text": list(texts.values())}, {"inputs": pl.Int64, "text": pl.String}
        )
        return calls.join(names, on="inputs", how="left", maintain_order="left").select(
            "place",
            "op",
            "structure",
            hop=self._hop_of(calls),
            inputs=pl.col("text").fill_null(""),
            duration_ns=pl.col("end_ns") - pl.col("start_ns"),
            gpu_ns=pl.col("gpu_ns") if "gpu_ns" in calls.columns else pl.lit(0),
        )

    @staticmethod
    def _hop_of(rows: pl.DataFrame) -> pl.Series:
        """The id of each row's hop; `id` numbers rows of all kinds where calls and GPU activities are too."""
        return rows["hop" if "hop" in rows.columns else "id"].cast(pl.Int64)

    def _inside(self, matching: np.ndarray) -> np.ndarray:
        """True for rows that a match encloses."""
        inside = np.zeros(len(matching), bool)
        for rows in list(self._forest.levels())[1:]:
            above = self._forest.parent[rows]
            inside[rows] = inside[above] | matching[above]
        return inside

    def _chain(self, rows: pl.DataFrame) -> Chain:
        kind = rows["kind"].cast(pl.String)
        hops, gpu = rows.filter(kind.is_in(HOP_KINDS)), rows.filter(kind.is_in(GPU_KINDS))
        of_hop = self._calls_hop.is_in(self._hop_of(hops).implode())
        roles = self._trace.api_calls.filter(of_hop)["role"].cast(pl.String)
        return Chain(
            nodes=self._nodes(rows) if len(rows) else pl.DataFrame(),
            counts=Counts(
                op_calls=int((hops["kind"].cast(pl.String) == "call").sum()),
                hops=len(hops),
                library_calls=int((kind == "library").sum()),
                api_calls=len(roles),
                launches=int((roles == "launch").sum()),
                allocations=int((roles == "memory allocation").sum()),
            ),
            gpu_ns=int((gpu["end_ns"] - gpu["start_ns"]).sum()),
            signatures=self._trace.signatures,
            details=self._details,
        )

    def _nodes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Paths of Python kernels are those from the folder in which the program ran, elsewhere the file
        alone; a kernel function of an override that has no name is called by the override's."""
        kernel, override = (pl.col(name).cast(pl.String) for name in ("kernel", "override"))
        if folder := self._trace.environment.get("cwd"):
            kernel = kernel.str.replace(f"{str(folder).rstrip('/')}/", "", literal=True)
        kernel = kernel.str.replace(r"\(/[^()]*/([^/()]+)\)$", "($1)")
        named = pl.when(_is_nameless(override, kernel)).then("override " + override).otherwise(kernel)
        return fold(Forest.of(rows), ["process"])[1].with_columns(kernel=named)


def certificate_of(trace: Trace) -> dict[str, Any]:
    """The certificate without what the chains and the cases say better: kernel functions of overrides
    that have no name, and operators of an override that no case calls."""
    hops = trace.hops.select(pl.col("kernel", "override").cast(pl.String))
    nameless = hops.filter(_is_nameless(pl.col("override"), pl.col("kernel")))["kernel"].n_unique()
    certificate = trace.certificate
    left_out = [r"^override .* was enabled but never ran: "]
    if nameless == certificate.get("unresolved_kernels"):
        left_out.append(r"^\S+ kernel functions? without a name")
    why = [text for text in certificate.get("why", []) if not any(re.match(one, text) for one in left_out)]
    return {**certificate, "why": why}


def _is_nameless(override: pl.Expr, kernel: pl.Expr) -> pl.Expr:
    return override.is_not_null() & kernel.str.contains(r"\.so[.\d]*\+0x[0-9a-f]+$")


def facts_of_gpu(trace: Trace) -> dict[str, Any] | None:
    """The row of the first GPU in a trace; None where it has none."""
    return next(trace.devices.iter_rows(named=True), None)
