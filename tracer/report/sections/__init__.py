"""The sections of each report, in order. A new section is a file here and a line below."""

from __future__ import annotations

from tracer.report.section import Section
from tracer.report.sections import (
    allocations,
    api_callers,
    api_details,
    api_functions,
    api_roles,
    backward,
    certificate,
    copies,
    environment,
    exceptions,
    idle,
    kernels,
    kernels_all,
    kernels_families,
    kernels_to_gain,
    kernels_unknown,
    keys,
    launches,
    modules,
    no_cuda,
    open_hops,
    ops,
    overrides,
    paths,
    runtime,
    sources,
    synchronisations,
    threads,
)

_RUNTIME: list[Section] = [
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
]
_KERNELS: list[Section] = [kernels, kernels_to_gain, kernels_unknown, kernels_all, kernels_families]
_ALL: list[Section] = [
    open_hops,
    exceptions,
    paths,
    overrides,
    *_RUNTIME,
    *_KERNELS,
    ops,
    keys,
    sources,
    modules,
    backward,
    threads,
]
_LAST: list[Section] = [environment, certificate]
ORDER: dict[str | None, list[Section]] = {
    None: [*_ALL, *_LAST],
    "cuda": [no_cuda, *_RUNTIME, *_LAST],
    "kernels": [no_cuda, *_KERNELS, *_LAST],
}
"""By what a report shows: everything (None), or one of reading.PARTS"""
