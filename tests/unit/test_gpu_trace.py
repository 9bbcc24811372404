"""A real trace of a GPU, read without one: tables, certificate, stacks, arguments, and every verb.

TRACER_UPDATE_GOLDEN=1 writes the golden files anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from gpu_trace import OpCall, Sample
from markdown_it import MarkdownIt

from tracer.analysis.components import component_of
from tracer.analysis.cuda_tables import has_cuda
from tracer.analysis.kernel_survey import KernelSurvey, survey_kernels
from tracer.analysis.links import combine
from tracer.analysis.runtime_survey import (
    calls_with_context,
    count_steps,
    hidden_synchronisations,
    launches_per_op,
    per_component,
    per_function,
    per_role,
    steady_allocations,
)
from tracer.report.reading import Reading
from tracer.report.report import render

GOLDEN = Path(__file__).parent / "golden"
NAME = "gpu.trace"
STEPS = 4
GEMM = "gemm|nvjet|cutlass"


@pytest.fixture(scope="session")
def sample() -> Sample:
    return Sample()


@pytest.fixture(scope="session")
def survey(sample: Sample) -> KernelSurvey:
    return survey_kernels(sample.trace)


@pytest.fixture(scope="session")
def contexts(sample: Sample) -> pl.DataFrame:
    return calls_with_context(sample.trace)


@pytest.fixture(scope="session")
def reports(sample: Sample) -> dict[str | None, str]:
    return {
        "cuda": render(Reading(sample.trace, NAME, only="cuda")),
        "kernels": render(Reading(sample.trace, NAME, only="kernels")),
        None: render(Reading(sample.trace, NAME, patterns=["cublas*", "cudnn*"], paths=30, details=30)),
    }


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
    assert cuda["lost"] == []
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


def test_the_stack_of_a_product_names_what_lies_between_cublas_and_python(sample: Sample) -> None:
    part = sample.call_of("aten::matmul", line=53)
    stack = sample.stack_of(part.launch_of(part.kernel()))
    named = [frame["function"] for frame in stack if frame["function"]]
    assert named == [
        "cublasLtSSSMatmul",
        "cublasSgemm_v2",
        "at::cuda::blas::gemm_internal_cublas",
        "at::native::addmm_out_cuda_impl",
        "at::native::structured_mm_out_cuda::impl",
        "wrapper_CUDA_mm",
        "at::_ops::mm::redispatch",
        "torch::autograd::VariableType::mm",
        "torch::autograd::VariableType::mm",
        "at::_ops::mm::call",
        "at::native::_matmul_impl",
        "at::native::matmul",
        "wrapper_CompositeImplicitAutograd__matmul",
        "at::_ops::matmul::call",
        "torch::autograd::THPVariable_matmul",
    ]
    modules = [frame["module"].rpartition("/")[2] for frame in stack]
    assert modules[0] == "libcublasLt.so.13"
    assert modules[-1] == "libtorch_python.so"
    assert all(frame["offset"] for frame in stack)


def test_library_functions_without_arguments_are_named_by_stacks(sample: Sample) -> None:
    named = sample.api_calls.filter(
        pl.col("library_call_id").is_null(),
        pl.col("library_call").is_not_null(),
        pl.col("name") == "cudaMalloc",
    )
    assert set(named.select("library", "library_call").rows()) == {
        ("libcublas", "cublasCreate_v2"),
        ("libcudnn", "cudnnCreate"),
    }


def test_what_cublas_does_through_cublaslt_is_cublas(sample: Sample) -> None:
    part = sample.call_of("aten::matmul", line=53)
    frames = sample.stack_of(part.launch_of(part.kernel()))
    assert "libcublasLt" in frames[0]["module"]
    assert component_of(frames) == "cuBLAS"


def test_every_call_has_a_stack_and_those_of_torch_are_named(sample: Sample) -> None:
    assert sample.api_calls["stack"].null_count() == 0
    frames = sample.trace.stacks.explode("frames").unnest("frames")
    of_torch = frames.filter(pl.col("module").str.contains(r"/lib(torch|c10)[^/]*$"))
    assert len(of_torch) > 10_000
    assert of_torch["function"].null_count() / len(of_torch) < 0.01


def test_arguments_as_typed_columns(sample: Sample) -> None:
    typed = sample.trace.arguments("cudaMemcpyAsync")
    calls = sample.api_calls.filter(pl.col("name") == "cudaMemcpyAsync")
    assert typed.columns == ["id", "dst", "src", "count", "kind", "stream"]
    assert typed["id"].to_list() == calls["id"].to_list()
    assert typed["count"].dtype.is_integer()
    copies = sample.activities.filter(pl.col("kind") == "memcpy").sort("api_call")
    assert typed["count"].to_list() == copies["bytes"].to_list()
    assert set(typed["kind"]) == {
        f"cudaMemcpy{way}" for way in ("HostToDevice", "DeviceToHost", "DeviceToDevice")
    }


def test_arguments_of_structures_results_and_libraries(sample: Sample) -> None:
    launches = sample.trace.arguments("cudaLaunchKernelExC")
    grids = launches.select(pl.concat_list(f"config.gridDim.{axis}" for axis in "xyz")).to_series()
    ran = sample.activities.filter(pl.col("api_call").is_in(launches["id"].implode()))
    by_call = dict(zip(launches["id"], grids.to_list(), strict=True))
    assert [by_call[row["api_call"]] for row in ran.iter_rows(named=True)] == ran["grid"].to_list()
    assert len(ran) == len(launches) - 1  # one is in the graph
    taken = sample.trace.arguments("cudaMalloc")
    assert taken["*devPtr"].min() > 0
    assert sample.trace.arguments("cudnnRNNForward")["hidden"].to_list() == [64] * STEPS


# ---- surveys ---------------------------------------------------------------------------------------


def test_roles_add_up(sample: Sample, contexts: pl.DataFrame) -> None:
    assert has_cuda(sample.trace)
    steps = count_steps(sample.trace)
    assert (steps.warmup, steps.steady) == (2, 2)
    roles = {row["role"]: row for row in per_role(contexts, steps).iter_rows(named=True)}
    assert sum(row["calls"] for row in roles.values()) == len(sample.api_calls)
    assert sum(row["total_ns"] for row in roles.values()) == contexts["duration"].sum()
    assert roles["launch"]["steady_calls"] == 62
    assert roles["query"]["calls"] == 3_512
    assert None not in roles


def test_functions_know_who_calls_them(sample: Sample, contexts: pl.DataFrame) -> None:
    steps = count_steps(sample.trace)
    functions = {row["name"]: row for row in per_function(contexts, steps).iter_rows(named=True)}
    assert functions["cudaMalloc"]["components"][0] == {"what": "caching allocator", "count": 10}
    assert functions["cudaLaunchKernel"]["components"][0]["what"] == "operators"
    assert functions["cudaGetDevice"]["calls"] == 3_378
    assert functions["cudaMalloc"]["steady_calls"] == functions["cuLibraryLoadData"]["steady_calls"] == 0
    assert all(row["failed"] == 0 for name, row in functions.items() if name != "cudaGetErrorString")


def test_components_cover_every_call(sample: Sample, contexts: pl.DataFrame) -> None:
    found = {row["component"]: row for row in per_component(contexts, count_steps(sample.trace)).to_dicts()}
    assert {"operators", "cuBLAS", "cuBLASLt", "cuDNN", "guards and streams", "copies", "CUDA graphs"} <= set(
        found
    )
    assert "unknown" not in found
    assert sum(row["calls"] for row in found.values()) == len(sample.api_calls)


def test_waits_and_allocations(sample: Sample, contexts: pl.DataFrame) -> None:
    waits = hidden_synchronisations(sample.trace, contexts, count_steps(sample.trace))
    item = waits.filter(pl.col("op") == "aten::_local_scalar_dense").row(0, named=True)
    assert (item["what"], item["count"]) == ("cudaStreamSynchronize", STEPS)
    assert item["source"].endswith("sample.py:59")
    assert steady_allocations(contexts).is_empty()


def test_launches_per_op(sample: Sample, contexts: pl.DataFrame) -> None:
    table = launches_per_op(sample.trace, contexts)
    rows = {row["op"]: row for row in table.iter_rows(named=True)}
    assert table["launches"].sum() == sample.cuda["launches"]
    assert (rows["aten::cat"]["op_calls"], rows["aten::cat"]["per_call"]) == (STEPS, 1)
    assert rows["aten::_cudnn_rnn"]["per_call"] == 3


def test_kernels_have_the_work_of_their_ops(sample: Sample, survey: KernelSurvey) -> None:
    assert survey.launches + survey.left_out == sample.cuda["kernels"]
    assert survey.untimed == 0
    cat = next(row for row in survey.rows if row.op == "aten::cat")
    assert cat.work is not None
    assert (cat.calls, cat.work.bytes) == (2, 2 * 2 * 4 * 64 * 4)
    assert cat.family is not None
    assert cat.family.name == "concatenation"
    mm = next(row for row in survey.rows if row.op == "aten::mm" and "xmma_gemm" in row.kernel)
    assert mm.work is not None
    assert mm.work.flops == 2 * 64**3
    assert (mm.tile, mm.grid) == ((32, 32), (2, 2, 1))
    assert mm.limit is not None
    assert mm.limit.by == "the shortest kernel"
    assert survey.floor_ns < 1_000
    assert all(row.family for row in survey.rows if row.op and row.op.startswith("aten::_cudnn"))
    known = sum(row.total_ns for row in survey.rows if row.limit)
    assert known / survey.total_ns > 0.9


def test_no_short_name_is_mangled(survey: KernelSurvey) -> None:
    for row in survey.rows:
        assert not row.kernel.startswith("_Z"), row.symbol
        assert len(row.kernel) < 200, row.kernel


# ---- reports and verbs -----------------------------------------------------------------------------


@pytest.mark.parametrize("only", ["cuda", "kernels", None])
def test_every_table_is_well_formed(reports: dict[str | None, str], only: str | None) -> None:
    text = reports[only]
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    rules = [line for line in text.splitlines() if re.fullmatch(r"(\| -+:? )+\|", line)]
    assert sum(token.type == "table_open" for token in tokens) == len(rules) >= 4
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


@pytest.mark.parametrize("only", ["cuda", "kernels", None])
def test_reports_name_no_folder_of_the_machine(reports: dict[str | None, str], only: str | None) -> None:
    assert not re.search(r"(?<![\w.*])/(opt|work|home|root|tmp|usr)/", reports[only])


@pytest.mark.parametrize("name", ["gpu_cuda_report", "gpu_kernels_report", "gpu_path"])
def test_golden_reports(reports: dict[str | None, str], name: str) -> None:
    text = {
        "gpu_cuda_report": lambda: reports["cuda"],
        "gpu_kernels_report": lambda: reports["kernels"],
        "gpu_path": lambda: path_of(reports[None], "`aten::matmul [AutogradCUDA]` -> `cublasSgemm_v2`"),
    }[name]()
    golden = GOLDEN / f"{name}.md"
    if os.environ.get("TRACER_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert len(text) <= 60_000


def path_of(report: str, word: str) -> str:
    """The section of the first path that has `word` in it."""
    sections = re.findall(r"^### \d+\. .*?(?=^##)", report, flags=re.S | re.M)
    return next(section for section in sections if word in section).strip() + "\n"


def test_links_hold_every_activity(sample: Sample) -> None:
    rows = combine(sample.trace).rows
    assert rows["activity"].drop_nulls().n_unique() == len(sample.activities)
    outermost = rows.filter(pl.col("parent").is_null())
    assert outermost["gpu_ns"].sum() == (sample.activities["end_ns"] - sample.activities["start_ns"]).sum()
