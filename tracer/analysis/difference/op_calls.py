"""Op calls of a trace with their time on the host and on the GPU, for any choice of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.trace.tables.series import numbers

if TYPE_CHECKING:
    from tracer.trace import Trace


NOT_WORK = frozenset(
    (
        *("T", "_conj", "_local_scalar_dense", "_reshape_alias", "_unsafe_view", "adjoint", "alias"),
        *("as_strided", "chunk", "detach", "diagonal", "empty", "empty_like", "empty_strided", "expand"),
        *("expand_as", "flatten", "is_same_size", "item", "lift_fresh", "mH", "mT", "movedim", "narrow"),
        *("new_empty", "new_empty_strided", "numpy_T", "permute", "ravel", "requires_grad_", "reshape"),
        *("resolve_conj", "resolve_neg", "select", "set_data", "slice", "split", "split_with_sizes"),
        *("squeeze", "swapaxes", "swapdims", "t", "transpose", "unbind", "unflatten", "unfold"),
        *("unsafe_split", "unsqueeze", "view", "view_as"),
    )
)
"""Names of ops that move no data of a tensor"""
_FAMILIES = {
    "matrix product": [f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot")],
    "batch norm": [
        f"aten::{name}"
        for name in (
            *("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"),
            *("_native_batch_norm_legit_functional", "_batch_norm_with_update_functional"),
        )
    ],
    "batch norm backward": [
        f"aten::{name}"
        for name in ("native_batch_norm_backward", "cudnn_batch_norm_backward", "batch_norm_backward")
    ],
}
"""Which of these torch calls depends on the sizes and on the device, and differs in compiled code"""


def base_name(column: str = "op") -> pl.Expr:
    """`aten::add` of `aten::add_.Tensor`: without its overload; in-place ops like those that return."""
    return pl.col(column).cast(pl.String).str.extract(r"^(.+?)_?(?:\.|$)")


def matched_name(column: str = "op") -> pl.Expr:
    """The name by which op calls of an eager and of a compiled run are the same: of a family the family's."""
    names = {name: family for family, members in _FAMILIES.items() for name in members}
    return pl.col(column).replace(names)


def is_work(base: pl.Expr) -> pl.Expr:
    """Whether ops of these names compute or copy; ranges and the like do not."""
    name = base.str.extract(r"::(.+)$")
    return ~(name.is_in(list(NOT_WORK)) | base.str.starts_with("profiler::")).fill_null(True)


def parents(hops: pl.DataFrame) -> np.ndarray:
    """The row around each hop; -1: none."""
    return numbers(hops["parent"])


def outermost_of(marked: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """For each hop the row of the outermost marked one around it, or itself if it is that; -1: none."""
    found = np.append(np.where(marked, np.arange(len(marked)), -1), -1)
    above = np.append(parent, -1)
    while (above >= 0).any():  # twice as far in each round
        found = np.where(found[above] >= 0, found[above], found)
        above = above[above]
    return found[:-1]


def timed(trace: Trace, hops: pl.DataFrame, owner: np.ndarray) -> pl.DataFrame:
    """A row for each hop and step that owns something: row, step, ns, gpu_ns, launches.

    `owner` has the row that each hop counts for (outermost_of). GPU work of a CUDA graph counts for the hop
    that was captured, in the step that replayed it; then ns is 0.
    """
    rows = np.flatnonzero(owner == np.arange(len(owner)))
    host = hops[rows].select(
        "step", row=pl.Series(rows, dtype=pl.Int64), ns=pl.col("end_ns") - pl.col("start_ns")
    )
    kernels = trace.gpu_activities.filter(pl.col("kind").cast(pl.String) == "kernel")
    hop = numbers(kernels["hop"])
    device = kernels.select(
        "step",
        row=pl.Series(np.append(owner, -1)[hop], dtype=pl.Int64),
        gpu_ns=pl.col("end_ns") - pl.col("start_ns"),
        launches=pl.lit(1, dtype=pl.Int64),
    ).filter(pl.col("row") >= 0)
    parts = pl.concat([host, device], how="diagonal")
    return parts.group_by("row", "step", maintain_order=True).agg(pl.col("ns", "gpu_ns", "launches").sum())
