"""Device kernels against the limits of the device, with numbers worked out by hand."""

from __future__ import annotations

import pytest
from cuda_frames import CudaBuilder
from frames import FakeTrace, hop

from tracer.analysis.families import FAMILIES, family_of
from tracer.analysis.kernel_survey import KernelRow, remarks, survey_kernels

F32 = "torch.float32"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int)"
)
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_ffma_cublas"


def launched(builder: CudaBuilder, number: int, name: str, time: int, **more: object) -> int:
    start = builder.rows[number]["start_ns"] + 100
    call = builder.api("cudaLaunchKernel", "launch", start, start + 500, hop=number, **more.pop("call", {}))
    return builder.kernel(name, start + 1000, start + 1000 + time, call, **more)


def only(trace: FakeTrace, **more: float) -> KernelRow:
    (row,) = survey_kernels(trace, **more).rows
    return row


def an_add(times: tuple[int, ...] = (5000,), size: int = 1 << 20) -> CudaBuilder:
    builder = CudaBuilder()
    both = builder.signature(([size], F32), ([size], F32))
    for time in times:
        builder.calls(hop("aten::add.Tensor", "CUDA", inputs=both, source="train.py:3", self_ns=9000))
        launched(builder, len(builder.rows) - 1, ADD, time, grid=(2048, 1, 1))
    return builder


def test_a_pointwise_kernel_is_held_against_the_bandwidth() -> None:
    row = only(an_add((5000, 6000, 7000)).cuda_trace())
    # 3 x 4 MiB at 4.8 TB/s
    assert row.limit
    assert row.limit.ns == pytest.approx(12_582_912 / 4.8e12 * 1e9)
    assert row.limit.by == "bytes"
    assert row.limit.in_cache
    assert row.headroom == pytest.approx(1 - 2621.44 / 6000)
    assert row.score_ns == pytest.approx(18_000 - 3 * 2621.44)
    assert (row.calls, row.total_ns, row.median_ns, row.least_ns) == (3, 18_000, 6000, 5000)
    assert (row.kernel, row.op) == (
        "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
        "aten::add.Tensor",
    )
    assert row.sources == ["train.py:3"]
    assert row.elements_per_thread == 4
    assert row.family
    assert row.family.name.startswith("pointwise")


def gemm(kernel: str, dtype: str, time: int) -> KernelRow:
    builder = CudaBuilder()
    both = builder.signature(([4096, 4096], dtype), ([4096, 4096], dtype))
    builder.calls(hop("aten::mm", "CUDA", inputs=both, self_ns=9000))
    launched(builder, 0, kernel, time, grid=(32, 32, 1), block=(256, 1, 1))
    return only(builder.cuda_trace())


def test_a_product_is_held_against_the_unit_that_it_runs_on() -> None:
    work = 2 * 4096**3
    plain = gemm(GEMM, F32, 3_000_000)
    assert plain.limit
    assert plain.limit.by == "fp32 cores"
    assert plain.limit.ns == pytest.approx(work / (132 * 1.98e9 * 256) * 1e9)
    assert plain.tile == (128, 128)
    tensor = gemm("nvjet_tst_128x256_64x4_coopB_NNT", "torch.bfloat16", 200_000)
    assert tensor.limit
    assert (tensor.limit.by, tensor.tile) == ("16-bit tensor", (128, 256))
    assert tensor.limit.ns == pytest.approx(work / (132 * 1.83e9 * 4096) * 1e9)


def test_a_product_faster_than_cuda_cores_ran_on_tensor_cores() -> None:
    row = gemm("a_kernel_that_does_not_say", F32, 400_000)
    assert row.limit
    assert row.limit.by == "TF32 tensor"
    assert row.headroom is not None
    assert 0 < row.headroom < 1


