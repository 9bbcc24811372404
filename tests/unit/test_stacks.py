"""Native stacks: the functions in them, and the library call that they show."""

from __future__ import annotations

from pathlib import Path

import pytest
from elf import FUNCTION, write_library
from synthetic import TraceWriter

from tracer.trace import Trace, load
from tracer.trace.tables.stacks import Frame, library_of_function

LAUNCH = 211
BASE = 0x7F0000000000
BUILD_ID = "ab" * 20
CODE = {
    0x10: ("cudaLaunchKernel", "/usr/lib/libcudart.so.13"),
    0x20: ("", "/usr/lib/libcublasLt.so.13"),
    0x21: ("cublasLtMatmul", "/usr/lib/libcublasLt.so.13"),
    0x22: ("cublasSgemm_v2", "/usr/lib/libcublas.so.13"),
    0x23: ("", "/usr/lib/libcublas.so.13"),
    0x30: ("_ZN2at6native4gemmEv", "/usr/lib/libtorch_cuda.so"),
    0x31: ("_ZN2at4cuda4blas4gemmIfEEvv", "/usr/lib/libtorch_cuda.so"),
    0x40: ("cudnnBackendExecute", "/usr/lib/libcudnn_graph.so.9"),
    0x50: ("launch", "/home/me/kernel.so"),
}


def new_writer(code: dict[int, tuple[str, str]] = CODE) -> TraceWriter:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::mm")
    writer.function(LAUNCH, "cudaLaunchKernel")
    for counter, (name, library) in code.items():
        writer.symbol(counter, name, library, offset=0x123)
    return writer


def read(writer: TraceWriter, tmp_path: Path) -> Trace:
    return load(writer.write(tmp_path / "x.trace"))


def test_frames_are_functions_or_places_in_libraries(tmp_path: Path) -> None:
    writer = new_writer()
    loaded = {"path": "/usr/lib/libother.so", "base": BASE, "end": BASE + 0x1000, "build_id": "00"}
    writer.json(0, "libraries", [loaded])
    lane = writer.lane()
    lane.define_stack(1, 0x31, 0x20, BASE + 0x77, 0x999)
    lane.define_stack(2)
    lane.api(LAUNCH, stack=1)
    lane.api(LAUNCH, stack=2)
    lane.api(LAUNCH)
    trace = read(writer, tmp_path)
    assert trace.api_calls["stack"].to_list() == [0, 1, None]
    rest = {"file": None, "line": None}
    assert trace.stacks.to_dicts() == [
        {
            "id": 0,
            "frames": [
                {
                    "function": "at::cuda::blas::gemm",
                    "module": "/usr/lib/libtorch_cuda.so",
                    "offset": 0x123,
                    **rest,
                },
                {"function": None, "module": "/usr/lib/libcublasLt.so.13", "offset": 0x123, **rest},
                {"function": None, "module": "/usr/lib/libother.so", "offset": 0x77, **rest},
                {"function": None, "module": None, "offset": 0x999, **rest},
            ],
        },
        {"id": 1, "frames": []},
    ]


def test_a_stack_is_one_row_whatever_thread_took_it(tmp_path: Path) -> None:
    writer = new_writer()
    for number in range(2):
        lane = writer.lane(number=number, thread=1000 + number, torch_thread=number + 1)
        lane.define_stack(5 + number, 0x30)
        lane.define_stack(9, 0x30 + number)
        lane.api(LAUNCH, stack=5 + number)
        lane.api(LAUNCH, stack=9)
    trace = read(writer, tmp_path)
    first, same, again, other = trace.api_calls["stack"].to_list()
    assert first == same == again != other
    assert len(trace.stacks) == 2


