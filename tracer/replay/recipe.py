"""Makes the tensors of a replay. The source of the function is part of the scripts that `--script` writes."""

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