def test_kernels_of_one_op_share_its_limit() -> None:
    builder = CudaBuilder()
    both = builder.signature(([1 << 20], F32), ([1 << 20], F32))
    builder.calls(hop("aten::add.Tensor", "CUDA", inputs=both, self_ns=9000))
    launched(builder, 0, ADD, 4000)
    launched(builder, 0, "second_kernel", 6000)
    rows = survey_kernels(builder.cuda_trace()).rows
    headroom = 1 - 2621.44 / 10_000
    assert [row.headroom for row in rows] == pytest.approx([headroom, headroom])
    assert rows[0].kernel == "second_kernel"
    assert sum(row.score_ns or 0 for row in rows) == pytest.approx(10_000 - 2621.44)
    assert any("one of 2 kernels" in line for line in remarks(rows[0], None))


STRIDED = "elementwise_kernel<128, 2, CUDAFunctor_add<float>>"


def adds(*calls: dict[str, tuple[int, ...]], op: str = "aten::add.Tensor") -> CudaBuilder:
    """An op call for each of `calls`: the times of the kernels that it launches, by name."""
    builder = CudaBuilder()
    both = builder.signature(([1 << 20], F32), ([1 << 20], F32))
    for kernels in calls:
        builder.calls(hop(op, "CUDA", inputs=both, self_ns=9000))
        for name, times in kernels.items():
            for time in times:
                launched(builder, len(builder.rows) - 1, name, time)
    return builder


def test_calls_of_one_op_that_launch_other_kernels_have_a_headroom_each() -> None:
    rows = survey_kernels(adds({ADD: (2700,)}, {STRIDED: (26_000,)}, {ADD: (2800,)}).cuda_trace()).rows
    assert [(row.kernel, row.of_ns) for row in rows] == [(STRIDED, 26_000), (rows[1].kernel, 2750)]
    assert rows[0].headroom == pytest.approx(1 - 2621.44 / 26_000)
    assert rows[1].headroom == pytest.approx(1 - 2621.44 / 2750)
    assert not any(row.beside_others_too for row in rows)


def test_calls_of_one_op_that_launch_a_kernel_with_another_grid_have_a_headroom_each() -> None:
    builder = adds({ADD: (3000,)}, {ADD: (26_000,)})
    builder.activity_rows[1]["grid"] = [64, 1, 1]
    rows = survey_kernels(builder.cuda_trace()).rows
    assert [(row.grid, row.of_ns) for row in rows] == [((64, 1, 1), 26_000), ((1, 1, 1), 3000)]


def test_a_kernel_alone_and_beside_others_is_two_rows() -> None:
    alone, both = {STRIDED: (4000,)}, {STRIDED: (5000,), "copy_first": (20_000,)}
    rows = survey_kernels(adds(both, alone, alone).cuda_trace()).rows
    assert [(row.kernel, row.calls, row.of_ns, row.of_kernels, row.beside_others_too) for row in rows] == [
        ("copy_first", 1, 25_000, 2, False),
        (STRIDED, 1, 25_000, 2, True),
        (STRIDED, 2, 4000, 1, True),
    ]
    gains = 25_000 - 2621.44, 2 * (4000 - 2621.44)
    assert sum(row.score_ns or 0 for row in rows) == pytest.approx(sum(gains))


def test_how_often_a_call_launches_its_kernels_makes_no_row() -> None:
    row = only(adds({STRIDED: (10_000, 10_000)}, {STRIDED: (6000,)}).cuda_trace())
    assert (row.calls, row.of_ns, row.of_kernels) == (3, 13_000, 1.5)


def test_each_device_has_its_own_part_of_a_call() -> None:
    builder = adds({STRIDED: (4000,), "copy_first": (20_000,)})
    builder.activity_rows[1]["device"] = 1
    rows = survey_kernels(builder.cuda_trace()).rows
    assert {(row.device, row.of_ns, row.of_kernels) for row in rows} == {(0, 4000, 1), (1, 20_000, 1)}


