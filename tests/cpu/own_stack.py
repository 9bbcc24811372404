"""A module that calls itself, and the stack of the op at its end. Only functions import this module."""

from __future__ import annotations

import traceback

import torch

LINES: list[list[str]] = []


def innermost(x: torch.Tensor) -> torch.Tensor:
    frames = traceback.extract_stack()
    LINES.append([f"{frame.filename}:{frame.lineno}" for frame in reversed(frames)])
    LINES[-1][0] = f"{__file__}:{innermost.__code__.co_firstlineno + 4}"  # where the op is called
    return x.cos()


class Middle(torch.nn.Module):
    def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        return innermost(x) if depth == 0 else self(x, depth - 1)
