"""The kernels that the GPU ran, in all, and what their limits are."""

from __future__ import annotations

from tracer.analysis.kernel_survey import FLOOR_NS, LEAST, KernelSurvey
from tracer.report.cells import code, item, prose, wrapped
from tracer.report.kernel_tables import KernelTables
from tracer.report.page import Page, paragraphs
from tracer.report.reading import with_cuda
from tracer.report.roofline import rooflines
from tracer.report.svg.roofline import LEAST_POINTS, roofline_svg
from tracer.report.text import amount, count, duration, whole_percent

title = "Device kernels"
level = 2
wanted = with_cuda
data = KernelTables.of

_LIMITS = """\
An op reads each input and writes each output at least once, and does its operations. The bandwidth of the
memory and the peak of the compute unit turn that into a lower bound of its time: the limit. {floor}
Head-room is the part of the time beyond the limit, over all kernels of an op call; "to gain" is GPU time x
head-room. A kernel that reads from the L2 cache can be faster than its limit; its head-room is 0 %. Peaks are
multiprocessors x clock x operations per clock (NVIDIA's data sheets): an upper bound that no kernel reaches.
docs/report.md has the details."""


def markdown(data: KernelTables, page: Page) -> str:
    more = ""
    if page.only is None:
        command = code(f"tracer report {page.name} --only kernels")
        more = f"Launch, resources, work and family of each kernel: {command}."
    limits = wrapped(_LIMITS.format(floor=_floor(data.survey)))
    return paragraphs(_summary(data), more, _pictures(data, page), limits)


def _pictures(data: KernelTables, page: Page) -> str:
    """A roofline for each device with kernels enough."""
    if page.pictures is None:
        return ""
    lines = [line for line in rooflines(data) if len(line.points) >= LEAST_POINTS]
    shown = []
    for number, line in enumerate(lines):
        kind = "roofline" + (f"{number}" if number else "")
        shown.append(page.pictures.add(kind, "Roofline of the kernels", roofline_svg(line)))
        shown.append(wrapped(line.note))
    return paragraphs(*shown)


def _summary(data: KernelTables) -> str:
    survey = data.survey
    kinds = count(len({row.kernel for row in survey.rows}), "kind")
    lines = [f"{count(survey.launches, 'kernel')} of {kinds}, {duration(survey.total_ns)} on the GPU"]
    lines += _phases(survey)
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
    known = sum(row.total_ns for row in data.ranked)
    if survey.total_ns:
        lines.append(f"the limit is known for {whole_percent(known, survey.total_ns)} of that time")
    return "\n".join(map(item, lines))


def _phases(survey: KernelSurvey) -> list[str]:
    """Which kernels are left out because they ran in no steady step, and which count all the same."""
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


def _floor(survey: KernelSurvey) -> str:
    """The least limit."""
    if not survey.rows:
        return ""
    floor = duration(survey.floor_ns)
    if survey.floor_ns < FLOOR_NS:
        return f"No limit is below the shortest kernel of the trace ({floor})."
    return f"No limit is below {floor}, {LEAST}; none of the trace took less."
