"""A recording from a GPU, and what several tests read of it."""

from __future__ import annotations

import pytest
from gpu_trace import Sample

from tracer.report.reading import Reading
from tracer.report.report import render

NAME = "gpu.trace"
STEPS = 4


@pytest.fixture(scope="session")
def sample() -> Sample:
    return Sample()


@pytest.fixture(scope="session")
def reports(sample: Sample) -> dict[str | None, str]:
    return {
        "cuda": render(Reading(sample.trace, NAME, only="cuda")),
        "kernels": render(Reading(sample.trace, NAME, only="kernels")),
        None: render(Reading(sample.trace, NAME, patterns=["cublas*", "cudnn*"], paths=30, details=30)),
    }
