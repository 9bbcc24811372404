"""How often PyTorch and its libraries called the CUDA API, in all."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import runtime_survey
from tracer.analysis.limits import Limits
from tracer.analysis.runtime_survey import Steps
from tracer.report.cells import code, item, prose
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading, with_cuda
from tracer.report.text import amount, count, duration, size

title = "CUDA runtime"
level = 2
wanted = with_cuda


@dataclass(frozen=True)
class Runtime:
    """`host_ns` is the time of all API calls; `launches` are those that launched a kernel."""

    calls: int
    functions: int
    host_ns: int
    launches: int
    steps: Steps
    devices: list[Limits]


def data(reading: Reading) -> Runtime:
    calls = reading.api_calls
    devices = reading.trace.devices.unique("device", maintain_order=True).to_dicts()
    return Runtime(
        calls=len(calls),
        functions=len(reading.api_functions),
        host_ns=int(calls["duration"].sum()),
        launches=len(runtime_survey.launches_that_ran(calls)),
        steps=reading.steps,
        devices=[Limits.of(row) for row in devices],
    )


def markdown(data: Runtime, page: Page) -> str:
    lines = [
        f"{count(data.calls, 'API call')} of {count(data.functions, 'function')}, "
        f"{duration(data.host_ns)} on the host; {data.launches:,} of them launched a kernel",
        *map(_device, data.devices),
        _steps(data.steps),
    ]
    more = ""
    if page.only is None:
        more = (
            "All functions, their callers, copies and launches per op: "
            f"{code(f'tracer report {page.name} --only cuda')}."
        )
    return paragraphs("\n".join(map(item, lines)), more)


def _steps(steps: Steps) -> str:
    if steps.warmup or steps.steady:
        return (
            f"{count(steps.warmup, 'warm-up step')} and {count(steps.steady, 'steady step')}; "
            "columns per step have the mean over the steps of that phase"
        )
    if not steps.too_few:
        return f"{count(steps.untold, 'step')}, all counted the same"
    known = f"only {count(steps.untold, 'step')}" if steps.untold else "no step"
    return (
        f"{known} known, so warm-up is not separated from steady state: an optimizer's step() or "
        "tracer.step() marks a step, and one process needs three of them"
    )


def _device(device: Limits) -> str:
    facts = [device.name]
    if device.multiprocessors:
        facts.append(count(device.multiprocessors, "multiprocessor"))
    if device.bytes_per_s:
        facts.append(amount(device.bytes_per_s, "B/s"))
    if device.l2_bytes:
        facts.append(f"{size(device.l2_bytes)} L2 cache")
    return prose(", ".join(facts))
