"""Lists of more tensors than a signature has."""

from __future__ import annotations

import polars as pl
from launching import Launcher

import tracer

PROGRAM = """
import torch
for count in 100, 101, 64, 3:
    one = [torch.ones(2, 3) for _ in range(count)]
    torch._foreach_add_(one, one)
    torch.cat(one)
"""


def test_the_lengths_of_lists_are_recorded_whole(launcher: Launcher) -> None:
    launcher.write(PROGRAM)
    run = launcher.record("-o", "t.trace", "script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "t.trace")
    calls = trace.hops.filter(
        pl.col("parent").is_null(), pl.col("op").cast(pl.String).str.contains("foreach_add_|cat")
    )
    found = []
    for number in calls["inputs"]:
        tensors = trace.signatures.filter(pl.col("id") == number, pl.col("position") == 0)
        found.append((len(tensors), tensors["list_length"][0]))
    assert found == [(64, 100)] * 2 + [(64, 101)] * 2 + [(64, None)] * 2 + [(3, None)] * 2
