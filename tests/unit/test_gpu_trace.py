"""A real trace of a GPU, read without one: tables, certificate, stacks, arguments, and every verb.

TRACER_UPDATE_GOLDEN=1 writes the golden files anew.
"""

from __future__ import annotations

from typing import Any

import gpu_sample
import polars as pl
import pytest
from gpu_sample import STEPS
from gpu_trace import OpCall, Sample

sample = gpu_sample.sample

GEMM = "gemm|nvjet|cutlass"


def assert_launched(part: OpCall, kernel: dict[str, Any], name: str) -> dict[str, Any]:
    """The launch of a kernel says the same as the kernel does. Returns the call."""
    call = part.launch_of(kernel)
    assert call["name"] == name
    assert call["domain"] == ("runtime" if name.startswith("cuda") else "driver")
    assert (call["result"], call["captured"], call["open"], call["role"]) == (0, False, False, "launch")
    assert call["correlation"] == kernel["correlation"]
    assert call["hop"] == kernel["hop"] is not None
    assert call["start_ns"] < call["end_ns"]
    assert call["start_ns"] < kernel["start_ns"] < kernel["end_ns"] < kernel["start_ns"] + 1_000_000
    grid, block = (
        [call_words(call)[f"{word}{letter}"] for letter in letters]
        for word, letters in (
            (("config." if "Ex" in name else "") + "gridDim", _letters(name)),
            (("config." if "Ex" in name else "") + "blockDim", _letters(name)),
        )
    )
    assert [list(map(int, grid)), list(map(int, block))] == [kernel["grid"], kernel["block"]]
    return call


def _letters(name: str) -> list[str]:
    return ["X", "Y", "Z"] if name.startswith("cuL") else [".x", ".y", ".z"]


def call_words(row: dict[str, Any]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in row["arguments"].split(", "))


# ---- chains ---------------------------------------------------------------------------------------


def test_matmul_reaches_cublas_and_its_kernel(sample: Sample) -> None:
    part = sample.call_of("aten::matmul", line=53)
    kernel = part.kernel()
    call = assert_launched(part, kernel, "cudaLaunchKernelExC")
    assert kernel["name"].startswith("sm80_xmma_gemm_f32f32_f32f32_f32_nn")
    assert call["kernel"] == kernel["name"]
    assert sample.ops_around(kernel) == [
        "aten::matmul [AutogradCUDA]",
        "aten::mm [AutogradCUDA]",
        "aten::mm [CUDA]",
    ]
    library = part.library_call_of(call)
    assert (library["name"], library["library"], library["result"]) == ("cublasSgemm_v2", "libcublas", 0)
    assert {"transa": "N", "m": "64", "n": "64", "k": "64"}.items() <= call_words(library).items()
    assert call["library_call"] == "cublasSgemm_v2"
    assert library["start_ns"] < call["start_ns"] < call["end_ns"] < library["end_ns"]
    assert library["hop"] == call["hop"]
    assert (kernel["grid"], kernel["block"]) == ([2, 2, 1], [64, 1, 1])
    assert kernel["registers"] > 0
    assert len(part.activities) == 1


def test_bf16_is_launched_by_the_driver(sample: Sample) -> None:
    part = sample.call_of("aten::matmul", line=54)
    kernel = part.kernel()
    assert kernel["name"].startswith("nvjet_sm90_")
    call = assert_launched(part, kernel, "cuLaunchKernelEx")
    assert part.launches == ["cuLaunchKernelEx"]
    words = call_words(part.library_call_of(call))
    assert part.library_call_of(call)["name"] == "cublasGemmEx"
    assert (words["Atype"], words["computeType"]) == ("R_16BF", "32F")
    assert kernel["cluster"] == [1, 4, 1] or kernel["cluster"] is None or len(kernel["cluster"]) == 3


def test_linear_reaches_cublaslt_with_the_bias(sample: Sample) -> None:
    part = sample.call_of("aten::linear")
    call = assert_launched(part, part.kernel("gemm"), "cudaLaunchKernel")
    assert sample.ops_around(call)[0] == "aten::linear [AutogradCUDA]"
    assert sample.ops_around(call)[-1] == "aten::addmm [CUDA]"
    library = part.library_call_of(call)
    assert library["name"] == "cublasLtMatmul"
    assert {"m": "10", "n": "4", "k": "128", "epilogue": "BIAS"}.items() <= call_words(library).items()
    assert len(part.kernels) == 1


def test_conv2d_reaches_cudnn(sample: Sample) -> None:
    part = sample.call_of("aten::conv2d")
    kernel = part.kernel("fprop")
    call = assert_launched(part, kernel, "cudaLaunchKernelExC")
    assert sample.ops_around(kernel) == [
        "aten::conv2d [AutogradCUDA]",
        "aten::convolution [AutogradCUDA]",
        "aten::convolution [CUDA]",
        "aten::_convolution [CUDA]",
        "aten::cudnn_convolution [CUDA]",
    ]
    assert call["library_call"] == "cudnnBackendExecute"
    assert part.library_call_of(call)["library"] == "libcudnn"
    bias = part.kernel("elementwise")
    assert sample.ops_around(bias)[-1] == "aten::add_.Tensor [CUDA]"
    assert part.launch_of(bias)["library_call"] is None


