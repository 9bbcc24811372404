"""Calls that reach every kernel of the overrides with as little work as it takes, for compute-sanitizer:

    compute-sanitizer --tool memcheck --error-exitcode 1 python override_small_shapes.py mm gru mm_groups

and with --tool racecheck and --tool synccheck, under which a kernel takes a hundred times as long.
test_override_sanitizer.py runs it. Results are not looked at: other tests do that. Inputs come from the
CPU, so that few kernels run that are not the overrides'.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from types import ModuleType

import torch

sys.path.append(str(Path(__file__).parents[1]))  # lazily

from gru_reference import (
    PRECISIONS,
    STRICT,
    Sample,
    Shape,
    precision,
    results_and_gradients,
)
from override_calls import DEVICE, random, switched_on

WARP_GROUPS = 6  # the tile of a single time step that has them


def mm() -> None:
    """Every tile of every dtype and layout of the weight, once in one block without loads of 16 bytes,
    once with them in a cluster (or with warps that share the inner dimension). Sizes leave tiles,
    vectors and warps partly empty."""
    splits, reached = cycle((2, 4, 8)), set()
    with switched_on("mm") as overrides:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for tf32 in (False, True)[: 2 if dtype == torch.float32 else 1]:
                torch.backends.cuda.matmul.allow_tf32 = tf32
                for transposed in (False, True):
                    for columns in (70, 50, 30, 13, 7, 3, 2, 1):
                        for vectors in (False, True):
                            k, n = (72, 136) if vectors else (65, 129)
                            a = random(columns, k, dtype=dtype)
                            b = random(n, k, dtype=dtype).t() if transposed else random(k, n, dtype=dtype)
                            bias = random(n, dtype=dtype)
                            for tile, possible in tiles(overrides.mm_plans(a, b)).items():
                                if (dtype, tile, transposed, vectors) in reached:
                                    continue
                                reached.add((dtype, tile, transposed, vectors))
                                wanted = next(splits) if vectors else 1
                                split = max(one for one in possible if one <= wanted)
                                overrides.pin_mm_plan(tile + (f" split {split}" if split > 1 else ""))
                                if vectors:
                                    torch.mm(b.t(), a.t())
                                else:
                                    torch.addmm(bias, a, b)
        overrides.pin_mm_plan(None)
        assert overrides.ran("mm")["aten::mm"] + overrides.ran("mm")["aten::addmm"] == len(reached)
        assert not any(overrides.handed_over("mm").values()), overrides.handed_over("mm")


def tiles(plans: list[str]) -> dict[str, list[int]]:
    """Tiles such as "ffma 64x32", and how many parts the inner dimension can be split into."""
    found: dict[str, list[int]] = {}
    for plan in plans:
        tile, _, split = plan.partition(" split ")
        found.setdefault(tile, []).append(int(split or 1))
    return found


def cat() -> None:
    """Tables of each size; runs that have 16, 8, 4, 2 bytes or one in common."""
    with switched_on("cat") as overrides:
        for pieces in (2, 7, 40):
            for unit in (16, 8, 4, 2, 1):
                widths = [unit * (1 + 2 * (piece % 3)) for piece in range(pieces)]
                for rows in (1, 7, 300):
                    torch.cat([bytes_of(rows, width) for width in widths], 1)
                torch.cat([bytes_of(7, width + 3 * unit)[:, unit : unit + width] for width in widths], 1)
        for dtype in (torch.float32, torch.bfloat16):
            torch.cat([random(7, width, dtype=dtype) for width in (33, 64, 7, 5)], 1)
        assert not any(overrides.handed_over("cat").values()), overrides.handed_over("cat")


def bytes_of(rows: int, width: int) -> torch.Tensor:
    return torch.empty(rows, width, dtype=torch.uint8, device=DEVICE)


def gru() -> None:
    """Sequences in clusters of each size, with each tile, and in all blocks together; single time steps with
    each tile; a kernel for each time step; layers, directions, no biases; products with each tile. Sizes
    are odd."""
    processors = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    with switched_on("gru") as overrides:
        for name in PRECISIONS:
            for shape in (
                Shape(3, 5, 10, 24, bidirectional=True),  # clusters of one block
                Shape(2, 9, 16, 64, layers=2),  # of two
                Shape(2, 3, 7, 24, bias=False),
                Shape(1, 20, 33, 40),
                Shape(2, 4, 8, 520),  # too large for clusters
                Shape(2, 4, 8, 768),  # and for all blocks together
                Shape(2, 40, 8, 768),
                # A tile of 128 x 64 of products for each multiprocessor (rows times 2 columns of tiles), and
                # four of 128 x 128 (rows times 1).
                Shape(2, 64 * -(-processors // 2), 65, 16, bidirectional=True),
                Shape(2, 64 * 4 * processors, 33, 16),
                # The same tiles with rows of whole 16 bytes, which the copy engine brings.
                Shape(2, 64 * -(-processors // 2), 40, 16),
                Shape(2, 70, 8, 1024),  # all blocks together, 128 sequences
            ):
                call(shape, name)
            for _ in pinned_step_tiles(overrides):
                call(Shape(1, 20, 33, 40), name, gradients=False)
                call(Shape(1, 70, 40, 48), name, gradients=False)
            overrides.pin_gru_step_tile(-1)
            for batch in (1, 2):
                call(Shape(1, batch, 33, 40), name, gradients=False)
            for pass_ in ("forward", "backward"):
                reached: set[tuple[str, int]] = set()
                for plan in overrides.gru_plans(pass_, {STRICT: "float32"}.get(name, name), 100):
                    parts = set(zip(("cluster", "units", "tile"), plan, strict=True))
                    if parts <= reached:
                        continue
                    reached |= parts
                    overrides.pin_gru_plan(pass_, plan)
                    call(Shape(2, 19, 6, 100), name, gradients=pass_ == "backward")
                overrides.pin_gru_plan(pass_, None)
        assert not any(overrides.handed_over("gru").values()), overrides.handed_over("gru")


def mm_groups() -> None:
    """Products by warp groups, with more slabs than there are stages: every plan in one part and in two."""
    with switched_on("mm") as overrides:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for tf32 in (False, True)[: 2 if dtype == torch.float32 else 1]:
                torch.backends.cuda.matmul.allow_tf32 = tf32
                for transposed in (False, True):
                    for columns in (70, 50, 30, 13, 7):
                        a, b = random(columns, 1608, dtype=dtype), random(1608, 136, dtype=dtype)
                        b = random(136, 1608, dtype=dtype).t() if transposed else b
                        for plan in overrides.mm_plans(a, b):
                            tile, _, split = plan.partition(" split ")
                            if "-groups " in tile and split in ("", "2"):
                                overrides.pin_mm_plan(plan)
                                torch.mm(a, b)
        overrides.pin_mm_plan(None)
        assert not any(overrides.handed_over("mm").values()), overrides.handed_over("mm")


def gru_groups() -> None:
    """GRUs that need more than a little work: products by warp groups, all blocks together with 128
    sequences, and single time steps by warp groups in clusters of each size."""
    processors = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    with switched_on("gru") as overrides:
        for name in PRECISIONS:
            if name == STRICT:
                continue
            call(Shape(2, 64 * -(-processors // 2), 40, 16), name)
            call(Shape(2, 70, 8, 1024), name)
            overrides.pin_gru_step_tile(WARP_GROUPS)
            for batch, units in ((20, 48), (70, 48), (130, 48), (128, 512)):
                call(Shape(1, batch, 1544, units), name, gradients=False)
            overrides.pin_gru_step_tile(-1)
        assert not any(overrides.handed_over("gru").values()), overrides.handed_over("gru")


def pinned_step_tiles(overrides: ModuleType) -> Iterator[int]:
    """Each tile of a single time step, pinned."""
    for tile in count():
        try:
            overrides.pin_gru_step_tile(tile)
        except ValueError:  # it names the tiles that there are
            return
        yield tile


def call(shape: Shape, name: str, *, gradients: bool = True) -> None:
    sample = Sample(shape, name, device="cpu")
    with torch.backends.cudnn.flags(enabled=False):  # which would copy the weights together
        module = sample.module.to(DEVICE)
    tensors = (sample.x, sample.hx, sample.grad_output, sample.grad_hy)
    x, hx, grad_output, grad_hy = (tensor.to(DEVICE) for tensor in tensors)
    with precision(name):
        if gradients:
            results_and_gradients(module, x, hx, shape, grad_output, grad_hy)
        else:
            with torch.no_grad():
                module(x, hx)


if __name__ == "__main__":
    for which in sys.argv[1:]:
        {"mm": mm, "cat": cat, "gru": gru, "mm_groups": mm_groups, "gru_groups": gru_groups}[which]()
    torch.cuda.synchronize()
    print("done", *sys.argv[1:])
