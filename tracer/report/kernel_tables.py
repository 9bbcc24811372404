"""The kernels of a report, and how tables name them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracer.analysis.device_kernels import table_name
from tracer.analysis.inputs_text import signature_texts
from tracer.analysis.kernel_survey import KernelRow, KernelSurvey
from tracer.report.cells import code, prose
from tracer.report.reading import Reading
from tracer.report.text import (
    count,
    duration,
    shorten,
    shorten_kernel,
    size,
)

RANKED = 20
"""Rows of the shorter tables, if the user asked for no number"""
_NAME = 76
_INPUTS = 64
_END = 32


@dataclass(frozen=True)
class KernelTables:
    """The kernels of a trace, with what their tables show.

    shapes      text of the inputs, by signature
    expanded    signatures with an expanded input (a stride of 0)
    """

    survey: KernelSurvey
    shapes: dict[int, str]
    expanded: frozenset[int]

    @classmethod
    def of(cls, reading: Reading) -> KernelTables:
        survey, signatures = reading.kernels, reading.trace.signatures
        expanded = signatures.filter(pl.col("stride").list.contains(0))["id"]
        shapes = signature_texts(signatures, {row.signature for row in survey.rows})
        return cls(survey, shapes, frozenset(expanded.cast(pl.Int64).to_list()))

    @property
    def ranked(self) -> list[KernelRow]:
        """Those with a known limit."""
        return [row for row in self.survey.rows if row.score_ns is not None]

    @property
    def unknown(self) -> list[KernelRow]:
        return [row for row in self.survey.rows if row.score_ns is None]

    def share(self, row: KernelRow) -> str:
        return f"{100 * row.total_ns / self.survey.total_ns:.1f} %" if self.survey.total_ns else ""

    def inputs(self, row: KernelRow) -> str:
        return prose(shorten_kernel(self._shapes_of(row), _INPUTS))

    def names(
        self, rows: list[KernelRow], reads: list[tuple[object, ...]], *, has_bytes: bool = False
    ) -> list[str]:
        """The kernel's name for each row of a table, with what differs from rows whose `reads` are equal.

        `has_bytes`: the table has a column of them, which a name need not repeat.
        """
        facts = [self._facts(row) for row in rows]
        if has_bytes:
            for of_row in facts:
                del of_row["bytes"]
        equal: dict[tuple[object, ...], list[dict[str, str]]] = {}
        for cells, of_row in zip(reads, facts, strict=True):
            equal.setdefault(cells, []).append(of_row)
        names = []
        for row, cells, of_row in zip(rows, reads, facts, strict=True):
            differing = [
                text
                for fact, text in of_row.items()
                if text and len({other[fact] for other in equal[cells]}) > 1
            ]
            names.append(kernel_name(row) + (f" ({', '.join(differing)})" if differing else ""))
        return names

    def _shapes_of(self, row: KernelRow) -> str:
        return self.shapes.get(row.signature, "") if row.signature is not None else ""

    def _facts(self, row: KernelRow) -> dict[str, str]:
        """What may distinguish a row from the next, by name."""
        shapes = self._shapes_of(row)
        return {
            "op": code(row.op or "no op"),
            "grid": f"grid {extent(row.grid)}",
            "block": f"block {extent(row.block)}",
            "registers": count(row.registers, "register"),
            "shared": f"{size(row.shared_bytes)} shared",
            "library": f"by {code(row.library_call)}" if row.library_call else "",
            "inputs": f"inputs {prose(shorten(shapes, _END))}" if len(shapes) > _INPUTS else "",
            "bytes": size(row.work.bytes) if row.work and row.work.bytes is not None else "",
            "expanded": "with an expanded input" if row.signature in self.expanded else "",
            "tf32": "in TF32" if row.tf32 else "",
            "device": f"device {row.device}",
            "call": f"in calls of {duration(round(row.of_ns))}"
            if row.beside_others_too and row.of_ns
            else "",
        }


def kernel_name(row: KernelRow) -> str:
    return code(shorten_kernel(table_name(row.kernel), _NAME))


def is_shortened(kernel: str) -> bool:
    return shorten_kernel(table_name(kernel), _NAME) != kernel


def extent(extents: tuple[int, ...]) -> str:
    """`2x3` of (2, 3, 1); `scalar` of no extents."""
    shown = list(extents)
    while len(shown) > 1 and shown[-1] == 1 and len(extents) == 3:
        shown.pop()
    return "x".join(map(str, shown)) or "scalar"