@pytest.mark.parametrize(
    ("counters", "library", "library_call"),
    [
        # What torch called, not what that called in turn.
        ((0x20, 0x21, 0x22, 0x23, 0x30, 0x31), "libcublas", "cublasSgemm_v2"),
        ((0x10, 0x20, 0x21, 0x30), "libcublasLt", "cublasLtMatmul"),
        ((0x40, 0x30), "libcudnn", "cudnnBackendExecute"),
        ((0x20, 0x30), "libcublasLt", None),
        # A launch of torch's own, though a library's function is further out.
        ((0x30, 0x22, 0x31), None, None),
        ((0x50,), None, None),
        ((0x22,), "libcublas", "cublasSgemm_v2"),
        ((), None, None),
    ],
)
def test_the_library_call_is_the_outermost_vendor_function_next_to_the_call(
    tmp_path: Path, counters: tuple[int, ...], library: str | None, library_call: str | None
) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.define_stack(1, *counters)
    lane.api(LAUNCH, stack=1)
    calls = read(writer, tmp_path).api_calls
    assert calls.select("library", "library_call").rows() == [(library, library_call)]


@pytest.mark.parametrize(
    ("file", "vendor"),
    [
        ("libcublas.so.13", "libcublas"),
        ("libcublasLt.so", "libcublasLt"),
        ("libcudnn_engines_precompiled.so.9", "libcudnn"),
        ("libcudnn.so.9", "libcudnn"),
        ("libcusparseLt.so.0", "libcusparseLt"),
        ("libcusolverMg.so.12", "libcusolver"),
        ("libcufft-1ab2.so.12", "libcufft"),
        ("libnvrtc-builtins.so.13.0", "libnvrtc"),
        ("libnccl.so.2", "libnccl"),
        ("libtorch_cuda.so", None),
        ("libcudart.so.13", None),
        ("libcublasx.so", None),
    ],
)
def test_vendor_libraries_are_known_by_their_file(file: str, vendor: str | None) -> None:
    assert Frame(None, f"/opt/{file}", 0).vendor == vendor


def test_libraries_of_functions() -> None:
    names = ["cublasLtMatmul", "cublasSgemm_v2", "cudnnBackendExecute", "ncclAllReduce", "cudaMalloc"]
    assert [library_of_function(name) for name in names] == [
        "libcublasLt",
        "libcublas",
        "libcudnn",
        "libnccl",
        None,
    ]


def test_after_a_kill_program_counters_are_named_and_the_names_stay_in_the_file(tmp_path: Path) -> None:
    library = write_library(tmp_path / "libcublas.so", [("cublasSgemm_v2", 0x1000, 0x80, FUNCTION)], BUILD_ID)
    writer = TraceWriter(header={"state": 0}, trailing_zeros=1 << 12)
    writer.process(certificate=None)
    writer.function(LAUNCH, "cudaLaunchKernel")
    loaded = {"path": str(library), "base": BASE, "end": BASE + 0x10000, "build_id": BUILD_ID}
    writer.json(0, "libraries", [loaded])
    lane = writer.lane()
    lane.define_stack(1, BASE + 0x1010, 0x5)
    lane.api(LAUNCH, stack=1)
    path = writer.write(tmp_path / "killed.trace")
    for _ in range(2):
        trace = load(path)
        frames = trace.stacks["frames"][0].to_list()
        assert [(frame["function"], frame["offset"]) for frame in frames] == [
            ("cublasSgemm_v2", 0x10),
            (None, 5),
        ]
        assert trace.api_calls["library_call"].to_list() == ["cublasSgemm_v2"]
        library.unlink(missing_ok=True)


def test_program_counters_without_a_library_are_no_kernel_functions_without_a_name(tmp_path: Path) -> None:
    writer = TraceWriter(header={"state": 0})
    writer.process(certificate=None)
    loaded = {"path": "/absent/lib.so", "base": BASE, "end": BASE + 0x1000, "build_id": BUILD_ID}
    writer.json(0, "libraries", [loaded])
    writer.hop(0, "aten::mm", address=BASE + 5)
    lane = writer.lane()
    lane.define_stack(1, 0x5)
    lane.enter(0)
    lane.api(LAUNCH, stack=1)
    certificate = read(writer, tmp_path).certificate
    assert certificate["unresolved_kernels"] == 1
    assert not any("outside its recorded libraries" in line for line in certificate["why"])