def test_kernels_of_unknown_work_are_not_told_apart_by_what_ran_beside_them() -> None:
    calls = {STRIDED: (4000,)}, {STRIDED: (5000,), "copy_first": (20_000,)}
    rows = survey_kernels(adds(*calls, op="my::op").cuda_trace()).rows
    assert [(row.kernel, row.calls, row.of, row.of_ns) for row in rows] == [
        ("copy_first", 1, None, None),
        (STRIDED, 2, None, None),
    ]


TENSOR_GEMM = "cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4"


def test_one_kernel_in_tf32_tells_for_its_whole_op_call() -> None:
    builder = CudaBuilder()
    both = builder.signature(([4096, 4096], F32), ([4096, 4096], F32))
    for names in ((TENSOR_GEMM, "nchwToNhwcKernel"), (GEMM, "nchwToNhwcKernel")):
        builder.calls(hop("aten::mm", "CUDA", inputs=both, self_ns=9000))
        for name in names:
            launched(builder, len(builder.rows) - 1, name, 2_500_000)
    rows = {
        (row.kernel, row.limit.by if row.limit else ""): row
        for row in survey_kernels(builder.cuda_trace()).rows
    }
    assert set(rows) == {
        (TENSOR_GEMM, "TF32 tensor"),
        ("nchwToNhwcKernel", "TF32 tensor"),
        (GEMM, "fp32 cores"),
        ("nchwToNhwcKernel", "fp32 cores"),
    }
    assert {row.of_ns for row in rows.values()} == {5_000_000}


def test_outside_ops_a_kernel_speaks_for_itself() -> None:
    builder = CudaBuilder().calls(hop("aten::neg", "CPU"))
    arguments = "transa=N, transb=N, m=4096, n=4096, k=4096"
    for start, name in ((10_000, TENSOR_GEMM), (9_000_000, GEMM)):
        library = builder.library("cublasSgemm_v2", start, start + 900, arguments=arguments)
        call = builder.api("cudaLaunchKernel", "launch", start + 100, start + 500, library_call_id=library)
        builder.kernel(name, start + 1000, start + 3_000_000, call)
    found = {row.kernel: row.limit.by for row in survey_kernels(builder.cuda_trace()).rows if row.limit}
    assert found == {TENSOR_GEMM: "TF32 tensor", GEMM: "fp32 cores"}


def library_calls(*calls: dict[str, int]) -> CudaBuilder:
    """A product outside ops for each of `calls`: the time of each kernel that it launches, by name."""
    builder = CudaBuilder().calls(hop("aten::neg", "CPU"))
    arguments = "transa=N, transb=N, m=4096, n=4096, k=4096"
    for number, kernels in enumerate(calls, 1):
        start = number * 50_000_000
        library = builder.library("cublasSgemm_v2", start, start + 9000, arguments=arguments)
        for name, time in kernels.items():
            call = builder.api("cudaLaunchKernel", "launch", start, start + 500, library_call_id=library)
            builder.kernel(name, start + 1000, start + 1000 + time, call)
    return builder


def test_library_calls_that_launch_other_kernels_have_a_headroom_each() -> None:
    calls = library_calls({GEMM: 3_000_000}, {"splitKreduce_kernel": 9000, GEMM: 4_000_000})
    assert [
        (row.kernel, row.of, row.of_ns, row.of_kernels) for row in survey_kernels(calls.cuda_trace()).rows
    ] == [
        (GEMM, "library call", 4_009_000, 2),
        (GEMM, "library call", 3_000_000, 1),
        ("splitKreduce_kernel", "library call", 4_009_000, 2),
    ]


def test_one_kernel_in_tf32_tells_for_its_whole_library_call_outside_ops() -> None:
    calls = library_calls({TENSOR_GEMM: 3_000_000, "splitKreduce_kernel": 9000})
    rows = survey_kernels(calls.cuda_trace()).rows
    assert [(row.tf32, row.of_ns, row.limit and row.limit.by) for row in rows] == [
        (True, 3_009_000, "TF32 tensor"),
        (True, 3_009_000, "TF32 tensor"),
    ]


