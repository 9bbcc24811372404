"""What functions of CUDA are for, by their names."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from tracer.analysis.api_functions import describe, function_descriptions, role_descriptions
from tracer.trace.names.roles import allocates, is_graph_launch, loads_code, plain_name, role

ROLES, FUNCTIONS = role_descriptions(), function_descriptions()
HEADERS = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"


def names_in_headers() -> list[str]:
    headers = [HEADERS / f"cupti_{domain}_cbid.h" for domain in ("runtime", "driver")]
    if not all(header.exists() for header in headers):
        pytest.skip(f"no headers of CUPTI in {HEADERS}")
    found = re.findall(r"_TRACE_CBID_(\w+)\s*=", "".join(header.read_text() for header in headers))
    return [name for name in found if name not in ("INVALID", "SIZE", "FORCE_INT")]


def test_every_function_that_cupti_knows_has_a_family() -> None:
    names = names_in_headers()
    assert len(names) > 1000
    assert [name for name in names if role(name) not in ROLES] == []
    assert {role(name) for name in names} == set(ROLES)


def test_every_description_is_of_a_function_that_cupti_knows() -> None:
    known = {re.sub(r"_pt[sd][sz]|_v\d+", "", name) for name in names_in_headers()}
    plain = {re.sub(r"^_*(cuda|cu64|cu)(?=[A-Z])", "", name) for name in known}
    assert set(FUNCTIONS) <= plain


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (
            "cudaGetDevice cudaGetDeviceCount cudaDeviceGetAttribute cudaPointerGetAttributes",
            "query",
        ),
        ("cudaLaunchKernel cudaLaunchKernelExC cuLaunchKernel cuLaunchKernelEx __cudaLaunchKernel", "launch"),
        ("cudaLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice cuLaunchGrid", "launch"),
        ("cudaMemcpyAsync cuMemcpyHtoDAsync_v2 cudaMemcpy3DPeerAsync cudaMemPrefetchAsync", "copy"),
        ("cudaMemsetAsync cuMemsetD32Async cudaMemset2D", "fill"),
        (
            "cudaMalloc cudaFree cudaHostAlloc cudaFreeHost cudaMallocAsync cuMemCreate cuMemMap",
            "memory allocation",
        ),
        ("cudaHostRegister cudaMemPoolTrimTo cudaDeviceSetMemPool cudaMallocArray", "memory allocation"),
        (
            "cudaStreamCreateWithPriority cudaStreamQuery cuStreamWaitValue32_v2 cudaStreamGetPriority",
            "stream",
        ),
        ("cudaEventRecord cudaEventQuery cudaEventElapsedTime cudaStreamWaitEvent cuCtxWaitEvent", "event"),
        (
            "cudaDeviceSynchronize cudaStreamSynchronize cuCtxSynchronize cudaEventSynchronize",
            "synchronisation",
        ),
        ("cudaGraphLaunch cuGraphAddKernelNode cudaStreamIsCapturing cudaStreamGetCaptureInfo", "graph"),
        ("cudaStreamBeginCapture cudaThreadExchangeStreamCaptureMode cudaUserObjectCreate", "graph"),
        (
            "cuLibraryLoadData cuModuleLoadDataEx cudaGetFuncBySymbol __cudaRegisterFatBinary",
            "module and code loading",
        ),
        ("cudaGetLastError cudaPeekAtLastError cuGetErrorString cudaGetErrorName", "error"),
        ("cudaFuncGetAttributes cudaFuncSetAttribute cuFuncSetAttribute", "occupancy and attributes"),
        ("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "occupancy and attributes"),
        (
            "__cudaPushCallConfiguration __cudaPopCallConfiguration cuFuncSetBlockShape",
            "occupancy and attributes",
        ),
        (
            "cudaSetDevice cuCtxPushCurrent_v2 cuDevicePrimaryCtxRetain cudaDeviceReset cuInit",
            "device and context",
        ),
        ("cudaIpcGetMemHandle cudaDeviceEnablePeerAccess cuMulticastCreate", "peer and IPC"),
        ("cudaGraphicsMapResources cuGLInit cudaImportExternalSemaphore", "graphics interop"),
        ("cudaCreateTextureObject cuTensorMapEncodeTiled cuSurfRefSetArray", "texture and surface"),
        (
            "cudaLaunchHostFunc cudaStreamAddCallback cudaProfilerStart cuLogsCurrent",
            "callback and profiling",
        ),
    ],
)
def test_families(names: str, family: str) -> None:
    for name in names.split():
        for suffix in ("", "_v7000", "_ptsz", "_ptsz_v7000"):
            assert role(name + suffix) == family, name + suffix


def test_a_name_that_is_none_of_cuda_has_no_family() -> None:
    assert role("fooBar") is None
    assert describe("fooBar") is None


def test_every_family_and_function_is_described_in_one_sentence() -> None:
    for text in (*ROLES.values(), *FUNCTIONS.values()):
        assert re.fullmatch(r"[A-Z][^\n]*\.", text), text
        assert ". " not in text, text
    assert describe("cudaGetDevice") == FUNCTIONS["GetDevice"]
    for name in ("StreamCreate", "GetSymbolAddress", "OccupancyMaxActiveClusters"):
        assert describe(f"cuda{name}") == FUNCTIONS[name]
    assert "item" in FUNCTIONS["HostAlloc"]
    assert describe("cuGraphCreate") == ROLES["graph"]


def test_what_warms_up_and_what_replays() -> None:
    yes = [
        "cudaMalloc",
        "cudaMallocAsync",
        "cudaHostAlloc",
        "cuMemAlloc_v2",
        "cuMemCreate",
        "cudaMallocManaged",
    ]
    no = ["cudaFree", "cudaMemcpyAsync", "cuMemFree_v2", "cudaHostRegister", "cuMemAddressReserve"]
    assert [allocates(name) for name in yes + no] == [True] * len(yes) + [False] * len(no)
    yes = ["cuModuleLoadData", "cuLibraryLoadData", "__cudaRegisterFatBinary", "cudaLibraryLoadFromFile"]
    no = ["cuModuleGetLoadingMode", "cuLibraryUnload", "__cudaRegisterFatBinaryEnd", "cuModuleGetFunction"]
    assert [loads_code(name) for name in yes + no] == [True] * len(yes) + [False] * len(no)
    assert is_graph_launch("cudaGraphLaunch_ptsz_v10000")
    assert is_graph_launch("cuGraphLaunch")
    assert not is_graph_launch("cudaLaunchKernel")


def test_a_name_of_many_versions_is_read_once() -> None:
    begin = time.process_time()
    assert plain_name("cudaMalloc" + "_v1" * 20_000) == "Malloc"
    assert plain_name("cudaMalloc" + "_v1" * 20_000 + "x").endswith("_v1x")
    assert plain_name("cuMemcpyAsync_v2_ptsz") == "MemcpyAsync"
    assert time.process_time() - begin < 1  # 3 s and more if it begins again at each version
