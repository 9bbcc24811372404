"""Short names of device kernels."""

from __future__ import annotations

import pytest

from tracer.analysis.device_kernels import short_device_kernel, table_name

_LAMBDA = "{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}"
_COPY = f"at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{_LAMBDA}"
_ARRAY = "std::array<char*, 3ul>"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
            f"{_ARRAY} >(int, at::native::CUDAFunctor_add<float>, {_ARRAY})",
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
        ),
        (
            f"void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<{_COPY}>"
            f"(at::TensorIteratorBase&, {_COPY} const&)::{{lambda(int)#1}}>(int, int)",
            "elementwise_kernel<128, 2, direct_copy_kernel_cuda>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda"
            f"(at::TensorIteratorBase&)::{_LAMBDA}, {_ARRAY} >(int)",
            "vectorized_elementwise_kernel<4, tanh_kernel_cuda>",
        ),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::FillFunctor<c10::BFloat16>, "
            "std::array<char*, 1ul>, 4, TrivialOffsetCalculator<0, unsigned int>, "
            "at::native::memory::LoadWithoutCast>(int)",
            "unrolled_elementwise_kernel<FillFunctor<bf16>, 4>",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t"
            "<float, at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)"
            "::{lambda(float, float)#1}>, unsigned int, float, 4, 4> >(int)",
            "reduce_kernel<512, 1, sum_functor<float>>",
        ),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<"
            "at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, 2, 128, 1>(int)",
            "CatArrayBatchedCopy_aligned16_contig<OpaqueType<4>, 2, 128, 1>",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>"
            "(cutlass_80_simt_sgemm_128x32_8x5_nn_align1::Params)",
            "cutlass_80_simt_sgemm_128x32_8x5_nn_align1",
        ),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, false, 7, "
            "cublasGemvParamsEx<int> >(cublasGemvParamsEx<int>)",
            "gemvx::kernel<float, false, 7>",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 5, false, false>(float*)",
            "softmax_warp_forward<float, 5, false, false>",
        ),
        ("cudapy::__main__::axpy[abi:v1,cw51cXTLSUwv1](float, Array<float, 1, C, mutable, aligned>)", "axpy"),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
            "at::native::(anonymous namespace)::TensorListMetadata<1>, "
            "at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 1, 1, 0>, "
            "std::multiplies<float>, float*, float>(int)",
            "multi_tensor_apply_kernel<BinaryOpScalarFunctor<float, 1>, multiplies<float>, float>",
        ),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("sm80_xmma_gemm_f32f32_nn_n_tilesize32x32x8", "sm80_xmma_gemm_f32f32_nn_n_tilesize32x32x8"),
        ("_Z6vecaddPfi", "vecadd"),
        ("memcpy HtoD (pinned -> device)", "memcpy HtoD (pinned -> device)"),
        ("broken<(", "broken"),
        ("", ""),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_device_kernel(name) == short


@pytest.mark.parametrize(
    ("short", "shown"),
    [
        (
            "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32"
            "_warpgroupsize1x1x1_g1_execute_segment_k_on_kernel__5x_cudnn",
            "sm90_xmma_wgrad_indexed tf32 nhwc 128x64x32 segment-k on",
        ),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4"
            "_execute_split_k_kernel__5x_cublas",
            "sm80_xmma_gemm f32 tn n 64x64x8 ffma split-k",
        ),
        (
            "sm90_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize64x64x64_execute_kernel__5x_cublas",
            "sm90_xmma_gemm f16 nn n 64x64x64",
        ),
        (
            "multi_tensor_apply_kernel<PointwiseOpScalarListFunctor<float, 3>, divides<float>>",
            "multi_tensor_apply_kernel<PointwiseOpScalarListFunctor<float, 3>, divides>",
        ),
        (
            "multi_tensor_apply_kernel<BinaryOpListAlphaFunctor<float, 2>, plus<float>, float>",
            "multi_tensor_apply_kernel<BinaryOpListAlphaFunctor<float, 2>, plus>",
        ),
        ("nvjet_sm90_hsh_64x48_64x15_2x4_h_bz_NNT", "nvjet_sm90_hsh_64x48_64x15_2x4_h_bz_NNT"),
        ("reduce_kernel<512, 1, sum_functor<float>>", "reduce_kernel<512, 1, sum_functor<float>>"),
    ],
)
def test_names_in_tables(short: str, shown: str) -> None:
    assert table_name(short) == shown


@pytest.mark.parametrize("name", ["_Z" + "9" * 5000, "ReduceOp<" * 900, "a<{lambda" * 900])
def test_a_name_of_no_function_stays(name: str) -> None:
    """The lengths in a mangled one may have any number of digits, and templates any depth."""
    assert short_device_kernel(name) == name


def test_a_kernel_without_a_name_has_one_in_tables() -> None:
    assert table_name(None) == "?"
