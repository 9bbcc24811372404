"""Calls that end PyTorch's own process are named, and do not end the comparison."""

from __future__ import annotations

import ctypes
import os
import time

import pytest
from lazily import torch

from tracer.compare import trial_crashes
from tracer.compare.trial_crashes import ending
from tracer.compare.trial_samples import Sample


def sample(name: str) -> Sample:
    calls = {
        "right": (lambda: ([torch.ones(3)], {}), torch.relu),
        "raises": (lambda: ([torch.ones(3), torch.ones(4)], {}), torch.mm),
        "crashes": (lambda: ([0], {}), ctypes.string_at),  # what is at address 0
        "aborts": (lambda: ([], {}), os.abort),
    }
    return Sample("plain", name, *calls[name])


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        ((), []),
        (("right", "raises", "right"), []),
        (("crashes",), [0]),
        (("right", "crashes", "raises", "aborts", "right"), [1, 3]),
    ],
)
def test_they_are_found_and_the_rest_is_made(names: tuple[str, ...], ends: list[int]) -> None:
    assert ending([sample(name) for name in names]) == ends


def test_a_call_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_crashes, "_LONGEST", 0.2)
    waits = Sample("plain", "waits", lambda: ([600.0], {}), time.sleep)
    begun = time.monotonic()
    assert ending([sample("aborts"), waits, sample("aborts")]) == [0]
    assert time.monotonic() - begun < 60
