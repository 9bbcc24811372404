"""Occupancy and limits against numbers worked out by hand and known of devices."""

from __future__ import annotations

import pytest
from cuda_frames import H200

from tracer.analysis.limits import Limits, unit_of
from tracer.analysis.occupancy import Launch, occupancy

T4 = H200 | {
    "computeCapabilityMajor": 7,
    "computeCapabilityMinor": 5,
    "numMultiprocessors": 40,
    "coreClockRate": 1_590_000,
    "maxWarpsPerMultiprocessor": 32,
    "maxBlocksPerMultiprocessor": 16,
    "maxSharedMemoryPerMultiprocessor": 65_536,
}


@pytest.mark.parametrize(
    ("launch", "blocks", "share", "limited_by"),
    [
        # 8 warps a block, 64 on the multiprocessor; 32 x 32 = 1,024 registers a warp: 64 warps
        (Launch(1, 256, 32, 0), 8, 1.0, "warps"),
        # 255 x 32 = 8,160 -> 8,192 registers a warp: 8 warps, 2 blocks of 4 warps: 8 of 64
        (Launch(1, 128, 255, 0), 2, 0.125, "registers"),
        # 40 x 32 = 1,280 registers a warp: 51 warps -> 48: 6 blocks of 8 warps: 48 of 64
        (Launch(1, 256, 40, 0), 6, 0.75, "registers"),
        # 1 warp a block: 32 blocks are the most: 32 of 64
        (Launch(1, 32, 16, 0), 32, 0.5, "blocks"),
        # 100,000 + 1,024 -> 101,120 bytes a block: 2 blocks of 4 warps
        (Launch(1, 128, 32, 100_000), 2, 0.125, "shared memory"),
        # 51 warps -> 48: 16 blocks of 3 warps
        (Launch(1, 96, 40, 0), 16, 0.75, "registers"),
        # 116,000 + 1,024 -> 117,120 bytes a block: two do not fit
        (Launch(1, 128, 32, 116_000), 1, 0.0625, "shared memory"),
        # 33 threads are 2 warps: 32 blocks
        (Launch(1, 33, 16, 0), 32, 1.0, "warps"),
    ],
)
def test_on_an_h200(launch: Launch, blocks: int, share: float, limited_by: str) -> None:
    found = occupancy(launch, H200)
    assert found
    assert (found.blocks_per_multiprocessor, found.share, found.limited_by) == (blocks, share, limited_by)


def test_on_a_t4_shared_memory_has_other_units() -> None:
    # 1,000 -> 1,024 bytes a block, nothing kept: 64 blocks fit, 16 are the most
    found = occupancy(Launch(1, 64, 32, 1000), T4)
    assert found
    assert (found.blocks_per_multiprocessor, found.share) == (16, 1.0)
    assert occupancy(Launch(1, 128, 32, 17_000), T4).blocks_per_multiprocessor == 3  # type: ignore[union-attr]


def test_waves_and_tail() -> None:
    # 8 blocks x 132 multiprocessors = 1,056 places
    found = occupancy(Launch(1584, 256, 32, 0), H200)
    assert found
    assert (found.waves, found.tail_share) == (1.5, 0.5)
    whole = occupancy(Launch(2112, 256, 32, 0), H200)
    assert whole
    assert (whole.waves, whole.tail_share) == (2.0, 0.0)


def test_unknown_devices_and_impossible_launches() -> None:
    assert occupancy(Launch(1, 256, 32, 0), {}) is None
    assert occupancy(Launch(1, 256, 32, 0), H200 | {"computeCapabilityMajor": 3}) is None
    assert occupancy(Launch(1, 256, 32, 300_000), H200) is None


def test_peaks_are_those_of_the_data_sheets() -> None:
    h200 = Limits.of({"name": "NVIDIA H200", **H200})
    assert h200.bytes_per_s == 4.8e12
    assert h200.flops_per_s["fp32 cores"] == pytest.approx(67e12, rel=0.01)
    assert h200.flops_per_s["fp64 tensor"] == pytest.approx(67e12, rel=0.01)
    tensor_clock = Limits.of(H200 | {"coreClockRate": 1_830_000})
    assert tensor_clock.flops_per_s["16-bit tensor"] == pytest.approx(989e12, rel=0.01)
    assert tensor_clock.flops_per_s["TF32 tensor"] == pytest.approx(494e12, rel=0.01)
    assert Limits.of(T4).flops_per_s["16-bit tensor"] == pytest.approx(65e12, rel=0.01)
    a100 = {"computeCapabilityMajor": 8, "numMultiprocessors": 108, "coreClockRate": 1_410_000}
    assert Limits.of(a100).flops_per_s["16-bit tensor"] == pytest.approx(312e12, rel=0.01)


def test_unknown_and_measured_limits() -> None:
    nothing = Limits.of({})
    assert (nothing.bytes_per_s, nothing.flops_per_s) == (0, {})
    measured = Limits.of(dict(H200), bandwidth=4.3e12, flops=700e12)
    assert measured.bytes_per_s == 4.3e12
    assert measured.flops_per_s["16-bit tensor"] == 700e12
    assert measured.measured


@pytest.mark.parametrize(
    ("dtype", "kernel", "matrix", "unit"),
    [
        ("torch.float32", "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_ffma", True, "fp32 cores"),
        ("torch.float32", "cutlass_80_tensorop_s1688gemm_128x128", True, "TF32 tensor"),
        ("torch.float32", "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32", True, "TF32 tensor"),
        ("torch.float32", "vectorized_elementwise_kernel", False, "fp32 cores"),
        ("torch.bfloat16", "nvjet_tst_128x256", True, "16-bit tensor"),
        ("torch.bfloat16", "vectorized_elementwise_kernel", False, "fp32 cores"),
        ("torch.float64", "cutlass_80_simt_dgemm_128x64", True, "fp64 cores"),
        ("torch.float64", "cutlass_80_tensorop_d884gemm", True, "fp64 tensor"),
        ("torch.float8_e4m3fn", "nvjet_qqt", True, "8-bit tensor"),
    ],
)
def test_the_unit_that_computes(dtype: str, kernel: str, matrix: bool, unit: str) -> None:
    assert unit_of(dtype, kernel, matrix=matrix) == unit
