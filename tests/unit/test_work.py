"""Bytes and operations of ops, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from frames import TraceBuilder, hop

from tracer.analysis.library_work import gemm_work, rnn_work
from tracer.analysis.op_work import outputs_of_backward, why_unknown, work_of
from tracer.analysis.work import Work

F32, BF16, I64, BOOL = "torch.float32", "torch.bfloat16", "torch.int64", "torch.bool"
C64 = "torch.complex64"


def rows(
    *tensors: tuple[list[int] | None, str | None] | tuple[list[int], str, list[int]],
) -> list[dict[str, Any]]:
    """Rows of `signatures`: (shape, dtype) or (shape, dtype, stride)."""
    return [
        {"shape": shape, "dtype": dtype, "stride": stride[0] if stride else None}
        for shape, dtype, *stride in tensors
    ]


def of(op: str, *tensors: Any) -> Work:
    work = work_of(op, rows(*tensors))
    assert work is not None
    return work


@pytest.mark.parametrize(
    ("op", "tensors", "moved", "flops"),
    [
        # (4 x 5 + 5 x 6 + 4 x 6) x 4 bytes, 2 x 4 x 5 x 6
        ("aten::mm", [([4, 5], F32), ([5, 6], F32)], 296, 240),
        ("aten::mm.out", [([4, 5], F32), ([5, 6], F32), ([4, 6], F32)], 296, 240),
        ("aten::mm", [([4, 5], BF16), ([5, 6], BF16)], 148, 240),
        # 4 multiplications and 4 additions for each of 4 x 5 x 6
        ("aten::mm", [([4, 5], C64), ([5, 6], C64)], 592, 960),
        ("aten::linear", [([4, 5], C64), ([6, 5], C64)], 592, 960),
        # and the bias, 6
        ("aten::addmm", [([6], F32), ([4, 5], F32), ([5, 6], F32)], 320, 240),
        ("aten::bmm", [([3, 4, 5], F32), ([3, 5, 6], F32)], 888, 720),
        ("aten::baddbmm", [([3, 4, 6], F32), ([3, 4, 5], F32), ([3, 5, 6], F32)], 888 + 288, 720),
        ("aten::mv", [([4, 5], F32), ([5], F32)], (20 + 5 + 4) * 4, 40),
        # 2 x 3 rows of 5 -> 7: 30 + 35 + 7 in, 42 out
        ("aten::linear", [([2, 3, 5], F32), ([7, 5], F32), ([7], F32)], (30 + 35 + 7 + 42) * 4, 2 * 42 * 5),
        # heads 2 x 3, 4 queries, 5 keys, 8 wide: q 192, k, v 240 each, out 192; 2 products of 2 x 6 x 20 x 8
        (
            "aten::_scaled_dot_product_flash_attention",
            [([2, 3, 4, 8], BF16), ([2, 3, 5, 8], BF16), ([2, 3, 5, 8], BF16)],
            (192 + 240 + 240 + 192) * 2,
            2 * 2 * 6 * 20 * 8,
        ),
        # the same with heads last
        (
            "aten::_flash_attention_forward",
            [([2, 4, 3, 8], BF16), ([2, 5, 3, 8], BF16), ([2, 5, 3, 8], BF16)],
            (192 + 240 + 240 + 192) * 2,
            2 * 2 * 6 * 20 * 8,
        ),
        ("aten::cat", [([4, 2], F32), ([4, 6], F32)], 2 * 32 * 4, 0),
        # out 4 x 5: a row is read once
        ("aten::add.Tensor", [([4, 5], F32), ([5], F32)], (20 + 5 + 20) * 4, 20),
        ("aten::add_.Tensor", [([4, 5], F32), ([4, 5], F32)], 240, 20),
        # an expanded row holds 5 elements
        ("aten::mul.Tensor", [([4, 5], F32), ([4, 5], F32, [0, 1])], (20 + 5 + 20) * 4, 20),
        # integers divided are floats; so are their sigmoids, and abs of complex numbers
        ("aten::div.Tensor", [([10], I64), ([10], I64)], 80 + 80 + 40, 10),
        ("aten::div.Tensor", [([10], I64), ([], I64)], 80 + 8 + 40, 10),
        ("aten::div_.Tensor", [([10], F32), ([10], I64)], 40 + 80 + 40, 10),
        ("aten::sigmoid", [([10], I64)], 80 + 40, 10),
        ("aten::sigmoid.out", [([10], I64), ([10], "torch.float64")], 80 + 80, 10),
        ("aten::abs", [([10], C64)], 80 + 40, 10),
        # a Python float, among integers
        ("aten::mul.Tensor", [([10], I64), ([], "torch.float64")], 80 + 8 + 40, 10),
        # sums of truth values are int64
        ("aten::cumsum", [([10], BOOL)], 10 + 80, 10),
        ("aten::cumsum_", [([10], "torch.uint8")], 10 + 10, 10),
        # truth written into numbers
        ("aten::lt_.Scalar", [([10], F32)], 40 + 40, 10),
        ("aten::cat", [([10], I64), ([10], F32)], 80 + 40 + 80, 0),
        # an unfold: 7 windows of 4 in 10 elements
        ("aten::neg", [([7, 4], F32, [1, 1])], 40 + 112, 28),
        # int64 + float32 -> float32
        ("aten::add.Tensor", [([10], I64), ([10], F32)], 80 + 40 + 40, 10),
        # a scalar does not widen
        ("aten::mul.Tensor", [([10], BF16), ([], F32)], 20 + 4 + 20, 10),
        ("aten::lt.Scalar", [([10], F32)], 50, 10),
        ("aten::where.self", [([10], BOOL), ([10], F32), ([10], F32)], 10 + 80 + 40, 10),
        ("aten::sum.dim_IntList", [([10, 10], F32)], 400, 100),
        ("aten::copy_", [([10], BF16), ([10], F32)], 60, 0),
        ("aten::copy_", [([4, 10], F32), ([10], F32)], 40 + 160, 0),
        ("aten::fill_.Scalar", [([10], F32)], 40, 0),
        ("aten::zero_", [([10], F32)], 40, 0),
        ("aten::_softmax", [([10], F32)], 80, 10),
        ("aten::_softmax_backward_data", [([10], F32), ([10], F32)], 120, 10),
        ("aten::native_layer_norm", [([4, 8], F32), ([8], F32), ([8], F32)], 128 + 64 + 128, 32),
        # grad, x, mean, rstd, weight, bias -> grad of x
        (
            "aten::native_layer_norm_backward",
            [([4, 8], F32), ([4, 8], F32), ([4, 1], F32), ([4, 1], F32), ([8], F32), ([8], F32)],
            128 * 2 + 32 + 64 + 128,
            32,
        ),
        # 6 indices of 8 bytes, 6 rows of 16 floats read and written
        ("aten::embedding", [([100, 16], F32), ([2, 3], I64)], 48 + 2 * 384, 0),
        ("aten::gather", [([4, 9], F32), ([4, 2], I64)], 64 + 64, 0),
        # x[i, j] with i and j of 3
        ("aten::index.Tensor", [([4, 9], F32), ([3], I64), ([3], I64)], 48 + 24, 0),
        # where the result goes is not read
        ("aten::add.out", [([10], F32), ([10], F32), ([10], F32)], 120, 10),
        ("aten::cat.out", [([4], F32), ([6], F32), ([10], F32)], 80, 0),
        ("aten::native_dropout", [([10], F32)], 40 + 50, 10),
        ("aten::_foreach_mul_.Scalar", [([10], F32), ([6], F32)], 128, 16),
        ("aten::_foreach_add_.List", [([10], F32), ([10], F32)], 120, 20),
        ("aten::_foreach_addcdiv_.ScalarList", [([10], F32)] * 3, 160, 30),
        # parameter, gradient, two averages (40 bytes each), a step: reads 160, writes 120
        ("aten::_fused_adamw_", [([10], F32)] * 4 + [([], F32)], 280, 160),
        ("aten::nll_loss_backward", [([], F32), ([4, 9], F32), ([4], I64)], 4 + 144 + 32 + 144, 36),
    ],
)
def test_work(op: str, tensors: list[Any], moved: int, flops: int) -> None:
    work = of(op, *tensors)
    assert (work.bytes, work.flops) == (moved, flops)


def test_a_gru_by_its_weights() -> None:
    # T 3, B 2, I 4, H 5: W_ih 15 x 4, W_hh 15 x 5, two biases (in the flat buffer), h0 1 x 2 x 5
    inputs = [
        ([3, 2, 4], F32),
        ([15, 4], F32),
        ([15, 5], F32),
        ([15], F32),
        ([15], F32),
        ([165], F32),
        ([1, 2, 5], F32),
    ]
    work = of("aten::_cudnn_rnn", *inputs)
    assert work.flops == 2 * 6 * (60 + 75)
    assert work.output == (3, 2, 5)
    assert work.bytes == (24 + 60 + 75 + 10 + 30) * 4
    both = of("aten::_cudnn_rnn", inputs[0], *inputs[1:5], *inputs[1:5], ([2, 2, 5], F32))
    assert both.output == (3, 2, 10)
    backward = of("aten::_cudnn_rnn_backward", *inputs, ([3, 2, 5], F32), ([3, 2, 5], F32))
    assert backward.flops == 2 * work.flops
    # x, weights, h0, output and its gradient in; gradients of x, weights and h0 out
    assert backward.bytes == (24 + 135 + 10 + 30 + 30 + 24 + 135 + 10) * 4


def test_an_rnn_by_the_arguments_of_cudnn() -> None:
    arguments = {
        "mode": "GRU",
        "layers": "1",
        "input": "4",
        "hidden": "5",
        "sequence": "3",
        "batch": "2",
        "type": "HALF",
    }
    work = rnn_work(arguments, "cudnnRNNForward")
    assert work
    assert (work.flops, work.bytes, work.dtype) == (2 * 6 * 135, (135 + 6 * 9) * 2, "float16")
    assert rnn_work({"mode": "GRU"}, "cudnnRNNForward") is None


def test_a_gemm_by_the_arguments_of_cublas() -> None:
    work = gemm_work({"m": "4", "n": "6", "k": "5"}, "cublasSgemm_v2")
    assert work
    assert (work.bytes, work.flops) == (296, 240)
    typed = gemm_work(
        {"m": "4", "n": "6", "k": "5", "batchCount": "3", "Atype": "R_16BF"}, "cublasGemmStridedBatchedEx"
    )
    assert typed
    assert (typed.bytes, typed.flops, typed.dtype) == (444, 720, "bfloat16")
    by_letter = gemm_work({"m": "4", "n": "6", "k": "5"}, "cublasCgemm_v2")
    by_type = gemm_work({"m": "4", "n": "6", "k": "5", "Atype": "CUDA_C_32F"}, "cublasGemmEx")
    assert by_letter == by_type
    assert by_letter
    assert (by_letter.bytes, by_letter.flops, by_letter.dtype) == (592, 960, "complex64")
    assert gemm_work({"m": "4"}, "cublasSgemv_v2") is None
    assert gemm_work({"m": "4", "n": "6", "k": "5"}, "cublasLtMatmul") is None


CONVOLUTION = [([2, 3, 8, 8], F32), ([16, 3, 3, 3], F32)]


def test_a_convolution_needs_the_shape_of_its_output() -> None:
    assert work_of("aten::cudnn_convolution", rows(*CONVOLUTION)) is None
    outputs = {((2, 3, 8, 8), (16, 3, 3, 3)): (2, 16, 8, 8)}
    work = work_of("aten::cudnn_convolution", rows(*CONVOLUTION), outputs)
    assert work
    assert work.flops == 2 * (2 * 16 * 64) * 27
    assert work.bytes == (384 + 432 + 2048) * 4
    assert "backward" in work.note


def test_pooling_needs_the_shape_of_its_output() -> None:
    x = ([2, 3, 8, 8], F32)
    outputs = {
        ("max_pool2d_with_indices", (2, 3, 8, 8)): (2, 3, 4, 4),
        ("adaptive_avg_pool2d", (2, 3, 8, 8)): (2, 3, 1, 1),
    }
    work = work_of("aten::max_pool2d_with_indices", rows(x), outputs)
    assert work
    assert (work.bytes, work.output) == (384 * 4 + 96 * (4 + 8), (2, 3, 4, 4))
    average = work_of("aten::_adaptive_avg_pool2d", rows(x), outputs)
    assert average
    assert average.bytes == (384 + 6) * 4
    assert work_of("aten::avg_pool2d", rows(x), outputs) is None


def test_backward_of_pooling_reads_no_input() -> None:
    small, x, places = ([2, 3, 4, 4], F32), ([2, 3, 8, 8], F32), ([2, 3, 4, 4], I64)
    work = of("aten::max_pool2d_with_indices_backward", small, x, places)
    assert work.bytes == 96 * (4 + 8) + 384 * 4
    assert of("aten::_adaptive_avg_pool2d_backward", ([2, 3, 1, 1], F32), x).bytes == (6 + 384) * 4


def test_outputs_of_pooling_come_from_backward_calls() -> None:
    builder = TraceBuilder()
    signature = builder.signature(([2, 3, 4, 4], F32), ([2, 3, 8, 8], F32), ([2, 3, 4, 4], I64))
    builder.calls(hop("aten::max_pool2d_with_indices_backward", "CUDA", inputs=signature))
    signature = builder.signature(([2, 3, 1, 1], F32), ([2, 3, 8, 8], F32))
    builder.calls(hop("aten::_adaptive_avg_pool2d_backward", "CUDA", inputs=signature))
    trace = builder.trace()
    signatures = {
        key[0]: table.to_dicts() for key, table in trace.signatures.partition_by("id", as_dict=True).items()
    }
    assert outputs_of_backward(trace.hops, signatures) == {
        ("max_pool2d_with_indices", (2, 3, 8, 8)): (2, 3, 4, 4),
        ("adaptive_avg_pool2d", (2, 3, 8, 8)): (2, 3, 1, 1),
    }


NO_OUTPUT = "its output's shape would be known from backward calls that agree on it, and there are none"


@pytest.mark.parametrize(
    ("op", "tensors", "why"),
    [
        (None, [], "outside ops"),
        ("aten::add.Tensor", [], "no shapes recorded"),
        (
            "aten::_foreach_add_.List",
            [([4], F32)] * 64,
            "64 tensors or more; only the first are recorded",
        ),
        ("aten::cudnn_convolution", CONVOLUTION, NO_OUTPUT),
        ("aten::max_pool2d_with_indices", [([4], F32)], NO_OUTPUT),
        ("aten::cudnn_convolution_transpose", CONVOLUTION, "no rule for the op"),
        ("aten::convolution_backward", [([2, 4, 8, 8], F32), *CONVOLUTION], "its shapes do not tell"),
        ("aten::mm", [([4, 5], F32)], "its shapes do not tell"),
        ("my::op", [([4], F32)], "no rule for the op"),
        ("my::sum", [([4], F32)], "no rule for the op"),
    ],
)
def test_why_work_is_unknown(op: str | None, tensors: list[Any], why: str) -> None:
    assert why_unknown(op, rows(*tensors)) == why


def test_a_known_output_is_not_why_work_is_unknown() -> None:
    outputs = {((2, 3, 8, 8), (16, 3, 3, 3)): (2, 3, 8, 8)}  # transposed: channels that do not fit
    assert work_of("aten::convolution", rows(*CONVOLUTION), outputs) is None
    assert why_unknown("aten::convolution", rows(*CONVOLUTION), outputs) == "its shapes do not tell"


def test_a_convolution_of_complex_numbers() -> None:
    inputs = [(shape, C64) for shape, _ in CONVOLUTION]
    outputs = {((2, 3, 8, 8), (16, 3, 3, 3)): (2, 16, 8, 8)}
    work = work_of("aten::convolution", rows(*inputs), outputs)
    assert work
    assert work.flops == 8 * (2 * 16 * 64) * 27


def test_backward_convolution() -> None:
    work = of("aten::convolution_backward", ([2, 16, 8, 8], F32), *CONVOLUTION)
    assert work.flops == 2 * 2 * (2 * 16 * 64) * 27
    assert work.bytes == (2048 + 2 * (384 + 432)) * 4


def test_outputs_of_convolutions_come_from_backward_calls_that_agree() -> None:
    builder = TraceBuilder()

    def backward(output: list[int], weight: list[int]) -> None:
        signature = builder.signature((output, F32), ([2, 3, 8, 8], F32), (weight, F32))
        builder.calls(hop("aten::convolution_backward", "CUDA", inputs=signature))

    backward([2, 16, 8, 8], [16, 3, 3, 3])
    backward([2, 16, 8, 8], [16, 3, 3, 3])
    backward([2, 16, 8, 8], [16, 3, 1, 1])
    backward([2, 16, 4, 4], [16, 3, 1, 1])
    trace = builder.trace()
    signatures = {
        key[0]: table.to_dicts() for key, table in trace.signatures.partition_by("id", as_dict=True).items()
    }
    assert outputs_of_backward(trace.hops, signatures) == {((2, 3, 8, 8), (16, 3, 3, 3)): (2, 16, 8, 8)}


@pytest.mark.parametrize(
    ("op", "tensors"),
    [
        ("my::op", [([4], F32)]),
        ("my::sum", [([4], F32)]),
        ("my::convolution_backward", [([2, 16, 8, 8], F32), *CONVOLUTION]),
        ("aten::mm", [([4, 5], F32)]),
        ("aten::mm", [([4, 5], F32), ([6, 7], F32)]),
        ("aten::add.Tensor", [([4], F32), ([5], F32)]),
        ("aten::add.Tensor", []),
        ("aten::mm", [(None, None), ([5, 6], F32)]),
        ("aten::index.Tensor", [([4, 9], F32), ([4, 9], BOOL)]),
        ("aten::index.Tensor", [([4, 9], F32), ([3], I64)]),
        ("aten::cat", [([4], F32)] * 64),
        ("aten::max_pool2d_with_indices", [([2, 3, 8, 8], F32)]),
        ("aten::cudnn_convolution_transpose", CONVOLUTION),
        ("aten::_foreach_frobnicate_.New", [([4], F32)]),
    ],
)
def test_what_is_not_known_is_unknown(op: str, tensors: list[Any]) -> None:
    assert work_of(op, rows(*tensors)) is None
