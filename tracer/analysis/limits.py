"""What a device can do at most: bytes and floating-point operations a second.

Bandwidth is the one that CUPTI names for the device. Operations a second are multiprocessors x
clock x the operations that one multiprocessor does in a clock (a multiply-add is two), which gives the
figures of NVIDIA's data sheets, dense and with sums in float32:

    V100 125 TFLOP/s fp16 = 80 x 1.53 GHz x 1024       A100 312 fp16 = 108 x 1.41 GHz x 2048
    H100 SXM, H200 67 fp32 = 132 x 1.98 GHz x 256      B200 75 fp32 = 148 x 1.98 GHz x 256

The clock is the device's highest. The data sheets of some devices have a lower one for tensor cores:

    H100 SXM, H200 989 fp16 = 132 x 1.83 GHz x 4096    B200 2250 fp16 = 148 x 1.86 GHz x 8192

They are a lead, not a promise: under load a device clocks below its highest rate, and no kernel reaches
all of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# compute capability -> operations a clock and multiprocessor:
# float32 and float64 on CUDA cores, float64, tf32, 16-bit and 8-bit types on tensor cores
_RATES: dict[tuple[int, int], tuple[int, int, int, int, int, int]] = {
    (7, 0): (128, 64, 0, 0, 1024, 0),
    (7, 2): (128, 4, 0, 0, 1024, 0),
    (7, 5): (128, 4, 0, 0, 1024, 0),
    (8, 0): (128, 64, 128, 1024, 2048, 0),
    (8, 6): (256, 4, 0, 512, 1024, 0),
    (8, 7): (256, 4, 0, 1024, 2048, 0),
    (8, 9): (256, 4, 0, 512, 1024, 2048),
    (9, 0): (256, 128, 256, 2048, 4096, 8192),
    (10, 0): (256, 128, 128, 4096, 8192, 16384),
    (10, 3): (256, 4, 4, 4096, 8192, 16384),
    (12, 0): (256, 4, 0, 512, 1024, 2048),
}
# What the data sheet has of TF32, 16-bit and 8-bit operations, as a share of these rates at the highest
# clock: (major number of the capability, what the name contains) -> shares; the first that fits.
_TENSOR_SHARES: tuple[tuple[int, str, tuple[float, float, float]], ...] = (
    (9, r"\bH20\b", (0.234, 0.234, 0.234)),
    (9, r"NVL", (0.866, 0.866, 0.866)),
    (9, r"", (1.83 / 1.98,) * 3),
    (10, r"", (1.86 / 1.98,) * 3),
    # half as many with sums in float32; of 8-bit types integers have all of them
    (7, r"GeForce", (1, 0.5, 1)),
    (8, r"GeForce", (0.5, 0.5, 1)),
    (8, r"\bL40\b", (0.5, 0.5, 0.5)),
    (12, r"GeForce", (0.5, 0.5, 1)),
)
_UNITS = ("fp32 cores", "fp64 cores", "fp64 tensor", "TF32 tensor", "16-bit tensor", "8-bit tensor")
_TENSOR = {
    "float64": "fp64 tensor",
    "float16": "16-bit tensor",
    "bfloat16": "16-bit tensor",
    "float8_e4m3fn": "8-bit tensor",
    "float8_e5m2": "8-bit tensor",
    "int8": "8-bit tensor",
}


@dataclass(frozen=True)
class Limits:
    """Of one device; 0 and {} where nothing is known. `flops` is by unit (`fp32 cores`, `TF32 tensor`...)."""

    name: str
    multiprocessors: int
    bytes_per_s: float
    flops_per_s: dict[str, float]
    l2_bytes: int
    measured: bool = False

    @classmethod
    def of(cls, device: dict[str, Any], bandwidth: float | None = None, flops: float | None = None) -> Limits:
        """Of a row of `devices`.

        `bandwidth` (bytes/s) and `flops` (FLOP/s, of every unit) are what the user measured instead.
        """
        number = {name: int(value or 0) for name, value in device.items() if not isinstance(value, str)}
        count = number.get("numMultiprocessors", 0)
        clock = number.get("coreClockRate", 0) * 1e3
        capability = (number.get("computeCapabilityMajor", 0), number.get("computeCapabilityMinor", 0))
        name = str(device.get("name") or "a device")
        rates = _rates(capability, name)
        peaks = {unit: flops or rate * count * clock for unit, rate in zip(_UNITS, rates, strict=True)}
        return cls(
            name=name,
            multiprocessors=count,
            bytes_per_s=bandwidth or number.get("globalMemoryBandwidth", 0) * 1e3,
            flops_per_s={unit: peak for unit, peak in peaks.items() if peak},
            l2_bytes=number.get("l2CacheSize", 0),
            measured=bool(bandwidth or flops),
        )


def _rates(capability: tuple[int, int], name: str) -> tuple[float, ...]:
    """Operations a clock and multiprocessor, by unit; 0 where nothing is known."""
    rates = _RATES.get(capability) or _RATES.get((capability[0], 0)) or (0,) * len(_UNITS)
    fitting = (
        shares for major, part, shares in _TENSOR_SHARES if major == capability[0] and re.search(part, name)
    )
    shares = next(fitting, (1, 1, 1))
    return *rates[:3], *(rate * share for rate, share in zip(rates[3:], shares, strict=True))


def unit_of(dtype: str, kernel: str, *, matrix: bool, tf32: bool = False) -> str:
    """The unit that a kernel computes on, from the inputs' dtype and the kernel's name.

    `matrix`: it multiplies matrices (GEMM, convolution, RNN, attention) and may use tensor cores.
    Of float32 inputs only names tell: "tf32", "s1688", "tensorop" and nvjet kernels do, its own or that
    of another kernel of the op call (`tf32`).
    """
    dtype = dtype.removeprefix("torch.")
    if matrix and dtype in _TENSOR:
        plain = "simt" in kernel or "ffma" in kernel or "dgemm" in kernel
        return "fp64 cores" if dtype == "float64" and plain else _TENSOR[dtype]
    if matrix and dtype in ("float32", "complex64") and (tf32 or uses_tf32(kernel)):
        return "TF32 tensor"
    return "fp64 cores" if dtype in ("float64", "complex128") else "fp32 cores"


def uses_tf32(kernel: str) -> bool:
    name = kernel.lower()
    return any(word in name for word in ("tf32", "s1688", "tensorop", "nvjet"))
