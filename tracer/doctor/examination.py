"""All checks, in the order in which one depends on another."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tracer.base.torch_build import installed_cuda, installed_folder
from tracer.doctor import cuda, environment, machine, software, trial
from tracer.doctor.finding import Finding
from tracer.recording import cupti_probe


def examine(*, with_gpu: bool = False) -> Iterator[Finding]:
    """Each finding as it is known. `with_gpu`: also record on the GPU, which initialises CUDA."""
    folder = installed_folder()
    yield software.check_python()
    yield software.check_torch(folder)
    built = list(software.check_extension(folder))
    yield from built
    torch_cuda = installed_cuda()
    unusable = cupti_probe.unusable(torch_cuda, again=True)  # kept, so that the trial knows it
    attempt = trial.Trial("not tried")  # it would fail for the reason that was just given
    if built and all(finding.state != "problem" for finding in built):
        attempt = trial.record_something()
        yield from trial.check_recording(attempt)
    yield from software.check_symbols(folder)
    if folder:
        yield cuda.check_build(torch_cuda)
        yield cuda.check_overrides(torch_cuda)
        yield cuda.check_driver(torch_cuda)
        yield cuda.check_gpus(torch_cuda, os.environ)
        on_gpu = trial.record_something("cuda") if with_gpu else None
        yield from cuda.check_cupti(torch_cuda, on_gpu or attempt, os.environ, unusable)
        if on_gpu:
            yield cuda.check_trial(on_gpu)
    yield machine.check_gdb()
    yield machine.check_compiler()
    yield from machine.check_disk()
    yield from environment.check_environment(os.environ)
    yield environment.check_provenance(os.environ)
