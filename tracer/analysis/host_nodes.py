"""What the host's threads did between two moments: hops, library calls, API calls and compiled code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracer.analysis.phases import in_backward, of_compiled_backward
from tracer.analysis.runtime_survey import SYNCHRONISATION

if TYPE_CHECKING:
    from tracer.trace import Trace

HOP, COMPILED, LIBRARY, API = "hop", "compiled", "library", "api"
_NOT_BACKENDS = (
    *("Autograd", "ADInplaceOrView", "Autocast", "BackendSelect", "Python", "PreDispatch", "Functionalize"),
    *("FuncTorch", "Batched", "Vmap", "Conjugate", "Negative", "ZeroTensor", "Tracer", "Named", "Fake"),
    *("Undefined", "DeferredInit", "TESTING"),
)
_COMPOSITE = "math kernel"


@dataclass(frozen=True)
class Layer:
    """A layer of the host's work: the kind of a row of a ledger; `name` distinguishes rows of a kind.

    `path`: of a row for each hop of a path, the names from the outermost to its own.
    """

    kind: str
    name: str = ""
    path: tuple[str, ...] = ()


def host_nodes(trace: Trace, process: int, begin: int, end: int) -> pl.DataFrame:
    """All that was open in a process between two moments, those that enclose others first.

    Columns: node (HOP, COMPILED, LIBRARY or API), id (the row in its table), thread, start_ns, end_ns
    (`end` if it is open), key, op, line (that called it), composite, outermost, backward, waits (for the
    GPU).
    """
    inside = (
        (pl.col("process") == process)
        & (pl.col("start_ns") < end)
        & (pl.col("end_ns").is_null() | (pl.col("end_ns") >= begin))
    )
    text = pl.String
    hops = trace.hops.filter(inside).select(
        *_times(HOP, end),
        pl.col("key").cast(text),
        pl.col("op").cast(text),
        line=pl.coalesce(pl.col("source").cast(text), pl.col("called_from").cast(text)),
        composite=pl.col("rule").cast(text).str.contains(_COMPOSITE, literal=True).fill_null(False),
        outermost=pl.col("parent").is_null(),
        backward=in_backward(),
    )
    compiled = trace.compiled_calls.filter(inside).select(
        *_times(COMPILED, end),
        op=pl.col("function").cast(text),
        line=pl.col("called_from").cast(text),
        backward=of_compiled_backward(),
    )
    library = trace.library_calls.filter(inside).select(*_times(LIBRARY, end), op=pl.col("name").cast(text))
    api = trace.api_calls.filter(inside).select(
        *_times(API, end),
        op=pl.col("name").cast(text),
        waits=(pl.col("role").cast(text) == SYNCHRONISATION).fill_null(False),
    )
    flags = pl.col("composite", "outermost", "waits").fill_null(False)
    return pl.concat([hops, compiled, library, api], how="diagonal").with_columns(flags)


def layer_of(node: str, key: str | None, composite: bool, waits: bool) -> Layer:
    """The layer that the own time of a node counts in."""
    if node == API:
        return Layer("waiting" if waits else "api")
    if node != HOP:
        return Layer(node)
    if key is None:
        return Layer("rest")
    if composite:
        return Layer("composite", key)
    return Layer("key" if key.startswith(_NOT_BACKENDS) else "kernel", key)


def _times(node: str, end: int) -> list[pl.Expr]:
    return [
        pl.lit(node).alias("node"),
        pl.col("id").cast(pl.Int64),
        pl.col("thread").cast(pl.Int64),
        pl.col("start_ns").cast(pl.Int64),
        pl.col("end_ns").cast(pl.Int64).fill_null(end),
    ]
