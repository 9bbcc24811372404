"""The least time that a GPU allows for a case."""

from __future__ import annotations

import pytest
from cuda_frames import H200

from tracer.analysis.work import Work
from tracer.compare.cases import STRICT, TF32, Case
from tracer.compare.roof import BYTES, CpuRoof, GpuRoof, limit_of

SQUARE = ((4096, 4096), (4096, 4096))
FLOPS = 2 * 4096**3
MOVED = 3 * 4096**2


def roof(**measured: float) -> GpuRoof:
    device = {"process": 0, "device": 0, "name": "NVIDIA H200", **H200}
    return GpuRoof(device, measured.get("bandwidth"), measured.get("flops"))


def product(dtype: str, item: int) -> Work:
    return Work("GEMM", MOVED * item, FLOPS, dtype, (4096, 4096), matrix=True)


@pytest.mark.parametrize(
    ("dtype", "item", "mode", "unit", "rate"),
    [
        ("float32", 4, STRICT, "fp32 cores", 256),
        ("float32", 4, TF32, "TF32 tensor", 2048 * 1.83 / 1.98),
        ("bfloat16", 2, "", "16-bit tensor", 4096 * 1.83 / 1.98),
    ],
)
def test_a_large_product_is_limited_by_the_unit_that_computes(
    dtype: str, item: int, mode: str, unit: str, rate: float
) -> None:
    limit = limit_of(roof(), Case("mm", "mm", SQUARE, dtype, mode), product(dtype, item))
    assert limit is not None
    assert limit.by == unit
    assert limit.ns == pytest.approx(FLOPS / (132 * 1.98e9 * rate) * 1e9)


def test_one_row_is_limited_by_the_bytes_of_the_weight() -> None:
    work = Work("GEMM", 4 * (1536 + 1536 * 5893 + 5893), 2 * 1536 * 5893, "float32", (1, 5893), matrix=True)
    limit = limit_of(roof(), Case("mm", "mm", ((1, 1536), (1536, 5893)), mode=STRICT), work)
    assert limit is not None
    assert limit.by == BYTES
    assert limit.ns == pytest.approx(work.bytes / 4.8e12 * 1e9)  # type: ignore[operator]
    assert limit.in_cache  # 36 MB of 50


def test_measured_peaks_take_the_place_of_the_data_sheet() -> None:
    case = Case("cat", "cat", SQUARE, dim=0)
    work = Work("cat", 4 * MOVED, 0, "float32")
    limit = limit_of(roof(bandwidth=4.3e12), case, work)
    assert limit is not None
    assert limit.ns == pytest.approx(4 * MOVED / 4.3e12 * 1e9)
    assert not limit.in_cache
    assert "as measured by the user" in roof(bandwidth=4.3e12).source
    assert "4.8 TB/s" in roof().source


def test_nothing_is_said_where_nothing_is_known() -> None:
    case = Case("mm", "mm", SQUARE, mode=STRICT)
    assert limit_of(roof(), case, None) is None
    assert limit_of(GpuRoof({"name": "a GPU"}, None, None), case, product("float32", 4)) is None


def test_figures_of_a_cpu_that_the_user_gives() -> None:
    case = Case("mm", "mm", SQUARE)
    limit = limit_of(CpuRoof(bandwidth=1e10, flops=1e11), case, product("float32", 4))
    assert limit is not None
    assert limit.ns == pytest.approx(FLOPS / 1e11 * 1e9)
    assert limit.by == "float32 operations"