def test_gru_reaches_cudnn_rnn(sample: Sample) -> None:
    part = sample.call_of("aten::gru.input")
    (library,) = part.library_calls.iter_rows(named=True)
    assert (library["name"], library["result"]) == ("cudnnRNNForward", 0)
    expected = {"mode": "GRU", "layers": "1", "input": "64", "hidden": "64", "sequence": "64", "batch": "4"}
    assert expected.items() <= call_words(library).items()
    names = ["sm90_xmma_gemm", "persistRNN_addBias", "RNN_blockPersist_fp_GRU"]
    inside = [row for row in part.kernels.iter_rows(named=True) if part.launch_of(row)["library_call_id"]]
    assert [any(name in row["name"] for name in names) for row in inside] == [True] * 3
    for kernel in inside:
        assert sample.ops_around(kernel)[-1] == "aten::_cudnn_rnn [CUDA]"
        assert part.launch_of(kernel)["library_call"] == "cudnnRNNForward"


def test_the_backward_of_a_gru_runs_on_its_thread_and_points_to_the_forward_line(sample: Sample) -> None:
    forward = sample.call_of("aten::gru.input")
    (backward,) = sample.calls_of("aten::_cudnn_rnn_backward")
    assert backward.library_calls["name"].to_list() == [
        "cudnnRNNBackwardData_v8",
        "cudnnRNNBackwardWeights_v8",
    ]
    assert backward.hops[0]["thread"] != forward.hops[0]["thread"]
    assert backward.hops[0]["source"] == forward.hops[0]["source"]
    assert backward.hops[0]["backward_node"] == "CudnnRnnBackward0"
    assert backward.api_calls["source"].unique().to_list() == [forward.hops[0]["source"]]
    assert any("blockPersist_bp_GRU" in name for name in backward.kernels["name"])


def test_cat_is_one_kernel(sample: Sample) -> None:
    part = sample.call_of("aten::cat")
    kernel = part.kernel()
    assert "CatArrayBatchedCopy" in kernel["name"]
    call = assert_launched(part, kernel, "cudaLaunchKernel")
    assert (call["library_call_id"], call["library_call"], call["library"]) == (None, None, None)
    assert sample.ops_around(kernel) == ["aten::cat [AutogradCUDA]", "aten::cat [CUDA]"]
    assert len(part.activities) == 1


def test_attention_ran_in_cudnn(sample: Sample) -> None:
    part = sample.call_of("aten::scaled_dot_product_attention")
    kernel = part.kernel("sdpa.*flash_fprop")
    call = assert_launched(part, kernel, "cuLaunchKernelEx")
    assert call["library_call"] == "cudnnBackendExecute"
    assert sample.ops_around(kernel)[0] == "aten::scaled_dot_product_attention [AutogradCUDA]"
    assert "aten::_scaled_dot_product_cudnn_attention [CUDA]" in part.ops
    assert part.activities["kind"].to_list() == ["memset", "kernel"]


def test_item_is_a_copy_and_a_wait(sample: Sample) -> None:
    part = sample.call_of("aten::item", line=59)
    (copy,) = part.activities.iter_rows(named=True)
    assert (copy["name"], copy["bytes"]) == ("memcpy DtoH (device -> pinned)", 4)
    call = sample.by_correlation(copy)
    assert call["name"] == "cudaMemcpyAsync"
    assert {"count": "4", "kind": "cudaMemcpyDeviceToHost"}.items() <= call_words(call).items()
    (wait,) = part.api_calls.filter(pl.col("role") == "synchronisation").iter_rows(named=True)
    assert wait["name"] == "cudaStreamSynchronize"
    assert sample.ops_around(wait) == sample.ops_around(copy)
    assert sample.ops_around(wait)[-1] == "aten::_local_scalar_dense [CUDA]"
    assert call["end_ns"] <= wait["start_ns"]
    assert copy["end_ns"] <= wait["end_ns"]


def test_a_pinned_copy_does_not_wait(sample: Sample) -> None:
    part = sample.call_of("aten::to.dtype_layout", line=52)
    (copy,) = part.activities.iter_rows(named=True)
    assert (copy["name"], copy["bytes"]) == ("memcpy HtoD (pinned -> device)", 4 * 3 * 16 * 16 * 4)
    assert "synchronisation" not in part.api_calls["role"].to_list()


def test_pageable_copies_wait(sample: Sample) -> None:
    copies = sample.activities.filter(pl.col("name") == "memcpy HtoD (pageable -> device)")
    waits = sample.api_calls.filter(pl.col("name") == "cudaStreamSynchronize")
    assert len(copies) == 9
    assert set(copies["hop"]) <= set(waits["hop"])


