"""api_calls.cpp, compiled and run: what it says, and whether its files hold the calls that it has counted."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tracer.trace import load

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("api_calls.cpp")
CSRC = ROOT / "csrc"
PARTS = [CSRC / "cuda/api_function.cpp", CSRC / "fork_locks.cpp", *sorted((CSRC / "trace").glob("*.cpp"))]
TORCH_THREAD = (
    "namespace at { struct RecordFunction { static unsigned long currentThreadId() { return 1; } }; }\n"
)
HEADERS = [ROOT / "build/cuda_headers", Path(sysconfig.get_path("purelib"))]


def cuda_headers() -> Path | None:
    """Those that `make cuda-check` fetches, or those of a torch with CUDA."""
    found = (path.parent for folder in HEADERS for path in folder.glob("nvidia/cu*/include/cupti.h"))
    return next(found, None)


@pytest.mark.compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is missing")
@pytest.mark.skipif(
    cuda_headers() is None, reason="there are no headers of CUPTI; `make cuda-check` fetches them"
)
def test_what_is_written_of_calls(tmp_path: Path) -> None:
    (tmp_path / "ATen").mkdir()
    (tmp_path / "ATen/record_function.h").write_text("#include <cstdint>\n" + TORCH_THREAD)
    program = tmp_path / "api_calls"
    sources = [str(SOURCE), *map(str, PARTS)]
    include = [f"-I{tmp_path}", f"-I{cuda_headers()}"]
    compiled = ["g++", "-std=c++20", "-O1", "-Wall", *include, "-o", str(program), *sources, "-lpthread"]
    subprocess.run(compiled, check=True)
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
    kernels = load(tmp_path / "x.trace").api_calls["kernel"].drop_nulls().to_list()
    first, second = kernels[0], kernels[-2]
    assert kernels == [first] * 3 + [second] * 2 + [first]
    assert (first[-10:], second[-10:]) == ("1>(float*)", "2>(float*)")
