"""The sections of each report, in order.

A new section is a file here or, if it is one table, an entry of tables.py; and a line below.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracer.report.section import Section
from tracer.report.sections import (
    advice,
    allocations,
    api_callers,
    api_details,
    api_functions,
    api_roles,
    certificate,
    compiled,
    copies,
    dumped,
    environment,
    gaps,
    hang,
    idle,
    job,
    kernel_details,
    kernels,
    kernels_all,
    kernels_families,
    kernels_to_gain,
    kernels_unknown,
    launches,
    memory,
    no_cuda,
    overrides,
    path_details,
    paths,
    ranges,
    runtime,
    steps,
    summary,
    synchronisations,
)
from tracer.report.sections.tables import (
    BACKWARD,
    EXCEPTIONS,
    KEYS,
    MODULES,
    OPEN_HOPS,
    OPS,
    SOURCES,
    THREADS,
    TableSection,
)

_EVERY: list[Section] = [
    no_cuda,
    hang,
    dumped,
    OPEN_HOPS,
    EXCEPTIONS,
    advice,
    summary,
    steps,
    gaps,
    job,
    ranges,
    compiled,
    paths,
    path_details,
    overrides,
    runtime,
    api_roles,
    api_functions,
    api_callers,
    synchronisations,
    allocations,
    launches,
    copies,
    idle,
    api_details,
    kernels,
    kernels_to_gain,
    kernel_details,
    kernels_unknown,
    kernels_all,
    kernels_families,
    OPS,
    KEYS,
    SOURCES,
    MODULES,
    BACKWARD,
    memory,
    THREADS,
    environment,
    certificate,
]


def name_of(section: Section) -> str:
    """As `tracer report --section` has it: of a module its file's."""
    return section.name if isinstance(section, TableSection) else section.__name__.rpartition(".")[2]  # type: ignore[attr-defined]


NAMED: dict[str, Section] = {name_of(section): section for section in _EVERY}
"""Every section by its name, in order"""

_RUNTIME = [runtime, api_roles, api_functions, api_callers, synchronisations, allocations, launches, copies]
_KERNELS = [kernels, kernels_to_gain, kernel_details, kernels_unknown, kernels_all, kernels_families]
_IN_PARTS_ONLY = [
    no_cuda,
    api_functions,
    api_callers,
    launches,
    copies,
    api_details,
    kernel_details,
    kernels_unknown,
    kernels_all,
    kernels_families,
]
_PARTS: dict[str, list[Section]] = {
    "cuda": [no_cuda, *_RUNTIME, idle, api_details, environment, certificate],
    "kernels": [no_cuda, *_KERNELS, environment, certificate],
}


def order(only: str | None, chosen: Sequence[str] = ()) -> list[Section]:
    """The sections of a report: those named in `chosen`, or all of the part `only`, or of everything.

    The report of everything has the summary of each part, and says how to see the whole part.
    """
    if chosen:
        return [section for name, section in NAMED.items() if name in chosen]
    if only:
        return _PARTS[only]
    return [section for section in _EVERY if section not in _IN_PARTS_ONLY]