def test_a_row_without_a_limit_says_why() -> None:
    builder = CudaBuilder().calls(hop("my::op", "CUDA", self_ns=9000))
    launched(builder, 0, "my_kernel", 4000)
    assert only(builder.cuda_trace()).unknown == "no shapes recorded"


def test_without_a_model_of_the_op_the_library_call_says_the_work() -> None:
    builder = CudaBuilder().calls(hop("my::op", "CUDA", self_ns=9000), times=2)
    for number in (0, 1):
        start = builder.rows[number]["start_ns"]
        arguments = f"handle=0x{number}f, transa=N, m=64, n=64, k=64"
        sgemm = builder.library("cublasSgemm_v2", start, start + 900, hop=number, arguments=arguments)
        launched(builder, number, GEMM, 3300, call={"library_call_id": sgemm})
    row = only(builder.cuda_trace())
    assert row.work
    assert (row.of, row.work.flops, row.calls) == ("library call", 2 * 64**3, 2)
    assert row.of_ns == 3300
    assert row.library_call == "cublasSgemm_v2(N, m=64, n=64, k=64)"


def test_unknown_work_has_no_headroom_and_stands_last() -> None:
    builder = an_add()
    builder.calls(hop("my::op", "CUDA", self_ns=9000))
    launched(builder, 1, "mystery", 9_000_000)
    builder.kernel("outside", 1, 2)
    rows = survey_kernels(builder.cuda_trace()).rows
    assert [(row.kernel, row.headroom is None) for row in rows[1:]] == [("mystery", True), ("outside", True)]
    assert rows[2].op is None


def test_shapes_and_launches_are_told_apart() -> None:
    builder = an_add()
    other = builder.signature(([64], F32), ([64], F32))
    builder.calls(hop("aten::add.Tensor", "CUDA", inputs=other, self_ns=9000))
    launched(builder, 1, ADD, 1500, grid=(1, 1, 1))
    assert len(survey_kernels(builder.cuda_trace()).rows) == 2


def test_signatures_for_the_same_work_are_one_row() -> None:
    builder = an_add()
    for device, more in (("cuda:1", {"requires_grad": True}), ("cuda:2", {"stride": [1]})):
        other = builder.signature(([1 << 20], F32), ([1 << 20], F32), device=device)
        for tensor in builder.tensors:
            if tensor["id"] == other:
                tensor |= {"device": "cpu"} | more
        builder.calls(hop("aten::add.Tensor", "CUDA", inputs=other, self_ns=9000))
        launched(builder, len(builder.rows) - 1, ADD, 5000, grid=(2048, 1, 1))
    row = only(builder.cuda_trace())
    assert (row.calls, row.signature) == (3, 0)


def test_kernels_that_have_one_short_name_are_one_row() -> None:
    builder = an_add((5000, 7000))
    builder.activity_rows[1]["name"] = ADD.replace("(int)", "(long)")
    row = only(builder.cuda_trace())
    assert (row.calls, row.symbol) == (2, ADD)


def test_an_expanded_input_is_other_work() -> None:
    builder = an_add()
    other = builder.signature(([1 << 20], F32), ([1 << 20], F32), device="cuda:1")
    for tensor in builder.tensors:
        if tensor["id"] == other:
            tensor |= {"device": "cpu", "stride": [0]}
    builder.calls(hop("aten::add.Tensor", "CUDA", inputs=other, self_ns=9000))
    launched(builder, 1, ADD, 5000, grid=(2048, 1, 1))
    assert len(survey_kernels(builder.cuda_trace()).rows) == 2


def test_a_redispatched_hop_without_a_signature_has_that_of_its_call() -> None:
    builder = CudaBuilder()
    both = builder.signature(([64, 64], F32), ([64, 64], F32))
    builder.calls(hop("aten::mm", "AutogradCUDA", hop("aten::mm", "CUDA", self_ns=5000), inputs=both))
    launched(builder, 1, GEMM, 3300)
    assert only(builder.cuda_trace()).signature == both


