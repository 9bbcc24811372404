"""api_calls.cpp, compiled and run: what it says, and whether its files hold the calls that it has counted."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cupti_program import build, cuda_headers

from tracer.trace import load

SOURCE = Path(__file__).with_name("api_calls.cpp")


@pytest.mark.compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is missing")
@pytest.mark.skipif(
    cuda_headers() is None, reason="there are no headers of CUPTI; `make cuda-check` fetches them"
)
def test_what_is_written_of_calls(tmp_path: Path) -> None:
    program = build(SOURCE, tmp_path, "-O1", "-Wall", "-rdynamic")
    run = subprocess.run([program, tmp_path / "x.trace"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    for name, counted in zip(("x.trace", "x.trace.full", "x.trace.failing"), run.stdout.split(), strict=True):
        trace = load(tmp_path / name)
        calls = trace.api_calls
        assert calls["open"].not_().sum() == int(counted) > 0, name
        assert (calls["end_ns"] - calls["start_ns"]).max() < 10**10, name
        assert trace.certificate["torn_events"] == 0, name
    asked = load(tmp_path / "x.trace").arguments("cudaGetErrorString")
    assert asked["error"].to_list() == [719]  # four bytes, which are no whole word
    by_slots = load(tmp_path / "x.trace.slots").api_calls
    assert by_slots["correlation"].null_count() == len(by_slots) - 1 == 4
    assert by_slots["arguments"].str.ends_with("*device=3").sum() == 4
    kernels = load(tmp_path / "x.trace").api_calls["kernel"].drop_nulls().to_list()
    first, second = kernels[0], kernels[-2]
    assert kernels == [first] * 3 + [second] * 2 + [first]
    assert (first[-10:], second[-10:]) == ("1>(float*)", "2>(float*)")
