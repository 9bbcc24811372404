"""Makes the tensors of a replay. The source of the functions is part of scripts that `--script` writes."""

from __future__ import annotations

from typing import Any


def tensor(size: Any, stride: Any, dtype: Any, device: str = "cpu", below: int = 2) -> Any:
    import torch

    length = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if all(size) else 0  # noqa: B905
    if dtype.is_floating_point or dtype.is_complex:
        flat = torch.randn(length, dtype=torch.complex64 if dtype.is_complex else torch.float32)
    else:
        flat = torch.randint(0, 2 if dtype == torch.bool else below, (length,))
    return flat.to(device, dtype).as_strided(size, stride)


def fitted(values: Any, fit: str) -> Any:
    import torch

    once = values[tuple(slice(0, None if step else 1) for step in values.stride())]  # not expanded
    for kind, *bounds in map(str.split, fit.split(", ")):
        wide = once if once.is_complex() else once.double()
        one = torch.eye(wide.shape[-1] if wide.ndim else 0).to(wide)
        if kind == "between":  # the error function makes normal numbers uniform
            low, high = map(float, bounds)
            wide = low + (high - low) * (1 + (wide / 2**0.5).erf()) / 2
        elif kind == "least":
            wide = wide.clamp(min=float(bounds[0]))
        elif kind == "definite":
            wide = wide @ wide.mH + len(one) * one
        elif kind in ("lower", "upper"):
            wide = one + (wide.tril(-1) if kind == "lower" else wide.triu(1)) / len(one)
        elif kind in ("sorted", "descending"):
            wide = wide.sort(descending=kind == "descending").values
        elif kind == "first":
            wide[..., 0] = float(bounds[0])
        once.copy_(wide)
    return values
