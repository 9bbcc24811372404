"""Calls of the overrides on small shapes, for compute-sanitizer, which makes everything slow:

    compute-sanitizer --tool memcheck --error-exitcode 1 python override_small_shapes.py mm cat gru

and with --tool racecheck and --tool synccheck. test_override_sanitizer.py runs it.
"""

from __future__ import annotations

import sys

import torch
from gru_reference import PRECISIONS, Sample, Shape, check
from override_calls import random, switched_on


def mm() -> None:
    """Every plan of every dtype and layout; sizes that leave tiles, vectors and warps partly empty."""
    with switched_on("mm") as overrides:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for m, k, n in (
                (1, 40, 70),
                (3, 100, 33),
                (13, 72, 130),
                (30, 65, 40),
                (70, 200, 129),
                (128, 64, 65),
            ):
                for transposed in (False, True):
                    a = random(m, k, dtype=dtype)
                    b = random(n, k, dtype=dtype).t() if transposed else random(k, n, dtype=dtype)
                    bias = random(n, dtype=dtype)
                    for allowed in (False, True):
                        torch.backends.cuda.matmul.allow_tf32 = allowed
                        for plan in overrides.mm_plans(a, b):
                            overrides.pin_mm_plan(plan)
                            torch.addmm(bias, a, b)
        overrides.pin_mm_plan(None)
        assert not any(overrides.handed_over("mm").values())


def cat() -> None:
    """Aligned and not, few pieces and many, narrow and wide."""
    with switched_on("cat") as overrides:
        for widths in ((4, 8), (1, 2, 3), (33, 64, 7, 5), (5,) * 20, (3, 16) * 30):
            for dtype in (torch.float32, torch.bfloat16, torch.uint8):
                for rows in (1, 7):
                    torch.cat([random(rows, width, dtype=dtype) for width in widths], 1)
                    torch.cat([random(rows, width + 3, dtype=dtype)[:, 1 : 1 + width] for width in widths], 1)
        assert not any(overrides.handed_over("cat").values())


def gru() -> None:
    """Clusters of one block, two and eight; a single time step; a kernel for each time step; odd sizes."""
    shapes = [
        Shape(3, 5, 10, 24, bidirectional=True),
        Shape(2, 9, 16, 64, layers=2),
        Shape(2, 3, 7, 130),
        Shape(1, 20, 33, 40),
        Shape(2, 4, 8, 520),
    ]
    with switched_on("gru") as overrides:
        for precision in PRECISIONS:
            for shape in shapes:
                sample = Sample(shape, precision)
                check(sample, sample.gradients(), sample.expected())
            for tile in range(4):
                overrides.pin_gru_step_tile(tile)
                sample = Sample(shapes[3], precision)
                check(sample, sample.forward(), sample.expected())
            overrides.pin_gru_step_tile(-1)
        assert not any(overrides.handed_over("gru").values())


if __name__ == "__main__":
    for name in sys.argv[1:]:
        {"mm": mm, "cat": cat, "gru": gru}[name]()
    torch.cuda.synchronize()
    print("done", *sys.argv[1:])
