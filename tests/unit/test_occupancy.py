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


DATA_SHEETS = [
    # name, capability, multiprocessors, MHz at most; TFLOP/s: fp32, fp64 tensor, TF32, 16 bits, 8 bits
    ("NVIDIA H200", (9, 0), 132, 1980, (67, 67, 494.7, 989.4, 1978.9)),
    ("NVIDIA H100 80GB HBM3", (9, 0), 132, 1980, (67, 67, 494.7, 989.4, 1978.9)),
    ("NVIDIA H100 PCIe", (9, 0), 114, 1755, (51.2, 51.2, 378, 756, 1513)),
    ("NVIDIA H100 NVL", (9, 0), 132, 1785, (60, 60, 417.5, 835.5, 1670.5)),
    ("NVIDIA H20", (9, 0), 78, 1980, (39.5, 39.5, 74, 148, 296)),
    ("NVIDIA B200", (10, 0), 148, 1980, (75, 37.5, 1125, 2250, 4500)),
    ("NVIDIA B300 SXM6 AC", (10, 3), 148, 1980, (75, None, 1125, 2250, 4500)),
    ("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1410, (19.5, 19.5, 156, 312, None)),
    ("NVIDIA A10", (8, 6), 72, 1695, (31.2, None, 62.5, 125, None)),
    ("NVIDIA L4", (8, 9), 58, 2040, (30.3, None, 60, 121, 242)),
    ("NVIDIA L40", (8, 9), 142, 2490, (90.5, None, 90.5, 181, 362)),
    ("NVIDIA L40S", (8, 9), 142, 2520, (91.6, None, 183, 366, 733)),
    ("NVIDIA GeForce RTX 4090", (8, 9), 128, 2520, (82.6, None, 82.6, 165.2, 660.6)),
    ("NVIDIA GeForce RTX 5090", (12, 0), 170, 2407, (104.8, None, 104.8, 209.5, 838)),
    ("Orin", (8, 7), 16, 1300, (5.3, None, None, 42.5, None)),
    ("Tesla V100-SXM2-16GB", (7, 0), 80, 1530, (15.7, None, None, 125, None)),
    ("Tesla T4", (7, 5), 40, 1590, (8.1, None, None, 65, None)),
]


@pytest.mark.parametrize(("name", "capability", "count", "clock", "sheet"), DATA_SHEETS)
def test_peaks_are_those_of_the_data_sheets(
    name: str, capability: tuple[int, int], count: int, clock: int, sheet: tuple[float | None, ...]
) -> None:
    limits = Limits.of(
        {
            "name": name,
            "computeCapabilityMajor": capability[0],
            "computeCapabilityMinor": capability[1],
            "numMultiprocessors": count,
            "coreClockRate": clock * 1000,
        }
    )
    units = ("fp32 cores", "fp64 tensor", "TF32 tensor", "16-bit tensor", "8-bit tensor")
    for unit, tflops in zip(units, sheet, strict=True):
        if tflops is not None:
            assert limits.flops_per_s[unit] == pytest.approx(tflops * 1e12, rel=0.015), unit


def test_the_bandwidth_is_that_which_the_device_names() -> None:
    assert Limits.of({"name": "NVIDIA H200", **H200}).bytes_per_s == 4.8e12


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
