"""Names are demangled in a process of its own."""

from __future__ import annotations

from tracer.analysis.device_kernels import short_device_kernel


def test_a_name_that_no_demangler_reads() -> None:
    """libstdc++'s gives up on mangled names of more than 1,024 characters, as CUTLASS has them."""
    shape = "NS_4gemm9GemmShapeILi64ELi128ELi16EEE"
    inner = f"NS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistageI{shape}"
    words = "NS4_52Conv2dWgradOutputGradientTileAccessIteratorOptimizedENS_10tfloat32_tE"
    name = f"_ZN17cutlass__5x_cudnn6KernelI{inner}{words}{'NS_9transformES3_' * 80}EEEvNT_6ParamsE"
    assert len(name) > 1024
    assert short_device_kernel(name) == "ImplicitGemmConvolution<wgrad, 64x128x16, tf32>"
    long = "_ZN3own6kernels5scaleI" + "f" * 1100 + "EEvPfi"
    assert short_device_kernel(long) == "scale"
