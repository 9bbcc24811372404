"""Runs of a small training script, as traces: the time of each line is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from frames import FakeTrace, TraceBuilder, hop

from tracer.trace.tables import schema

FOLDER = "/home/user/project"
US = 1000
SCRIPT = (
    ("batch = torch.randn(64, 32)", "aten::randn", 80 * US),
    ("hidden = up(batch)", "aten::linear", 300 * US),
    ("hidden = torch.tanh(hidden)", "aten::tanh", 120 * US),
    ("output = down(hidden)", "aten::linear", 280 * US),
    ("loss = F.mse_loss(output, batch)", "aten::mse_loss", 60 * US),
    ("optimizer.step()", "aten::add_.Tensor", 150 * US),
)
"""Text, op and time of each line; it begins at line 1"""
Line = tuple[str, str, int]


def slower(text: str, factor: float, script: Sequence[Line] = SCRIPT) -> list[Line]:
    """The script with a line that takes longer, by which nothing else in the trace shows it."""
    return [(line, op, int(ns * factor) if line == text else ns) for line, op, ns in script]


def edited(text: str, new: str, op: str, ns: int) -> list[Line]:
    return [(new, op, ns) if line == text else (line, was, of) for line, was, of in SCRIPT]


def run(
    script: Sequence[Line] = SCRIPT,
    *,
    seed: int = 0,
    factor: float = 1.0,
    noise: float = 0.02,
    steps: int = 8,
    marked: bool = True,
    outside: int = 10 * US,
    interrupted: Callable[[int], int] = lambda step: 0,
    file: str = "train.py",
    path: str = "run.trace",
    children: dict[str, Sequence[str]] | None = None,
) -> FakeTrace:
    """A recording: each line once a step.

    factor       how much longer than that everything takes on this machine
    noise        share by which a line differs from step to step
    marked       whether it has steps
    outside      nanoseconds from the end of a step's last op to its end
    interrupted  how long another process holds up a step, in the line whose turn it is
    """
    random, builder, ends = np.random.default_rng(seed), TraceBuilder(), []
    where = (0, 100)
    for step in range(steps):
        held_up = random.integers(len(script))
        for number, (_, op, ns) in enumerate(script):
            length = ns * factor * (1 + noise * random.standard_normal())
            length += interrupted(step) if number == held_up else 0
            source = f"{FOLDER}/{file}:{number + 1}"
            columns = {"source": source, "called_from": source, "step": step if marked else None}
            inner = [hop(name, "CPU", self_ns=0) for name in (children or {}).get(op, ())]
            builder.calls(hop(op, "CPU", *inner, self_ns=int(length), **columns))
            builder.clock[where] += int(5 * US * factor)
        builder.clock[where] += int(outside * factor)
        ends.append(builder.clock[where])
    texts = [{"source": f"{FOLDER}/{file}:{n + 1}", "text": line[0]} for n, line in enumerate(script)]
    return replace(
        builder.trace(),
        steps=_steps(ends if marked else []),
        source_lines=pl.DataFrame(texts, schema=schema.SOURCE_LINES),
        path=path,
    )


def _steps(ends: Sequence[int]) -> pl.DataFrame:
    rows = [
        (0, number, "steady", start, end, None, None, None)
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=bool(ends)))
    ]
    return pl.DataFrame(rows, schema=schema.STEPS, orient="row")