def test_warm_up_is_left_out_and_counted() -> None:
    builder = an_add((5000, 6000))
    builder.activity_rows[0]["phase"] = "warmup"
    builder.activity_rows[1]["phase"] = "steady"
    survey = survey_kernels(builder.cuda_trace())
    assert (survey.launches, survey.left_out, survey.total_ns) == (1, 1, 6000)


def phases(*times: tuple[int, str | None]) -> CudaBuilder:
    """An add for each time and phase, each in a step of its own where it has a phase."""
    builder = an_add(tuple(time for time, _ in times))
    for step, (row, (_, phase)) in enumerate(zip(builder.activity_rows, times, strict=True)):
        row |= {"phase": phase, "step": step if phase else None}
    return builder


def test_what_ran_after_the_steady_steps_is_left_out_and_counted() -> None:
    trace = phases((4000, "warmup"), (5000, "steady"), (6000, "steady"), (7000, None)).cuda_trace()
    survey = survey_kernels(trace)
    assert (survey.launches, survey.total_ns, survey.left_out) == (2, 11_000, 1)
    assert (survey.outside, survey.outside_counts) == (1, False)


def test_what_ran_outside_steps_counts_where_it_is_most_of_the_work() -> None:
    survey = survey_kernels(phases((4000, "warmup"), (5000, "steady"), (7000, None)).cuda_trace())
    assert (survey.launches, survey.total_ns, survey.left_out) == (2, 12_000, 1)
    assert (survey.outside, survey.outside_counts) == (1, True)


def test_what_ran_outside_steps_counts_in_a_process_without_steady_ones() -> None:
    builder = phases((5000, "steady"), (6000, "steady"), (7000, None))
    builder.activity_rows[2]["process"] = 1
    survey = survey_kernels(builder.cuda_trace())
    assert (survey.launches, survey.outside) == (3, 0)


def test_replays_of_a_graph_are_calls_of_the_captured_op() -> None:
    builder = CudaBuilder()
    both = builder.signature(([1 << 20], F32), ([1 << 20], F32))
    builder.calls(hop("aten::add.Tensor", "CUDA", inputs=both, self_ns=9000))
    captured = builder.api("cudaLaunchKernel", "launch", 100, 200, hop=0, captured=True)
    for start in (20_000, 40_000, 60_000):
        replay = builder.api("cudaGraphLaunch", "graph", start, start + 100)
        builder.kernel(ADD, start + 200, start + 6200, replay, hop=0, captured_by=captured)
    row = only(builder.cuda_trace())
    assert (row.calls, row.of_ns, row.of_kernels) == (3, 6000, 1)


def test_measured_limits_replace_those_of_the_device() -> None:
    row = only(an_add().cuda_trace(), bandwidth=4.0e12)
    assert row.limit
    assert row.limit.ns == pytest.approx(12_582_912 / 4.0e12 * 1e9)


def test_a_device_of_which_nothing_is_known_has_no_limit() -> None:
    builder = an_add()
    builder.device_facts = {}
    row = only(builder.cuda_trace())
    assert (row.limit, row.headroom, row.occupancy) == (None, None, None)


def test_remarks() -> None:
    builder = an_add((2000,), size=64)
    builder.activity_rows[0]["grid"] = [1, 1, 1]
    survey = survey_kernels(builder.cuda_trace())
    said = remarks(survey.rows[0], survey.limits[0])
    assert any(line.startswith("short: launching it") for line in said)
    assert "1 of 132 multiprocessors have a block: too little parallel work" in said
    tail = an_add((2_000_000,), size=1 << 28)
    tail.activity_rows[0] |= {"grid": [1584, 1, 1], "block": [256, 1, 1]}  # 8 x 132 = 1,056 places
    survey = survey_kernels(tail.cuda_trace())
    assert "the last of 1.5 waves leaves 50 % of the places empty" in remarks(
        survey.rows[0], survey.limits[0]
    )


