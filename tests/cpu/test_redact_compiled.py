"""`tracer pack --redact` of a run with torch.compile: what the compiler knows of the program is not in it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from compiler_cache import use_cache
from launching import Launcher
from unpacked import unpacked

from tracer.base.known_names import known_here
from tracer.trace import load
from tracer.trace.bytes.redact import redact

SCRIPT = """
import torch

def step(values, planted_variable):
    hidden = torch.relu(values @ planted_variable)  # planted comment
    print("planted text")
    torch._dynamo.graph_break(msg="planted reason")
    return hidden.sin() + hidden.cos()

compiled = torch.compile(step)
for rows in (4, 5):
    compiled(torch.randn(rows, 8), torch.randn(8, 8))
"""
PLANTED = b"planted"

pytestmark = pytest.mark.compiler


def test_no_secret_of_the_program_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "planted folder" / "net"
    folder.mkdir(parents=True)
    launcher = Launcher(folder)
    use_cache(launcher, tmp_path / "planted-cache")
    launcher.environment["XDG_CACHE_HOME"] = str(folder / "kept")
    launcher.write(SCRIPT)
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    before = unpacked(folder / "run.trace")
    for planted in (b"planted folder", b"planted comment", b"planted text", b"planted_variable"):
        assert planted in before
    with (tmp_path / "out.trace").open("wb") as out:
        done = redact(folder / "run.trace", out, known_here())
    left = unpacked(tmp_path / "out.trace")
    place = left.find(PLANTED)
    assert place < 0, left[max(place - 200, 0) : place + 200]
    assert done.removed["reasons of graph breaks"] > 0
    assert done.removed["reasons of recompilations"] > 0

    whole, redacted = load(folder / "run.trace"), load(tmp_path / "out.trace")
    for name in ("compiled_calls", "compiled_kernels", "compile_phases"):
        assert len(getattr(redacted, name)) == len(getattr(whole, name)) > 0
    kernels = redacted.compiled_kernels.select(pl.col("source", "name").cast(pl.String))
    assert "script.py:5" in kernels["source"].to_list()
    assert set(redacted.compiled_calls["recompiled"].drop_nulls()) == {"0/0: left out", "2/0: left out"}
