"""The name and the arguments of a timeline slice, from a row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace import Trace
from tracer.trace.bytes.records import LONGEST_NAME


class Shape(NamedTuple):
    """What many slices share: everything except times and the values of `own`."""

    category: str
    name: str
    arguments: tuple[tuple[str, str | int | bool], ...]
    own: tuple[str | None, ...]
    """Names of the values that each slice has for itself; None where it has none"""


@dataclass(frozen=True)
class Fields:
    """The rows of one table: columns in which many rows are equal, and columns of each row's own."""

    category: str
    frame: pl.DataFrame
    shared: tuple[str, ...]
    own: tuple[str, ...]

    def shapes(self, rows: NDArray[np.int64]) -> tuple[list[Shape], NDArray[np.int64], list[tuple[Any, ...]]]:
        """(the distinct shapes of these rows, the shape of each row, the own values of each row)."""
        block = self.frame[rows]
        missing = [pl.col(name).is_null().alias(f"no {name}") for name in self.own]
        keys = block.select("name", *self.shared, *missing)
        groups = keys.with_row_index("row").group_by(keys.columns, maintain_order=True).agg("row")
        texts = groups.drop("row").with_columns(pl.col(pl.Categorical).cast(pl.String))
        shape_of = np.empty(len(rows), np.int64)
        shape_of[groups["row"].explode().to_numpy()] = np.repeat(
            np.arange(len(groups)), groups["row"].list.len().to_numpy()
        )
        return [self._shape(values) for values in texts.rows()], shape_of, block.select(self.own).rows()

    def _shape(self, values: tuple[Any, ...]) -> Shape:
        name, arguments, missing = values[0], values[1 : -len(self.own)], values[-len(self.own) :]
        return Shape(
            self.category,
            name or "without a name",
            tuple(
                (label, value)
                for label, value in zip(self.shared, arguments, strict=True)
                if value is not None and value is not False
            ),
            tuple(None if absent else label for label, absent in zip(self.own, missing, strict=True)),
        )


def hop_fields(trace: Trace) -> Fields:
    """The name of a hop is `aten::mm [CPU]`; `inputs` is text."""
    hops = trace.hops
    inputs = _input_texts(trace.signatures, hops["inputs"])
    shared: tuple[str, ...] = ("op", "key", "kernel", "inputs", "source", "called_from", "registered_at")
    shared += ("rule", "module", "range", "backward_node", "override", "step", "phase", "raised", "open")
    frame = hops.select(
        pl.col("op").alias("name"),
        *(inputs if name == "inputs" else pl.col(name) for name in shared),
        pl.col("id").alias("hop"),
        "sequence_nr",
        "forward_hop",
    )
    return _HopFields("hop", frame, shared, ("hop", "sequence_nr", "forward_hop"))


class _HopFields(Fields):
    def _shape(self, values: tuple[Any, ...]) -> Shape:
        shape = super()._shape(values)
        key = dict(shape.arguments).get("key")
        return shape._replace(name=f"{shape.name} [{key}]") if key else shape


def library_fields(trace: Trace) -> Fields:
    shared = ("library", "source", "step", "phase", "open")
    own = ("library_call", "hop", "result", "arguments")
    return Fields("library", _renamed(trace.library_calls, "library_call", shared, own), shared, own)


def api_fields(trace: Trace) -> Fields:
    shared: tuple[str, ...] = ("domain", "role", "kernel", "library", "library_call", "source", "step")
    shared += ("phase", "captured", "open")
    own = ("api_call", "hop", "correlation", "result", "stack", "arguments")
    return Fields("api", _renamed(trace.api_calls, "api_call", shared, own), shared, own)


def activity_fields(trace: Trace) -> Fields:
    """Grid, block and cluster are texts: `4x1x1`."""
    shared: tuple[str, ...] = ("kind", "device", "context", "stream", "grid", "block", "cluster", "registers")
    shared += ("static_shared_bytes", "dynamic_shared_bytes", "shared_bytes", "local_bytes", "bytes")
    shared += ("graph", "step", "phase")
    own = ("activity", "api_call", "hop", "captured_by", "graph_node", "correlation")
    sizes = [pl.col(name).cast(pl.List(pl.String)).list.join("x") for name in ("grid", "block", "cluster")]
    table = trace.gpu_activities.with_columns(sizes)
    return Fields("gpu", _renamed(table, "activity", shared, own), shared, own)


def mark_fields(kind: str, marks: pl.DataFrame) -> Fields:
    """The fields of a table like marks.MARKS; `kind` is the category."""
    frame = marks.select("name", "step", "phase", number=pl.int_range(pl.len(), dtype=pl.Int64))
    return Fields(kind, frame, ("step", "phase"), ("number",))


def _renamed(table: pl.DataFrame, number: str, shared: tuple[str, ...], own: tuple[str, ...]) -> pl.DataFrame:
    """`number` is the name that its ids have where other tables mention them."""
    return table.select(
        "name", *shared, *(pl.col("id").alias(number) if name == number else pl.col(name) for name in own)
    )


def _input_texts(signatures: pl.DataFrame, inputs: pl.Series) -> pl.Series:
    """`64x64 float32 cpu, 64 int64 cpu` of the signature of each row, cut as a name is."""
    shape = (
        pl.when(pl.col("shape").list.len() == 0)
        .then(pl.lit("scalar"))
        .otherwise(pl.col("shape").cast(pl.List(pl.String)).list.join("x"))
    )
    layout = pl.col("layout").cast(pl.String)
    parts = [
        shape.fill_null("?"),
        pl.col("dtype").cast(pl.String).str.strip_prefix("torch."),
        pl.when(layout != "torch.strided").then(layout.str.strip_prefix("torch.")),
        pl.col("device").cast(pl.String),
    ]
    undefined = pl.col("shape").is_null() & pl.col("dtype").is_null()
    tensor = pl.when(undefined).then(pl.lit("undefined"))
    text = tensor.otherwise(pl.concat_str(parts, separator=" ", ignore_nulls=True)).alias("text")
    texts = (
        signatures.sort("id", "position")
        .select("id", text)
        .group_by("id")
        .agg(pl.col("text").str.join(", ").str.slice(0, LONGEST_NAME))
    )
    last = inputs.max()
    by_number: list[str | None] = [None] * (int(last) + 1 if last is not None else 1)  # type: ignore[arg-type]
    for number, signature in texts.filter(pl.col("id") < len(by_number)).iter_rows():
        by_number[number] = signature
    return pl.Series(by_number, dtype=pl.Categorical).gather(inputs.cast(pl.UInt32)).alias("inputs")