def test_zeros_is_a_fill_kernel(sample: Sample) -> None:
    part = sample.calls_of("aten::zeros")[0]
    assert "FillFunctor<float>" in part.kernel()["name"]


# ---- a CUDA graph ----------------------------------------------------------------------------------


def test_captured_launches_ran_nothing(sample: Sample) -> None:
    captured = sample.api_calls.filter(pl.col("captured"), pl.col("role") == "launch")
    assert captured["name"].to_list() == ["cudaLaunchKernelExC", "cudaLaunchKernel"]
    assert [sample.ops_around(row)[-1] for row in captured.iter_rows(named=True)] == [
        "aten::mm [CUDA]",
        "aten::add.Tensor [CUDA]",
    ]
    assert not set(captured["id"]) & set(sample.activities["api_call"])


def test_replays_belong_to_the_hops_that_were_captured(sample: Sample) -> None:
    captured = sample.api_calls.filter(pl.col("captured"), pl.col("role") == "launch")
    replayed = sample.activities.filter(pl.col("captured_by").is_not_null()).sort("start_ns")
    assert replayed["captured_by"].to_list() == captured["id"].to_list() * STEPS
    assert replayed["hop"].to_list() == captured["hop"].to_list() * STEPS
    assert [sample.by_correlation(row)["name"] for row in replayed.iter_rows(named=True)] == [
        "cudaGraphLaunch"
    ] * (2 * STEPS)
    assert replayed["graph"].n_unique() == 1
    assert replayed["graph_node"].n_unique() == 2
    assert replayed["step"].to_list() == [0, 0, 1, 1, 2, 2, 3, 3]


# ---- steps, devices, certificate -------------------------------------------------------------------


@pytest.mark.parametrize("table", ["hops", "api_calls", "library_calls", "activities"])
def test_steps_and_phases(sample: Sample, table: str) -> None:
    rows: pl.DataFrame = getattr(sample, table)
    phases = rows.select("step", "phase").unique().sort("step").rows()
    assert phases[-STEPS:] == [(0, "warmup"), (1, "warmup"), (2, "steady"), (3, "steady")]
    assert phases[:-STEPS] in ([], [(None, None)])


def test_the_last_loss_is_read_after_the_last_step(sample: Sample) -> None:
    assert [call.hops[0]["step"] for call in sample.calls_of("aten::item", line=59, step=None)] == [
        1,
        2,
        3,
        None,
    ]


def test_the_device(sample: Sample) -> None:
    (device,) = sample.trace.devices.to_dicts()
    assert device["name"] == "NVIDIA H200"
    assert (device["computeCapabilityMajor"], device["numMultiprocessors"]) == (9, 132)
    assert device["globalMemoryBandwidth"] == 4_814_304_000


def test_the_certificate_reconciles_and_counts_what_the_tables_hold(sample: Sample) -> None:
    cuda = sample.cuda
    kernels = sample.activities.filter(pl.col("kind") == "kernel")
    ran = sample.api_calls.filter(pl.col("role") == "launch", ~pl.col("captured"), pl.col("result") == 0)
    replayed = kernels["captured_by"].is_not_null().sum()
    assert cuda["reconciles"] is True
    assert cuda["state"] == "recorded"
    assert cuda["api_calls"] == len(sample.api_calls)
    assert cuda["library_calls"] == len(sample.library_calls)
    assert cuda["launches"] == len(ran) == len(kernels) - replayed
    assert cuda["kernels"] == cuda["kernels_joined_to_a_call"] == len(kernels)
    assert cuda["graph_launches"] == (sample.api_calls["name"] == "cudaGraphLaunch").sum() == STEPS
    assert (cuda["captured_in_a_hop"], cuda["in_a_hop"]) == (replayed, len(kernels) - replayed)
    for kind in ("memcpy", "memset"):
        assert cuda[f"{kind}s"] == (sample.activities["kind"] == kind).sum()
    for name in ("outside_ops", "unjoined", "launches_without_kernel", "dropped", "stacks_not_taken"):
        assert cuda[name] == 0, name
    assert all(cuda["library_hooks"].values())
    assert sample.trace.certificate["verdict"] == f"complete: {len(sample.hops):,} hops, nothing dropped"


def test_every_activity_belongs_to_its_call_and_hop(sample: Sample) -> None:
    joined = sample.activities.join(
        sample.api_calls.select(api_call="id", call_hop="hop", call_correlation="correlation", role="role"),
        on="api_call",
    )
    assert len(joined) == len(sample.activities)
    assert joined["correlation"].equals(joined["call_correlation"], check_names=False)
    direct = joined.filter(pl.col("captured_by").is_null())
    assert direct["hop"].equals(direct["call_hop"], check_names=False)
    assert dict(joined.group_by("kind").agg(pl.col("role").unique().sort()).rows()) == {
        "kernel": ["graph", "launch"],
        "memcpy": ["copy"],
        "memset": ["fill"],
    }


# ---- stacks and arguments --------------------------------------------------------------------------


# ---- surveys ---------------------------------------------------------------------------------------


# ---- reports and verbs -----------------------------------------------------------------------------