def test_kernels_without_times_are_left_out_and_counted() -> None:
    builder = an_add((5000, 6000))
    builder.activity_rows[0] |= {"start_ns": None, "end_ns": None}
    survey = survey_kernels(builder.cuda_trace())
    assert (survey.launches, survey.untimed) == (1, 1)


def test_no_kernels() -> None:
    survey = survey_kernels(CudaBuilder().cuda_trace())
    assert (survey.rows, survey.total_ns, survey.launches) == ([], 0, 0)


@pytest.mark.parametrize(
    ("kernel", "family"),
    [
        ("vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", "pointwise, contiguous (vectorised)"),
        ("vectorized_elementwise_kernel<4, FillFunctor<float>>", "fill"),
        ("unrolled_elementwise_kernel<CUDAFunctor_add<float>, 4>", "pointwise, with conversion or unaligned"),
        ("elementwise_kernel<128, 2, MulFunctor<float>>", "pointwise, strided or broadcast"),
        ("elementwise_kernel<128, 2, direct_copy_kernel_cuda>", "copy and layout"),
        ("reduce_kernel<512, 1, sum_functor<float>>", "reduction"),
        ("CatArrayBatchedCopy_aligned16_contig<OpaqueType<4>, 2, 128, 1>", "concatenation"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8", "matrix product (GEMM)"),
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", "matrix product (GEMM)"),
        ("nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", "matrix product (GEMM)"),
        ("gemvx::kernel<float, false>", "matrix x vector"),
        ("splitKreduce_kernel<32, 16, float>", "before and after a matrix product"),
        ("sgemm_largek_lds64<true, false, 5>", "matrix product (GEMM)"),
        ("compute_dot_do_o_specialized<false, 64>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64", "attention"),
        ("wgrad2d_grouped_direct_kernel<false, true, float>", "convolution"),
        ("persistRNN_addBias<float>", "recurrent network"),
        ("vectorized_elementwise_kernel<8, float16_copy_kernel_cuda>", "copy and layout"),
        ("softmax_warp_forward<float, 5>", "softmax"),
        ("cunn_SoftMaxForward<4, float>", "softmax"),
        ("vectorized_layer_norm_kernel<float>", "layer normalisation"),
        ("bn_fw_tr_1C11_singleread_specialized<float, 512>", "batch normalisation"),
        ("batch_norm_collect_statistics_kernel<float>", "batch normalisation"),
        ("vectorized_gather_kernel<16, long>", "embedding and gather"),
        ("index_elementwise_kernel<128, 4, index_kernel_impl>", "indexing and scatter"),
        ("RNN_blockPersist_fp_GRU<half, float>", "recurrent network"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", "convolution"),
        ("multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", "optimiser step (multi-tensor)"),
        ("nchwToNhwcKernel<float>", "copy and layout"),
        ("ImplicitGemmConvolution<wgrad, 64x128x16, tf32>", "convolution"),
        ("ReduceSplitK<4>", "before and after a matrix product"),
        ("init_device_workspace_kernel", "before and after a matrix product"),
        ("triton_poi_fused_add_0", "fused by Triton"),
        ("vectorized_elementwise_kernel<4, masked_fill_kernel_impl>", "pointwise, contiguous (vectorised)"),
        ("multi_tensor_apply_kernel<CopyFunctor<float>>", "copy and layout"),
        ("flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", "attention"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", "attention"),
        ("distribution_elementwise_grid_stride_kernel<float, 4>", "random numbers"),
        ("my_kernel", None),
    ],
)
def test_families(kernel: str, family: str | None) -> None:
    found = family_of(kernel)
    assert (found.name if found else None) == family


def test_families_are_told_in_full() -> None:
    for family in FAMILIES:
        for text in (family.parallel, family.spread, family.logic, family.options):
            assert text.endswith(".")
            assert len(text) > 10
