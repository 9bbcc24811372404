"""One forest of hops, library calls, API calls and GPU activities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cuda_frames import CudaBuilder
from frames import TraceBuilder, hop
from synthetic import TraceWriter

from tracer.analysis.links import Links, combine, library_texts
from tracer.analysis.trees import Forest, fold
from tracer.trace import load
from tracer.trace.bytes.arrays import nearest, unlooped

GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_ffma_cublas"
SGEMM = (
    "handle=0x55d0, transa=CUBLAS_OP_N, transb=CUBLAS_OP_N, m=64, n=64, k=64, alpha=0x7ffc, A=0x7f00, "
    "lda=64, B=0x7f01, ldb=64, beta=0x7ffd, C=0x7f02, ldc=64"
)


def matmul() -> CudaBuilder:
    """Hops 0..2: matmul, mm [AutogradCUDA], mm [CUDA]; from 2 a recorded cublasSgemm_v2."""
    builder = CudaBuilder()
    kernel = hop("aten::mm", "CUDA", self_ns=9000)
    builder.calls(
        hop("aten::matmul", "AutogradCUDA", hop("aten::mm", "AutogradCUDA", kernel), source="train.py:41")
    )
    for start in (2100, 2200, 2300):
        builder.api("cudaGetDevice", "query", start, start + 50, hop=2)
    builder.api("cudaEventRecord", "event", 2400, 2450, hop=2)
    sgemm = builder.library("cublasSgemm_v2", 3000, 8000, hop=2, arguments=SGEMM)
    launch = builder.api("cudaLaunchKernelExC", "launch", 4000, 7000, hop=2, library_call_id=sgemm)
    builder.kernel(GEMM, 7500, 10_800, launch, grid=(2, 1, 1), block=(64, 1, 1))
    return builder


def test_a_call_of_no_known_function_is_counted_with_the_others() -> None:
    """As a damaged trace has them: what the function is was in the part that is missing."""
    builder = matmul()
    builder.api("function 1234", None, 2500, 2550, hop=2)
    assert combine(builder.cuda_trace()).rows.select("queries", "others").row(2) == (3, 2)


def chain(links: Links) -> list[tuple[object, ...]]:
    """(depth, kind, op, text) of each row."""
    depth = Forest.of(links.rows).depth.tolist()
    return [
        (level, row["kind"], row["op"], links.details.get(row["inputs"], ""))
        for level, row in zip(depth, links.rows.to_dicts(), strict=True)
    ]


def test_a_chain_from_the_op_to_the_device_kernel() -> None:
    assert chain(combine(matmul().cuda_trace())) == [
        (0, "call", "aten::matmul", ""),
        (1, "call", "aten::mm", ""),
        (2, "redispatch", "aten::mm", ""),
        (3, "library", "cublasSgemm_v2", "N, N, m=64, n=64, k=64"),
        (4, "api", "cudaLaunchKernelExC", "grid 2, block 64"),
        (5, "kernel", GEMM, ""),
    ]


def test_times_of_host_and_gpu_stay_apart() -> None:
    rows = combine(matmul().cuda_trace()).rows
    assert rows["gpu_ns"].to_list() == [3300] * 6
    # matmul 11,000, mm 10,000, mm [CUDA] 9,000, of which 5,000 in cuBLAS, of which 3,000 in the launch
    assert rows["self_ns"].to_list() == [1000, 1000, 4000, 2000, 3000, 3300]


def test_calls_without_a_row_are_counted_where_they_were_made() -> None:
    rows = combine(matmul().cuda_trace()).rows
    assert rows.select("queries", "others").rows() == [(0, 0), (0, 0), (3, 1), (0, 0), (0, 0), (0, 0)]


def test_every_call_has_a_row_on_request() -> None:
    links = combine(matmul().cuda_trace(), every_call=True)
    names = links.rows.filter(kind="api")["op"].to_list()
    assert names == ["cudaGetDevice"] * 3 + ["cudaEventRecord", "cudaLaunchKernelExC"]
    assert links.rows["queries"].sum() == links.rows["others"].sum() == 0


def test_what_is_in_a_hop_has_its_source_line() -> None:
    builder = CudaBuilder()
    node = {"source": "train.py:41", "called_from": "train.py:45", "backward_node": "MmBackward0"}
    builder.calls(hop("aten::mm", "CUDA", **node))
    launch = builder.api("cudaLaunchKernel", "launch", 100, 200, hop=0, source=None)
    builder.kernel(GEMM, 300, 400, launch)
    rows = combine(builder.cuda_trace()).rows
    assert rows.select(list(node)).unique().rows() == [tuple(node.values())]


def test_a_library_call_that_only_stacks_name_becomes_a_row() -> None:
    builder = CudaBuilder().calls(hop("aten::_cudnn_rnn", "CUDA", self_ns=9000))
    rnn = {"library": "libcudnn.so.9", "library_call": "cudnnRNNForward"}
    first = builder.api("cudaLaunchKernel", "launch", 1000, 2000, hop=0, **rnn)
    builder.api("cudaLaunchKernel", "launch", 3000, 4000, hop=0, **rnn)
    builder.api("cudaLaunchKernel", "launch", 5000, 6000, hop=0)
    builder.kernel("RNN_blockPersist", 2500, 3500, first)
    links = combine(builder.cuda_trace())
    assert [(level, kind, op) for level, kind, op, _ in chain(links)] == [
        (0, "call", "aten::_cudnn_rnn"),
        (1, "library", "cudnnRNNForward"),
        (2, "api", "cudaLaunchKernel"),
        (3, "kernel", "RNN_blockPersist"),
        (2, "api", "cudaLaunchKernel"),
        (1, "api", "cudaLaunchKernel"),
    ]
    library = links.rows.row(1, named=True)
    assert (library["start_ns"], library["end_ns"], library["self_ns"]) == (1000, 4000, None)
    assert links.rows["self_ns"][0] == 9000 - 3000 - 1000


def test_driver_calls_within_a_runtime_call_are_rows_only_on_request() -> None:
    builder = CudaBuilder().calls(hop("aten::add.Tensor", "CUDA", self_ns=9000))
    launch = builder.api("cudaLaunchKernel", "launch", 1000, 3000, hop=0)
    builder.api("cuLaunchKernel", "launch", 1500, 2500, hop=0, parent=launch)
    builder.api("cuLaunchKernelEx", "launch", 4000, 5000, hop=0)
    builder.kernel("add", 3500, 4500, launch)
    assert [row[2] for row in chain(combine(builder.cuda_trace()))] == [
        "aten::add.Tensor",
        "cudaLaunchKernel",
        "add",
        "cuLaunchKernelEx",
    ]
    every = chain(combine(builder.cuda_trace(), every_call=True))
    assert (2, "api", "cuLaunchKernel", "") in every


def test_a_runtime_call_has_the_launch_of_the_driver_call_in_it() -> None:
    builder = CudaBuilder().calls(hop("aten::add.Tensor", "CUDA", self_ns=9000))
    runtime = builder.api("cudaLaunchKernel", "launch", 1000, 3000, hop=0)
    driver = builder.api("cuLaunchKernel", "launch", 1500, 2500, hop=0, parent=runtime)
    builder.kernel("add", 3500, 4500, driver)
    assert chain(combine(builder.cuda_trace()))[1:] == [
        (1, "api", "cudaLaunchKernel", "grid 1, block 128"),
        (2, "api", "cuLaunchKernel", "grid 1, block 128"),
        (3, "kernel", "add", ""),
    ]


def test_copies_and_allocations_say_how_much() -> None:
    builder = CudaBuilder().calls(hop("aten::copy_", "CUDA", self_ns=9000))
    arguments = "dst=0x7f, src=0x7e, count=4096, kind=cudaMemcpyHostToDevice, stream=0x0"
    copy = builder.api("cudaMemcpyAsync", "copy", 1000, 2000, hop=0, arguments=arguments)
    builder.activity("memcpy", "memcpy HtoD (pinned -> device)", 2100, 2300, copy, bytes=4096)
    builder.api("cudaMalloc", "memory allocation", 3000, 4000, hop=0, arguments="devPtr=0x7f, size=2097152")
    builder.api("cudaStreamSynchronize", "synchronisation", 5000, 6000, hop=0, result=700)
    assert [row[2:] for row in chain(combine(builder.cuda_trace()))[1:]] == [
        ("cudaMemcpyAsync", "4096 B, HostToDevice"),
        ("memcpy HtoD (pinned -> device)", "4096 B"),
        ("cudaMalloc", "2097152 B"),
        ("cudaStreamSynchronize", "error 700"),
    ]


def test_calls_outside_any_op_stand_by_themselves_in_time() -> None:
    builder = CudaBuilder().calls(hop("aten::a", "CUDA"), hop("aten::b", "CUDA"))
    builder.api("cudaDeviceSynchronize", "synchronisation", 1010, 1090, source="train.py:9")
    groups, nodes = fold(Forest.of(combine(builder.cuda_trace()).rows), ["source"])
    assert nodes["op"].to_list() == ["aten::a", "aten::b", "cudaDeviceSynchronize"]
    assert groups.select("source", "calls", "bare").rows() == [(None, 2, 0), ("train.py:9", 0, 1)]


def test_replayed_kernels_stand_under_the_graph_launch() -> None:
    builder = CudaBuilder().calls(hop("aten::mm", "CUDA"))
    captured = builder.api("cudaLaunchKernel", "launch", 100, 200, hop=0, captured=True)
    replay = builder.api("cudaGraphLaunch", "graph", 5000, 6000)
    for start in (7000, 8000):
        builder.kernel("gemm", start, start + 500, replay, hop=0, captured_by=captured, graph_node=4)
    rows = combine(builder.cuda_trace()).rows
    assert rows["op"].to_list() == ["aten::mm", "cudaLaunchKernel", "cudaGraphLaunch", "gemm", "gemm"]
    assert rows["gpu_ns"].to_list() == [0, 0, 1000, 500, 500]
    assert (1, "api", "cudaLaunchKernel", "captured") in chain(combine(builder.cuda_trace()))


def test_activities_of_no_call_are_left_out() -> None:
    builder = matmul()
    builder.kernel("stray", 1, 2)
    assert "stray" not in combine(builder.cuda_trace()).rows["op"].to_list()


def test_an_activity_without_times_or_name_stands_at_its_call() -> None:
    builder = matmul()
    builder.activity_rows[0] |= {"start_ns": None, "end_ns": None, "name": None}
    row = combine(builder.cuda_trace()).rows.row(-1, named=True)
    assert (row["op"], row["kind"], row["start_ns"], row["end_ns"]) == (
        "a kernel without a name",
        "kernel",
        7000,
        7000,
    )
    assert row["gpu_ns"] == 0


def test_identical_chains_fold_and_texts_that_differ_are_counted() -> None:
    builder = CudaBuilder().calls(hop("aten::add.Tensor", "CUDA", self_ns=9000), times=3)
    for number, (grid, time) in enumerate([(2, 100), (2, 300), (8, 200)]):
        start = builder.rows[number]["start_ns"] + 500
        call = builder.api("cudaLaunchKernel", "launch", start, start + 1000, hop=number)
        builder.kernel("add_kernel", start + 1500, start + 1500 + time, call, grid=(grid, 1, 1))
    links = combine(builder.cuda_trace())
    _, nodes = fold(Forest.of(links.rows), ["source"])
    texts = pl.col("signatures").list.len()
    assert nodes.select("op", "count", texts, "gpu_ns", "gpu_total_ns").rows() == [
        ("aten::add.Tensor", 3, 1, 200, 600),
        ("cudaLaunchKernel", 1, 2, 200, 600),
        ("add_kernel", 1, 1, 200, 600),
    ]
    assert links.details[nodes["signature"][1]] == "grid 2, block 128"


def test_signatures_and_texts_have_different_ids() -> None:
    builder = CudaBuilder()
    shape = builder.signature(([4], "torch.float32"))
    builder.calls(hop("aten::neg", "CUDA", inputs=shape))
    builder.api("cudaMalloc", "memory allocation", 100, 200, hop=0, arguments="size=512")
    links = combine(builder.cuda_trace())
    assert links.rows["inputs"].to_list() == [shape, shape + 1]
    assert links.details == {shape + 1: "512 B"}


def test_without_cuda_the_hops_are_as_they_are() -> None:
    trace = TraceBuilder().calls(hop("aten::mm", "CPU")).trace()
    links = combine(trace)
    assert links.rows is trace.hops
    assert not links.has_gpu


@pytest.mark.parametrize("seed", range(20))
def test_every_row_follows_its_parent_and_siblings_are_in_order_of_time(seed: int) -> None:
    random = np.random.default_rng(seed)
    builder = CudaBuilder()
    for thread in (100, 101):
        for _ in range(5):
            inner = [hop(f"aten::op{i}", "CUDA", self_ns=400) for i in range(random.integers(0, 4))]
            builder.calls(hop("aten::outer", "CUDA", *inner, self_ns=300), thread=thread)
    for number in random.permutation(len(builder.rows)):
        start = builder.rows[number]["start_ns"] + 10  # before the hops in it
        for i in range(random.integers(0, 3)):
            time = start + 90 * i
            call = builder.api("cudaLaunchKernel", "launch", time, time + 80, hop=int(number))
            for _ in range(random.integers(0, 3)):
                builder.kernel("k", time + 5000, time + 5010, call)
    rows = combine(builder.cuda_trace()).rows
    assert rows["id"].to_list() == list(range(len(rows)))
    whole = len(builder.rows) + len(builder.api_rows) + len(builder.activity_rows)
    assert len(rows) == whole
    last: dict[object, int] = {}
    open_rows: list[int] = []
    for row in rows.to_dicts():
        while open_rows and open_rows[-1] != row["parent"]:
            open_rows.pop()
        assert row["parent"] is None or open_rows  # the parent is among the rows just above
        where = (row["process"], row["thread"], row["parent"])
        assert row["start_ns"] >= last.get(where, 0)
        last[where] = row["start_ns"]
        open_rows.append(row["id"])


def test_texts_of_library_calls_leave_pointers_and_strides_out() -> None:
    texts = library_texts(
        pl.Series(
            [
                SGEMM,
                "handle=0x1, transa=CUBLAS_OP_T, transb=CUBLAS_OP_N, m=8, n=4, k=2, Atype=CUDA_R_16BF, "
                "computeType=CUBLAS_COMPUTE_32F",
                None,
            ]
        )
    )
    assert texts.to_list() == [
        "N, N, m=64, n=64, k=64",
        "T, N, m=8, n=4, k=2, Atype=16BF, computeType=32F",
        "",
    ]


def test_text_of_a_recurrent_network() -> None:
    arguments = (
        "mode=GRU, layers=1, input=256, hidden=512, projection=512, sequence=32, batch=64, "
        "direction=UNIDIRECTIONAL, algorithm=STANDARD, type=FLOAT, math=DEFAULT_MATH, training=TRAINING"
    )
    assert library_texts(pl.Series([arguments])).to_list() == [
        "GRU, layers=1, input=256, hidden=512, sequence=32, batch=64, FLOAT, TRAINING"
    ]


def test_calls_that_are_in_each_other_are_outermost(tmp_path: Path) -> None:
    """A clock goes back: by time a kernel of compiled code is in a hop that it is around. Readers span."""
    writer = TraceWriter(ticks=1_000_000)
    writer.process()
    writer.hop(0)
    lane = writer.lane()
    lane.define_string(1, "\x1fkernel:k#1")
    lane.enter(0)
    lane.enter(0)
    writer.ticks = 2000
    lane.enter(0)
    lane.enter(0)
    lane.range_enter(1)
    trace = load(writer.write(tmp_path / "x.trace"))
    assert trace.hops["parent"].to_list() == [None, 0, 1, 2]
    rows = combine(trace).rows
    assert sorted(rows["kind"].cast(pl.String).to_list()) == [*["call"] * 4, "compiled kernel"]
    forest = Forest.of(rows)
    assert (forest.parent < np.arange(len(rows))).all()


def test_circles_are_broken_and_trees_stay() -> None:
    parent = np.array([-1, 0, 1, 4, 3, 4, 2], np.int32)
    assert unlooped(parent).tolist() == [-1, 0, 1, -1, -1, -1, 2]
    assert unlooped(parent[:3]).tolist() == [-1, 0, 1]
    assert nearest(parent, parent < -1).tolist()[:3] == [-1, -1, -1]
