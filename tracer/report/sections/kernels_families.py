"""What each family of kernels does, and what to try."""

from __future__ import annotations

from tracer.analysis.families import FAMILIES, Family
from tracer.report.cells import item, prose
from tracer.report.kernel_tables import KernelTables
from tracer.report.page import Page
from tracer.report.reading import with_cuda

title = "Families of kernels"
level = 3
wanted = with_cuda
data = KernelTables.of


def markdown(data: KernelTables, page: Page) -> str:
    """A paragraph for each family of kernels that ran, the one with the most time first."""
    times: dict[str, int] = {}
    for row in data.survey.rows:
        if row.family:
            times[row.family.name] = times.get(row.family.name, 0) + row.total_ns
    known = {family.name: family for family in FAMILIES}
    ordered = sorted(times, key=lambda name: -times[name])
    return "\n\n".join(_family(known[name], times[name], data) for name in ordered)


def _family(family: Family, ns: int, data: KernelTables) -> str:
    share = 100 * ns / data.survey.total_ns if data.survey.total_ns else 0
    lines = [
        f"why it is parallel: {prose(family.parallel)}",
        f"grid and block: {prose(family.spread)}",
        f"logic: {prose(family.logic)}",
        f"what to try: {prose(family.options)}",
    ]
    head = f"#### {prose(family.name)}: {share:.1f} % of the GPU time"
    return "\n".join([head, "", *map(item, lines)])
