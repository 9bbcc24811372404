"""Events of recordings with `--values scalars`: which tensors hops get and return."""

from __future__ import annotations

from synthetic import Lane


def passed(lane: Lane, *tensors: tuple[int, int | None], at: int | None = None) -> None:
    """To the hop that is entered next: of each tensor its storage (0: not known) and its version."""
    for storage, version in tensors:
        lane._event(11, 1 << 62 | storage | (0 if version is None else version + 1) << 38, brief=True, at=at)


def returned(lane: Lane, signature: int, *tensors: tuple[int, int | None], count: int | None = None) -> None:
    """By the hop that was left last."""
    tick = lane._event(12, signature | (len(tensors) if count is None else count) << 32, brief=True)
    passed(lane, *tensors, at=tick)
