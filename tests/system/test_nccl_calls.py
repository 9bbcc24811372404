"""The hooks of NCCL's functions, compiled and run: what they write, and what they pass on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cupti_program import CSRC, build, cuda_headers

from tracer.analysis.links import library_texts
from tracer.trace import Trace, load

HERE = Path(__file__).parent
HOOKS = [CSRC / f"cuda/{part}_calls.cpp" for part in ("library", "cublas", "cudnn", "nccl")]
PARTS = [*HOOKS, CSRC / "cuda/library_enumerations.cpp", CSRC / "native/elf.cpp"]
EXPECTED = {
    "ncclGroupStart": "",
    "ncclAllReduce": "count=8589934592, Float32, comm=0xc0, stream=0x50, op=Sum",
    "ncclReduceScatter": "count=2, Bfloat16, comm=0xc0, stream=0x50, op=Avg",
    "ncclAllGather": "count=3, Float16, comm=0xc0, stream=0x50",
    "ncclAlltoAll": "count=4, Uint8, comm=0xc0, stream=0x50",
    "ncclBroadcast": "count=5, Int64, comm=0xc0, stream=0x50, root=3",
    "ncclBcast": "count=6, Int64, comm=0xc0, stream=0x50, root=2",
    "ncclReduce": "count=7, Float64, comm=0xc0, stream=0x50, op=Max, root=5",
    "ncclGather": "count=8, Int8, comm=0xc0, stream=0x50, root=1",
    "ncclSend": "count=9, Float32, comm=0xc0, stream=0x50, peer=6",
    "ncclRecv": "count=10, Float32, comm=0xc0, stream=0x50, peer=7",
    "ncclGroupEnd": "",
}

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is missing"),
    pytest.mark.skipif(
        cuda_headers() is None, reason="there are no headers of CUDA; `make cuda-check` fetches them"
    ),
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("nccl")
    torch, nccl = folder / "libtorch_cuda.so", folder / "libnccl.so.2"
    shared = ["g++", "-shared", "-fPIC", "-o"]
    subprocess.run([*shared, nccl, HERE / "nccl_library.cpp"], check=True)
    subprocess.run([*shared, torch, HERE / "nccl_torch.cpp", nccl, "-Wl,-z,lazy"], check=True)
    program = build(HERE / "nccl_calls.cpp", folder, "-O1", "-Wall", parts=PARTS)
    run = subprocess.run([program, torch, folder / "x.trace"], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "0 1 0\n"), run.stdout + run.stderr
    return load(folder / "x.trace")


def test_calls_have_their_arguments_and_results(trace: Trace) -> None:
    calls = trace.library_calls
    assert calls["name"].to_list() == list(EXPECTED)
    texts = [
        ", ".join(f"{name}={value}" for name, value in _typed(trace, name).items()).replace("datatype=", "")
        for name in EXPECTED
    ]
    assert texts == list(EXPECTED.values())
    assert calls["result"].to_list() == [0] * 11 + [7]


def _typed(trace: Trace, function: str) -> dict[str, str]:
    (row,) = trace.arguments(function).drop("id").iter_rows(named=True)
    pointers = ("comm", "stream")
    return {
        name: hex(value) if name in pointers else str(value).removeprefix("nccl")
        for name, value in row.items()
    }


def test_a_tree_shows_what_is_exchanged(trace: Trace) -> None:
    shown = dict(
        zip(trace.library_calls["name"], library_texts(trace.library_calls["arguments"]), strict=True)
    )
    assert shown["ncclAllReduce"] == "count=8589934592, Float32, Sum"
    assert shown["ncclReduce"] == "count=7, Float64, Max, root=5"
    assert shown["ncclSend"] == "count=9, Float32, peer=6"
    assert shown["ncclGroupEnd"] == ""
