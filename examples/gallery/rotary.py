"""Rotary embedding: a query turned by its position meets a key turned by its own.

    python examples/gallery/rotary.py
    tracer record examples/gallery/rotary.py

Feature i is paired with feature i + half, and each pair is turned by an angle that grows with the position,
more slowly for later pairs. The scalar product of a turned query and a turned key then depends on the
distance of their positions alone: move both on by one, and nothing changes. Pairs (0, 1), (2, 3)... work
too, but angles and pairs must have the same layout: with the angles of the first layout and the pairs of the
second the score depends on the position itself.

Look at `rotate_half`: two slices, which are views, and `aten::neg` and `aten::cat`, which write. The whole
rotation is two products, a sum, and no matrix product at all, beside the cosines and sines of the angles,
which a model computes once. Its line ran 6 times, so the tree shows 12 products there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]
POSITIONS, WIDTH = 64, 32


def angles(positions: int, width: int) -> Tensor:
    """(positions, width / 2): the angle of each pair of features at each position."""
    speeds = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.outer(torch.arange(positions, dtype=torch.float64), speeds)


def rotate_half(x: Tensor) -> Tensor:
    """(a, b) -> (-b, a), where a is the first half of the features and b the second."""
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], dim=-1)


def rotate_neighbours(x: Tensor) -> Tensor:
    """The same with features 0 and 1, 2 and 3... as pairs."""
    return torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)


def turn(x: Tensor, rotate: Function, layout: Function) -> Tensor:
    """x (positions, width), each row turned by its position; `layout` spreads the angles over features."""
    angle = layout(angles(*x.shape))
    return x * angle.cos() + rotate(x) * angle.sin()


def halves(angle: Tensor) -> Tensor:
    return torch.cat([angle, angle], dim=-1)


def neighbours(angle: Tensor) -> Tensor:
    return angle.repeat_interleave(2, dim=-1)


def change_of_scores(rotate: Function, layout: Function) -> float:
    """How much a score changes, at most, when query and key both move on by one position."""
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, WIDTH, dtype=torch.float64, generator=generator)
    queries = turn(query.expand(POSITIONS, WIDTH), rotate, layout)
    keys = turn(key.expand(POSITIONS, WIDTH), rotate, layout)
    scores = torch.mm(queries, keys.t())  # of a query at position i and a key at position j
    return (scores[1:, 1:] - scores[:-1, :-1]).abs().max().item()


def main() -> None:
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    for name, rotate, layout in [
        ("halves, angles in halves", rotate_half, halves),
        ("neighbours, angles of neighbours", rotate_neighbours, neighbours),
        ("neighbours, angles in halves", rotate_neighbours, halves),
    ]:
        change = change_of_scores(rotate, layout)
        verdict = "depends on the distance alone" if change < 1e-9 else "depends on the position too"
        print(f"{name}: the score {verdict} (changes by {change:.1e})")


if __name__ == "__main__":
    main()
