"""From the op down to the device kernel: each link that is recorded, for ops that take different ways."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from seen import Part, Recorded, launches, of_graph, record_cases, run_cases

OPS = Path(__file__).parent / "ops.py"
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
QUERIES = ["cudaGetDevice", "cudaGetLastError", "cudaPeekAtLastError"]
GEMM = ("gemm", "gemv", "cutlass", "nvjet", "xmma")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Recorded, Recorded]:
    """ops.py under python, recorded, and recorded with every driver call; at the same time."""
    launcher = Launcher(tmp_path_factory.mktemp("ops"))
    with ThreadPoolExecutor() as pool:
        plain = pool.submit(run_cases, launcher, OPS, extra=DETERMINISTIC)
        recorded = pool.submit(record_cases, launcher, OPS, "recorded", extra=DETERMINISTIC)
        driver = pool.submit(
            record_cases, launcher, OPS, "driver", options=["--driver", "all"], extra=DETERMINISTIC
        )
        return plain.result(), recorded.result(), driver.result()


@pytest.fixture(scope="module")
def ops(runs: tuple[dict, Recorded, Recorded]) -> Recorded:
    return runs[1]


def assert_launched(part: Part, kernel: dict, *, domain: str = "runtime") -> dict:
    """The launch of a kernel says the same as the kernel does. Returns the call."""
    call = part.call_of(kernel)
    assert call["domain"] == domain, str(part)
    assert call["name"].startswith("cudaLaunchKernel" if domain == "runtime" else "cuLaunchKernel"), str(part)
    assert (call["result"], call["captured"] or False, call["open"] or False) == (0, False, False), str(part)
    assert call["correlation"] == kernel["correlation"], str(part)
    assert call["hop"] == kernel["hop"] is not None, str(part)
    assert call["start_ns"] < call["end_ns"], str(part)
    # the GPU begins after the host asked it to; the two clocks agree to a few microseconds
    assert call["start_ns"] - 20_000 < kernel["start_ns"] < kernel["end_ns"], str(part)
    assert kernel["end_ns"] - kernel["start_ns"] < 1_000_000, str(part)
    assert all(size >= 1 for size in [*kernel["grid"], *kernel["block"]]), str(part)
    assert kernel["registers"] > 0, str(part)
    return call


# ---- the clean chain: matmul --------------------------------------------------------------------


def test_matmul_reaches_cublas_and_its_kernel(ops: Recorded) -> None:
    part = ops.part("matmul")
    kernel = part.kernel(*GEMM)
    call = assert_launched(part, kernel)
    assert part.ops_around(kernel) == [
        "aten::matmul [AutogradCUDA]",
        "aten::mm [AutogradCUDA]",
        "aten::mm [CUDA]",
    ], str(part)
    library = part.library_call_of(call)
    assert library["name"].startswith(("cublasSgemm", "cublasGemmEx")), str(part)
    assert library["library"].startswith("libcublas"), str(part)
    assert library["result"] == 0, str(part)
    for size in "mnk":
        assert f"{size}=64" in library["arguments"], str(part)
    assert call["library_call"] == library["name"], str(part)
    assert part.activities["id"].to_list() == [kernel["id"]], f"more than the one kernel\n{part}"


def test_the_stack_of_a_launch_names_what_lies_between(ops: Recorded) -> None:
    part = ops.part("matmul")
    stack = part.stack_of(part.call_of(part.kernel(*GEMM)))
    shown = "\n".join(stack)
    in_cublas = [number for number, frame in enumerate(stack) if "libcublas.so" in frame]
    in_torch = [number for number, frame in enumerate(stack) if "libtorch_cuda.so" in frame]
    assert in_cublas, shown
    assert in_torch, shown
    assert in_cublas[0] < in_torch[0], f"innermost first\n{shown}"
    assert any("cublas" in stack[number] and "gemm" in stack[number].lower() for number in in_cublas), shown
    assert any("structured_mm_out_cuda" in frame or "gemm" in frame for frame in stack[in_torch[0] :]), shown


def test_queries_of_a_warm_op_belong_to_its_hops(ops: Recorded) -> None:
    """cudaGetDevice and the like: an eager mm makes several."""
    part = ops.part("matmul")
    queries = part.api_calls.filter(pl.col("name") == "cudaGetDevice")
    assert len(queries) >= 1, str(part)
    assert queries["hop"].null_count() == 0, str(part)
    assert set(queries["result"]) == {0}, str(part)
    assert set(queries["source"].str.contains(r"ops\.py:\d+$")) == {True}, str(part)


@pytest.mark.parametrize("case", ["matmul", "cat", "gru"])
def test_queries_say_as_much_as_other_calls(runs: tuple[dict, Recorded, Recorded], case: str) -> None:
    """Within an op they are written when they have returned, with every driver call as all others are.

    Of calls from one place in a library the stack is that of the first, and driver calls move the places:
    the caller is compared.
    """

    def said(recorded: Recorded) -> list[tuple[object, ...]]:
        part = recorded.part(case)
        calls = part.api_calls.filter(pl.col("name").is_in(QUERIES), pl.col("hop").is_not_null())
        assert (calls["end_ns"] > calls["start_ns"]).any(), str(part)
        assert calls["open"].not_().all(), str(part)
        assert calls["correlation"].n_unique() == len(calls), str(part)
        devices = recorded.trace.arguments("cudaGetDevice")
        of_call = dict(devices.select("id", "*device").iter_rows())
        pointers = dict(devices.select("id", "device").iter_rows())
        asked = calls.filter(pl.col("name") == "cudaGetDevice")["id"].to_list()
        assert asked, str(part)
        assert all(pointers[number] for number in asked), str(part)
        return [
            (
                call["name"],
                call["result"],
                of_call.get(call["id"]),
                part.ops_around(call),
                part.stack_of(call)[0],
            )
            for call in calls.iter_rows(named=True)
        ]

    assert said(runs[1]) == said(runs[2])


def test_bf16_is_launched_by_the_driver(ops: Recorded) -> None:
    part = ops.part("mm_bf16")
    kernel = part.kernel(*GEMM)
    call = assert_launched(part, kernel, domain="driver")
    assert call["name"] == "cuLaunchKernelEx", str(part)
    assert not part.api_calls["name"].str.starts_with("cudaLaunchKernel").any(), str(part)
    assert part.ops_around(kernel) == ["aten::mm [AutogradCUDA]", "aten::mm [CUDA]"], str(part)
    library = part.library_call_of(call)
    assert library["name"].startswith("cublasGemmEx"), str(part)
    assert "m=1024" in library["arguments"], str(part)
    assert "BF" in library["arguments"].upper(), f"the types of the product are not in the arguments\n{part}"


def test_linear_with_bias(ops: Recorded) -> None:
    part = ops.part("linear")
    kernel = part.kernel(*GEMM)
    call = assert_launched(part, kernel, domain=part.call_of(kernel)["domain"])
    assert part.ops_around(kernel)[0] == "aten::linear [AutogradCUDA]", str(part)
    assert part.ops_around(kernel)[-1] == "aten::addmm [CUDA]", str(part)
    library = part.library_call_of(call)
    assert library["name"].startswith(("cublasLtMatmul", "cublasSgemm", "cublasGemmEx")), str(part)
    assert "k=128" in library["arguments"], str(part)
    if library["name"].startswith("cublasLtMatmul"):  # the bias is added by the product's kernel
        assert len(part.kernels) == 1, str(part)
        assert "BIAS" in library["arguments"], str(part)


def test_backward_runs_on_its_thread_and_points_to_the_forward_line(ops: Recorded) -> None:
    part = ops.part("matmul_backward")
    products = part.kernels.filter(pl.col("name").str.contains("(?i)" + "|".join(GEMM)))
    assert len(products) == 2, f"one forward, one for the gradient of the weight\n{part}"
    forward, backward = (part.call_of(row) for row in products.sort("start_ns").iter_rows(named=True))
    assert forward["thread"] != backward["thread"], str(part)
    assert backward["source"] == forward["source"], str(part)
    hop = ops.hops.row(backward["hop"], named=True)
    assert hop["backward_node"] == "MmBackward0", str(part)


def test_a_pointwise_op_has_one_launch_and_no_library(ops: Recorded) -> None:
    part = ops.part("add")
    kernel = part.only(part.activities, "GPU activities")
    call = assert_launched(part, kernel)
    assert "elementwise" in kernel["name"], str(part)
    assert (call["library_call_id"], call["library_call"]) == (None, None), str(part)
    grid, block = kernel["grid"], kernel["block"]
    assert grid[0] * block[0] * 8 >= 256 * 256 >= grid[0] * block[0], f"256 x 256 elements\n{part}"
    for word in (f"{grid[0]}", f"{block[0]}"):
        assert word in call["arguments"], f"{call['name']} does not show its grid and block\n{part}"
    assert call["kernel"], f"the launch does not name its kernel\n{part}"


# ---- cuDNN, cat, attention ------------------------------------------------------------------------


def test_conv2d_reaches_cudnn(ops: Recorded) -> None:
    part = ops.part("conv2d")
    chain = part.ops()
    for op in (
        "aten::conv2d [AutogradCUDA]",
        "aten::convolution [AutogradCUDA]",
        "aten::cudnn_convolution [CUDA]",
    ):
        assert op in chain, str(part)
    in_cudnn = part.kernels.filter(pl.col("hop").is_not_null())
    assert len(in_cudnn) >= 1, str(part)
    named = {part.call_of(row)["library_call"] for row in in_cudnn.iter_rows(named=True)}
    assert any(name and name.startswith("cudnn") for name in named), f"{named}\n{part}"
    assert part.kernels["hop"].null_count() == 0, str(part)


def test_gru_reaches_cudnn_rnn(ops: Recorded) -> None:
    part = ops.part("gru")
    assert "aten::gru.input [AutogradCUDA]" in part.ops(), str(part)
    inside = [
        row for row in part.kernels.iter_rows(named=True) if "aten::_cudnn_rnn [CUDA]" in part.ops_around(row)
    ]
    assert inside, str(part)
    names = {part.call_of(row)["library_call"] for row in inside}
    assert "cudnnRNNForward" in names, f"{names}\n{part}"
    library = part.only(
        part.library_calls.filter(pl.col("name") == "cudnnRNNForward"), "calls of cudnnRNNForward"
    )
    assert library["result"] == 0, str(part)
    for size in ("input=32", "hidden=64", "layers=1", "sequence=5", "batch=8"):
        assert size in library["arguments"], str(part)
    assert "GRU" in library["arguments"], str(part)


def test_gru_backward_reaches_cudnn_rnn(ops: Recorded) -> None:
    part = ops.part("gru_backward")
    calls = part.library_calls.filter(pl.col("name").str.starts_with("cudnnRNNBackward"))
    assert calls["name"].str.contains("Data").any(), str(part)
    assert calls["name"].str.contains("Weights").any(), str(part)
    inside = {part.call_of(row)["library_call"] for row in part.kernels.iter_rows(named=True)}
    assert {name.partition("_")[0] for name in inside if name} >= {
        "cudnnRNNForward",
        "cudnnRNNBackwardData",
        "cudnnRNNBackwardWeights",
    }, f"{inside}\n{part}"


def test_cat_is_one_kernel(ops: Recorded) -> None:
    part = ops.part("cat")
    kernel = part.only(part.activities, "GPU activities")
    assert "CatArrayBatchedCopy" in kernel["name"], str(part)
    assert_launched(part, kernel)
    assert part.ops_around(kernel)[-1] == "aten::cat [CUDA]", str(part)


BACKENDS = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_efficient_attention": "fmha|attention",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn|fmha|sdpa",
}


def test_attention_says_which_backend_ran(ops: Recorded) -> None:
    part = ops.part("attention")
    ran = [op for op in BACKENDS if f"{op} [CUDA]" in part.ops()]
    assert len(ran) == 1, f"{ran}\n{part}"
    kernel = part.kernel(BACKENDS[ran[0]])
    assert part.ops_around(kernel)[0] == "aten::scaled_dot_product_attention [AutogradCUDA]", str(part)


def test_optimiser_step_is_fused_over_its_tensors(ops: Recorded) -> None:
    part = ops.part("adamw")
    assert "multi_tensor_apply" in part.kernel("multi_tensor_apply")["name"], str(part)
    assert part.kernels["hop"].null_count() == 0, str(part)


# ---- copies, fills, synchronisation --------------------------------------------------------------


def assert_copied(part: Part, name: str, kind: str, size: int) -> tuple[dict, dict]:
    copy = part.only(part.copies, "copies")
    call = part.call_of(copy)
    assert copy["name"] == name, str(part)
    assert copy["bytes"] == size, str(part)
    assert call["name"] == "cudaMemcpyAsync", str(part)
    assert kind in call["arguments"], str(part)
    assert f"count={size}" in call["arguments"], str(part)
    assert copy["hop"] == call["hop"] is not None, str(part)
    return copy, call


def test_pinned_copy(ops: Recorded) -> None:
    part = ops.part("pinned_copy")
    assert_copied(part, "memcpy HtoD (pinned -> device)", "cudaMemcpyHostToDevice", 4096)
    assert not part.api_calls["name"].str.contains("Synchronize").any(), f"it was to be asynchronous\n{part}"


def test_pageable_copy(ops: Recorded) -> None:
    part = ops.part("pageable_copy")
    _, call = assert_copied(part, "memcpy HtoD (pageable -> device)", "cudaMemcpyHostToDevice", 4096)
    waits = part.api_calls.filter(pl.col("name") == "cudaStreamSynchronize")
    assert waits["hop"].to_list() == [call["hop"]], f"the copy waits in its own hop\n{part}"


def test_copy_to_the_host(ops: Recorded) -> None:
    part = ops.part("copy_back")
    assert_copied(part, "memcpy DtoH (device -> pageable)", "cudaMemcpyDeviceToHost", 4096)


def test_item_waits_for_the_gpu(ops: Recorded) -> None:
    part = ops.part("item")
    copy = part.only(part.copies, "copies")
    assert copy["bytes"] == 4, str(part)
    assert copy["name"].startswith("memcpy DtoH"), str(part)
    around = part.ops_around(copy)
    assert around[0].startswith("aten::item ["), str(part)
    assert around[-1] == "aten::_local_scalar_dense [CUDA]", str(part)
    wait = part.only(part.api_calls.filter(pl.col("name") == "cudaStreamSynchronize"), "waits")
    assert part.ops_around(wait) == around, str(part)
    assert wait["source"] == part.call_of(copy)["source"], str(part)


def test_zeros_is_a_fill(ops: Recorded) -> None:
    part = ops.part("zeros")
    fill = part.only(part.activities, "GPU activities")
    if fill["kind"] == "memset":
        assert fill["bytes"] == 1 << 20, str(part)
        assert part.call_of(fill)["name"] == "cudaMemsetAsync", str(part)
    assert part.ops_around(fill)[0].startswith("aten::zeros ["), str(part)


def test_streams_are_told_apart(ops: Recorded) -> None:
    part = ops.part("streams")
    assert part.kernels["stream"].n_unique() == len(part.kernels) == 2, str(part)
    waits = part.api_calls.filter(pl.col("name") == "cudaStreamWaitEvent")
    assert len(waits) == 4, str(part)
    assert part.kernels["hop"].null_count() == 0, str(part)


# ---- a CUDA graph ----------------------------------------------------------------------------------


def test_captured_launches_ran_nothing(ops: Recorded) -> None:
    part = ops.part("graph", "capture")
    captured = part.api_calls.filter(pl.col("captured").fill_null(False))
    assert len(captured.filter(pl.col("name").str.contains("Launch"))) == 3, (
        f"two products, one addition\n{part}"
    )
    assert captured["hop"].null_count() == 0, str(part)
    (began,) = part.api_calls.filter(pl.col("name") == "cudaStreamBeginCapture")["start_ns"]
    # torch launches two fills, of numbers of the random generator, before the capture
    during = part.api_calls.filter(pl.col("start_ns") > began)
    assert part.kernels.filter(pl.col("api_call").is_in(during["id"].to_list())).is_empty(), (
        f"nothing runs while a graph is captured\n{part}"
    )
    assert launches(during).is_empty(), str(part)


def test_replays_belong_to_the_hops_that_were_captured(ops: Recorded) -> None:
    capture, replay = ops.part("graph", "capture"), ops.part("graph", "replay")
    captured = capture.api_calls.filter(
        pl.col("captured").fill_null(False) & pl.col("name").str.contains("Launch")
    )
    both = f"{capture}\n{replay}"
    assert replay.api_calls["name"].to_list().count("cudaGraphLaunch") == 3, both
    kernels = replay.kernels.filter(of_graph(replay.kernels))
    assert len(kernels) == 3 * len(captured) == 9, both
    assert set(kernels["captured_by"]) == set(captured["id"]), both
    assert set(kernels["hop"]) == set(captured["hop"]), both
    assert {replay.call_of(row)["name"] for row in kernels.iter_rows(named=True)} == {"cudaGraphLaunch"}, both
    assert kernels.group_by("captured_by").len()["len"].to_list() == [3, 3, 3], both
    ops_seen = {replay.ops_around(row)[-1] for row in kernels.iter_rows(named=True)}
    assert ops_seen == {"aten::mm [CUDA]", "aten::add.Tensor [CUDA]"}, f"{ops_seen}\n{both}"


# ---- the whole run ---------------------------------------------------------------------------------


def test_every_case_ran(ops: Recorded) -> None:
    failed = {name: case["error"] for name, case in ops.noted["cases"].items() if case["error"]}
    assert not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())
    assert ops.run.status == 0, ops.about()


def test_results_are_the_same_bytes_with_and_without_recording(runs: tuple[dict, Recorded, Recorded]) -> None:
    plain, recorded, driver = runs
    different = [
        f"{name}, {part}"
        for name, case in plain["cases"].items()
        for part, noted in case["parts"].items()
        for other in (recorded, driver)
        if noted["digest"] != other.noted["cases"][name]["parts"].get(part, {}).get("digest")
    ]
    assert not different, f"not the same bytes: {different}"
    assert sum(len(case["parts"]) for case in plain["cases"].values()) >= 37


@pytest.mark.parametrize("index", [1, 2], ids=["launches", "all"])
def test_counts_agree(runs: tuple[dict, Recorded, Recorded], index: int) -> None:
    """Launches, kernels delivered, and kernels joined, with and without all driver calls."""
    run = runs[index]
    kernels = run.kernels.filter(~of_graph(run.kernels))
    assert len(launches(run.api_calls)) == len(kernels) == run.cuda["launches"], run.about()
    assert run.kernels["api_call"].null_count() == 0, run.about()
    assert run.cuda["reconciles"] is True, run.about()
    assert run.trace.certificate["verdict"].startswith("complete"), run.about()


def test_all_driver_calls_lie_in_the_runtime_calls_that_make_them(
    runs: tuple[dict, Recorded, Recorded],
) -> None:
    part = runs[2].part("add")
    outer = part.only(part.api_calls.filter(pl.col("name").str.starts_with("cudaLaunchKernel")), "launches")
    inner = part.api_calls.filter(
        pl.col("domain") == "driver", pl.col("name").str.starts_with("cuLaunchKernel")
    )
    row = part.only(inner, "driver launches")
    assert outer["start_ns"] <= row["start_ns"] <= row["end_ns"] <= outer["end_ns"], str(part)
    assert row["hop"] == outer["hop"], str(part)
    kernel = part.only(part.activities, "GPU activities")
    assert kernel["hop"] == outer["hop"], str(part)


def test_device_facts(ops: Recorded) -> None:
    import torch

    properties = torch.cuda.get_device_properties(0)
    device = ops.trace.devices.filter(pl.col("device") == 0).row(0, named=True)
    assert device["name"] == properties.name
    assert device["numMultiprocessors"] == properties.multi_processor_count
    assert device["computeCapabilityMajor"] == properties.major
    assert device["globalMemoryBandwidth"] > 0


def test_environment_has_versions(ops: Recorded) -> None:
    assert {"cupti", "driver", "runtime"} <= ops.trace.environment["cuda"].keys()


def test_library_hooks_were_placed(ops: Recorded) -> None:
    hooks = ops.cuda["library_hooks"]
    needed = [
        "cublasSgemm_v2",
        "cublasGemmEx",
        "cublasLtMatmul",
        "cudnnRNNForward",
        "cudnnRNNBackwardData_v8",
    ]
    assert {name: hooks.get(name) for name in needed} == dict.fromkeys(needed, True), str(hooks)


def test_arguments_as_typed_columns(ops: Recorded) -> None:
    copies = ops.api_calls.filter(pl.col("name") == "cudaMemcpyAsync")
    typed = ops.trace.arguments("cudaMemcpyAsync")
    assert typed["id"].to_list() == copies["id"].to_list()
    assert typed["count"].dtype.is_integer()
    assert {1024 * 4, 4} <= set(typed["count"])


# ---- read back by the verbs ------------------------------------------------------------------------


def test_tree_shows_the_chain(ops: Recorded, tmp_path: Path) -> None:
    shown = Launcher(tmp_path).python(
        "-m", "tracer.cli.app", "tree", str(ops.path), "--op", "aten::mm", "--limit", "0"
    )
    assert shown.status == 0, shown.err
    for word in ("aten::mm", "[CUDA]", "cublas", "cudaLaunchKernel", "cuLaunchKernelEx"):
        assert word in shown.out, f"{word} is not in\n{shown.out[:4000]}"


@pytest.mark.parametrize("only", ["cuda", "kernels"])
def test_report_has_the_surveys(ops: Recorded, tmp_path: Path, only: str) -> None:
    shown = Launcher(tmp_path).python("-m", "tracer.cli.app", "report", str(ops.path), "--only", only)
    assert shown.status == 0, shown.err
    for word in {"cuda": ("cudaLaunchKernel", "cudaStreamSynchronize"), "kernels": ("CatArrayBatchedCopy",)}[
        only
    ]:
        assert word in shown.out, f"{word} is not in\n{shown.out[:4000]}"
