"""Renders what a report says of the device kernels."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

import polars as pl

from tracer.analysis.device_kernels import table_name
from tracer.analysis.families import FAMILIES, Family
from tracer.analysis.kernel_survey import FLOOR_NS, LEAST, KernelRow, KernelSurvey, remarks
from tracer.report.cells import code, item, prose, table
from tracer.report.text import (
    amount,
    count,
    duration,
    left_out,
    shorten,
    shorten_kernel,
    signature_texts,
    size,
    source_line,
    whole_percent,
)

if TYPE_CHECKING:
    from tracer.report.model import Report

_NAME = 76
_INPUTS = 64
_END = 32
_LINES = 3
_IN_FULL = {False: 5, True: 10}
_RANKED = 20
_ALL = {False: 30, True: 60}


class KernelsPage:
    """What the template calls, for one report."""

    def __init__(self, survey: KernelSurvey, report: Report) -> None:
        self._survey = survey
        self._folder = report.environment.get("cwd")
        self._only = report.only == "kernels"
        self._most = report.rows or _RANKED  # rows of the shorter tables
        self._most_in_all = report.rows or _ALL[self._only]
        self._shapes = signature_texts(report.signatures, {row.signature for row in survey.rows})
        expanded = report.signatures.filter(pl.col("stride").list.contains(0))["id"]
        self._expanded = set(expanded.cast(pl.Int64).to_list())
        self._ranked = [row for row in survey.rows if row.score_ns is not None]
        self._unknown = [row for row in survey.rows if row.score_ns is None]

    def summary(self) -> str:
        survey = self._survey
        lines = [
            f"{count(survey.launches, 'kernel')} of {self._kinds()}, {duration(survey.total_ns)} on the GPU"
        ]
        lines += self._phases()
        if survey.untimed:
            lines.append(f"{count(survey.untimed, 'kernel')} without times are left out: CUPTI knew none")
        for limits in {limits.name: limits for limits in survey.limits.values()}.values():
            peaks = [f"{unit} {amount(peak, 'FLOP/s')}" for unit, peak in limits.flops_per_s.items()]
            if limits.bytes_per_s or peaks:
                measured = " (as measured by the user)" if limits.measured else ""
                bandwidth = amount(limits.bytes_per_s, "B/s")
                lines.append(
                    f"{prose(limits.name)}: {bandwidth}; {', '.join(peaks) or 'peaks unknown'}{measured}"
                )
        known = sum(row.total_ns for row in self._ranked)
        if survey.total_ns:
            lines.append(f"of {whole_percent(known, survey.total_ns)} of that time the limit is known")
        return "\n".join(map(item, lines))

    def _phases(self) -> list[str]:
        """Which kernels are left out as of no steady step, and which count all the same."""
        survey = self._survey
        outside = 0 if survey.outside_counts else survey.outside
        lines = []
        if survey.left_out and outside:
            both = f"{count(survey.left_out, 'kernel')} of warm-up steps and {outside:,} outside steps"
            lines.append(f"{both} are left out")
        elif survey.left_out or outside:
            where = "of warm-up steps" if survey.left_out else "outside steps"
            verb = "is" if survey.left_out + outside == 1 else "are"
            lines.append(f"{count(survey.left_out or outside, 'kernel')} {where} {verb} left out")
        if survey.outside_counts:
            kernels = count(survey.outside, "kernel")
            lines.append(f"{kernels} outside steps, most of the GPU time, counted too")
        return lines

    def floor(self) -> str:
        """The limit that no kernel is below."""
        if not self._survey.rows:
            return ""
        floor = duration(self._survey.floor_ns)
        if self._survey.floor_ns < FLOOR_NS:
            return f"No limit is below the shortest kernel of the trace ({floor})."
        return f"No limit is below {floor}, {LEAST}; none of the trace took less."

    def ranking(self) -> str:
        if not self._ranked:
            return ""
        shown = self._ranked[: self._most]
        names = self._names(shown, [(row.op, _name(row), self._inputs(row)) for row in shown])
        rows = [
            [
                str(number),
                duration(round(row.score_ns or 0)),
                f"{100 * (row.headroom or 0):.0f} %",
                duration(row.total_ns),
                self._share(row),
                f"{row.calls:,}",
                code(row.op or "no op"),
                name,
                self._inputs(row),
            ]
            for number, (row, name) in enumerate(zip(shown, names, strict=True), 1)
        ]
        titles = ["#:", "to gain:", "head-room:", "GPU time:", "share:", "calls:", "op", "kernel", "inputs"]
        return table(titles, rows, ragged=True) + self._more(self._ranked)

    def unknown(self) -> str:
        if not self._unknown:
            return ""
        shown = self._unknown[: self._most]
        names = self._names(shown, [(row.op, _name(row), self._inputs(row)) for row in shown])
        rows = [
            [
                duration(row.total_ns),
                self._share(row),
                f"{row.calls:,}",
                duration(row.median_ns),
                code(row.op or "no op"),
                name,
                self._inputs(row),
                row.unknown,
            ]
            for row, name in zip(shown, names, strict=True)
        ]
        titles = ["GPU time:", "share:", "calls:", "median:", "op", "kernel", "inputs", "why"]
        return table(titles, rows, ragged=True) + self._more(self._unknown)

    def sections(self) -> str:
        """The kernels with the most to gain, each with its launch, resources, work and limit."""
        return "\n\n".join(
            self._section(number, row) for number, row in enumerate(self._ranked[: _IN_FULL[self._only]], 1)
        )

    def all(self) -> str:
        """Every kernel with its launch, resources and work."""
        shown = self._survey.rows[: self._most_in_all]
        names = self._names(
            shown,
            [
                (row.grid, row.block, row.registers, row.shared_bytes, _name(row), self._inputs(row))
                for row in shown
            ],
            has_bytes=True,
        )
        rows = [
            [
                _extent(row.grid),
                _extent(row.block),
                str(row.registers),
                size(row.shared_bytes),
                self._occupancy(row),
                f"{row.occupancy.waves:.3g}" if row.occupancy else "",
                size(row.work.bytes) if row.work and row.work.bytes is not None else "unknown",
                amount(row.work.flops, "FLOP") if row.work else "unknown",
                duration(round(row.limit.ns)) if row.limit else "unknown",
                duration(row.median_ns),
                name,
                self._inputs(row),
            ]
            for row, name in zip(shown, names, strict=True)
        ]
        titles = ["grid:", "block:", "regs:", "shared:", "occupancy:", "waves:"]
        titles += ["bytes:", "FLOP:", "limit:", "median:", "kernel", "inputs"]
        return table(titles, rows, ragged=True) + left_out(len(self._survey.rows) - self._most_in_all)

    def names(self) -> str:
        """The whole of each name that tables shorten, as a list; "" where they shorten none."""
        kernels = dict.fromkeys(row.kernel for row in self._survey.rows)
        return "\n".join(
            f"- {code(kernel)}" for kernel in kernels if shorten_kernel(table_name(kernel), _NAME) != kernel
        )

    def families(self) -> str:
        """A paragraph for each family of kernels that ran, the one with the most time first."""
        times: dict[str, int] = {}
        for row in self._survey.rows:
            if row.family:
                times[row.family.name] = times.get(row.family.name, 0) + row.total_ns
        known = {family.name: family for family in FAMILIES}
        ordered = sorted(times, key=lambda name: -times[name])
        return "\n\n".join(self._family(known[name], times[name]) for name in ordered)

    def _family(self, family: Family, ns: int) -> str:
        share = 100 * ns / self._survey.total_ns if self._survey.total_ns else 0
        lines = [
            f"why it is parallel: {prose(family.parallel)}",
            f"grid and block: {prose(family.spread)}",
            f"logic: {prose(family.logic)}",
            f"what to try: {prose(family.options)}",
        ]
        head = f"#### {prose(family.name)}: {share:.1f} % of the GPU time"
        return "\n".join([head, "", *map(item, lines)])

    def _section(self, number: int, row: KernelRow) -> str:
        lines = [
            f"op: {self._caller(row)}",
            f"launch: {self._launch(row)}",
            f"resources: {self._resources(row)}",
            f"work: {self._work(row)}",
            f"time: median {duration(row.median_ns)}, least {duration(row.least_ns)}; "
            f"head-room {100 * (row.headroom or 0):.0f} %",
            *remarks(row, self._survey.limits.get(row.device)),
            *([f"family: {prose(row.family.name)} (below)"] if row.family else []),
        ]
        if table_name(row.kernel) != row.kernel:
            lines.insert(0, f"kernel: {code(row.kernel)}")
        return "\n".join([f"#### {number}. {_name(row)}", "", *map(item, lines)])

    def _names(
        self, rows: list[KernelRow], reads: list[tuple[object, ...]], *, has_bytes: bool = False
    ) -> list[str]:
        """The kernel's name for each row of a table, with what differs from rows whose `reads` are equal.

        `has_bytes`: the table has a column of them, which a name need not repeat.
        """
        facts = [self._facts(row) for row in rows]
        if has_bytes:
            for of_row in facts:
                del of_row["bytes"]
        alike: dict[tuple[object, ...], list[dict[str, str]]] = {}
        for cells, of_row in zip(reads, facts, strict=True):
            alike.setdefault(cells, []).append(of_row)
        names = []
        for row, cells, of_row in zip(rows, reads, facts, strict=True):
            differing = [
                text
                for fact, text in of_row.items()
                if text and len({other[fact] for other in alike[cells]}) > 1
            ]
            names.append(_name(row) + (f" ({', '.join(differing)})" if differing else ""))
        return names

    def _facts(self, row: KernelRow) -> dict[str, str]:
        """What may tell a row from the next, by name."""
        shapes = self._shapes.get(row.signature, "") if row.signature is not None else ""
        return {
            "op": code(row.op or "no op"),
            "grid": f"grid {_extent(row.grid)}",
            "block": f"block {_extent(row.block)}",
            "registers": count(row.registers, "register"),
            "shared": f"{size(row.shared_bytes)} shared",
            "library": f"by {code(row.library_call)}" if row.library_call else "",
            "inputs": f"inputs {prose(shorten(shapes, _END))}" if len(shapes) > _INPUTS else "",
            "bytes": size(row.work.bytes) if row.work and row.work.bytes is not None else "",
            "expanded": "with an expanded input" if row.signature in self._expanded else "",
            "tf32": "in TF32" if row.tf32 else "",
            "device": f"device {row.device}",
            "call": f"in calls of {duration(round(row.of_ns))}"
            if row.beside_others_too and row.of_ns
            else "",
        }

    def _inputs(self, row: KernelRow) -> str:
        shapes = self._shapes.get(row.signature, "") if row.signature is not None else ""
        return prose(shorten_kernel(shapes, _INPUTS))

    def _caller(self, row: KernelRow) -> str:
        shapes = self._shapes.get(row.signature) if row.signature is not None else None
        words = [code(row.op or "no op") + (f" ({prose(shapes)})" if shapes else "")]
        if row.library_call:
            words.append(f"by {code(row.library_call.removesuffix('()'))}")
        if row.sources:
            lines = [code(source_line(source, self._folder)) for source in row.sources[:_LINES]]
            beyond = len(row.sources) - _LINES
            more = f" and {count(beyond, 'more line')}" if beyond > 0 else ""
            words.append(f"from {', '.join(lines)}{more}")
        return ", ".join(words)

    def _launch(self, row: KernelRow) -> str:
        text = f"grid {_extent(row.grid)}, block {_extent(row.block)}"
        if row.cluster and prod(row.cluster) > 1:
            text += f", clusters of {_extent(row.cluster)}"
        text += f": {count(row.threads, 'thread')}"
        output = row.work.output if row.work else None
        if not output:
            return text
        if row.is_one_of_several:  # it need not make all of the output
            text += f"; the output of the whole {row.of} is {_extent(output)}"
        else:
            each = row.elements_per_thread or 0
            text += f" for an output of {_extent(output)}, {each:.3g} elements a thread"
        if row.tile and len(output) >= 2:
            text += self._tiles(row, output)
        return text

    @staticmethod
    def _tiles(row: KernelRow, output: tuple[int, ...]) -> str:
        """How the tile in a GEMM kernel's name fits the output and the grid; cuBLAS may swap its sides."""
        rows, columns = row.tile or (1, 1)
        batch = prod(output[:-2])
        tiles = {
            batch * ceil(output[-2] / a) * ceil(output[-1] / b) for a, b in ((rows, columns), (columns, rows))
        }
        blocks = prod(row.grid)
        split = "; the sum over k is split, or tiles are padded" if blocks > max(tiles) else ""
        *others, most = sorted(tiles)
        fit = "".join(f"{n:,} or " for n in others) + count(most, "tile")
        return f"; its name says tiles of {rows}x{columns}: {fit} for {count(blocks, 'block')}{split}"

    def _resources(self, row: KernelRow) -> str:
        words = [f"{row.registers} registers a thread", f"{size(row.shared_bytes)} shared memory a block"]
        if full := row.occupancy:
            words.append(
                f"{count(full.blocks_per_multiprocessor, 'block')} a multiprocessor, theoretical occupancy "
                f"{100 * full.share:.0f} % (limited by {full.limited_by})"
            )
            words.append(f"{full.waves:.3g} waves")
        return ", ".join(words)

    def _work(self, row: KernelRow) -> str:
        if row.work is None or row.limit is None:
            return "unknown"
        words = [size(row.work.bytes or 0)] + [amount(row.work.flops, "FLOP")] * bool(row.work.flops)
        text = f"{', '.join(words)} {'an op call' if row.of == 'op' else 'a library call'}"
        if row.is_one_of_several and row.of_ns:
            text += f" of {duration(round(row.of_ns))} in {row.of_kernels:.3g} kernels"
        text += f"; limit {duration(round(row.limit.ns))} by {row.limit.by}"
        return text + (f" ({row.work.note})" if row.work.note else "")

    def _occupancy(self, row: KernelRow) -> str:
        return f"{100 * row.occupancy.share:.0f} %" if row.occupancy else ""

    def _kinds(self) -> str:
        return count(len({row.kernel for row in self._survey.rows}), "kind")

    def _share(self, row: KernelRow) -> str:
        return f"{100 * row.total_ns / self._survey.total_ns:.1f} %" if self._survey.total_ns else ""

    def _more(self, rows: list[KernelRow]) -> str:
        return left_out(len(rows) - self._most)


def _name(row: KernelRow) -> str:
    return code(shorten_kernel(table_name(row.kernel), _NAME))


def _extent(extents: tuple[int, ...]) -> str:
    shown = list(extents)
    while len(shown) > 1 and shown[-1] == 1 and len(extents) == 3:
        shown.pop()
    return "x".join(map(str, shown)) or "scalar"
