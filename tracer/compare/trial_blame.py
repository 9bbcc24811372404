"""Whether what is wrong is the override's: stock may hold by chance, and may write behind its tensors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

from tracer.compare.forks import Done, Ended, Waits, end_of, in_forks
from tracer.compare.outcomes import Story, difference, promised
from tracer.compare.trial_samples import Sample, tensors_in
from tracer.compare.trial_stories import Tell, plain


@dataclass(frozen=True)
class Trial:
    """A call, and what is done with it."""

    kind: str
    sample: Sample
    tell: Tell = plain


_OFTEN, _MOST_BEFORE = 20, 100
_SECONDS = 0.5
"""For the calls of stock that are made again"""


def still_wrong(trial: Trial, device: str, stock: Story, override: Story, wide: Callable[[], Story]) -> str:
    """The difference that is left if stock makes the call many times more; "": none.

    Two calls of a kernel whose threads race may agree by chance.
    """
    end = time.process_time() + _SECONDS
    said = difference(stock, stock, override, wide)
    for number in range(_OFTEN):
        if not said or (number > 1 and time.process_time() > end):
            break
        with suppress(Exception):
            stock = promised(stock, trial.tell(trial.sample, device, 1))
        said = difference(stock, stock, override, wide)
    return said


def reads_beyond(trial: Trial, device: str) -> bool:
    """Whether stock reads memory behind a tensor, as a kernel does that checks no sizes."""
    ends = [replace(trial.sample, behind=value) for value in (0, 1)]
    try:
        first, *others = (trial.tell(sample, device, 1) for sample in ends)
    except Exception:
        return False
    return any(difference(first, first, other) for other in others)


def ends_with_stock(trials: Sequence[Trial], device: str) -> bool:
    """Whether stock alone ends a process by these calls, the last one many times.

    A process goes on for a while after a kernel has written behind a tensor.
    """

    def make() -> None:
        for trial in [*trials[-_MOST_BEFORE:], *[trials[-1]] * _OFTEN]:
            for then in (1, 2):
                with suppress(Exception):
                    trial.tell(trial.sample, device, then)

    return bool(end_of(make))


def writing_beyond(trials: Sequence[Trial]) -> Trial | None:
    """The first of them with which stock writes to memory that is not its own, or ends its process."""
    with closing(in_forks(len(trials), lambda place: _writes_beyond(trials[place].sample))) as made:
        for place, found in made:
            if isinstance(found, Waits):
                return None
            if isinstance(found, Ended) or (isinstance(found, Done) and found.result):
                return trials[place]
    return None


_FILLED, _CALLS, _FIRST, _BETWEEN = 0x5A, 16, 64, 4
_BLOCK, _LARGEST_BLOCK, _ALIGNED, _STEP = 1 << 10, 1 << 14, 64, 16
"""Bytes: between two calls, of tensors, where a tensor begins, and where memory may"""
_MOST_FREE, _IN_A_ROW = 1 << 26, 16
"""Bytes taken at most, and tensors, until new ones lie one behind the other"""


def _until_in_a_row(size: int) -> list[Any]:
    """Tensors that take what is free between others, so that the next one lies behind the last."""
    import torch

    taken: list[Any] = []
    last, step, in_a_row = 0, 0, 0
    while in_a_row < _IN_A_ROW and len(taken) * size < _MOST_FREE:
        taken.append(torch.empty(size, dtype=torch.uint8))
        now = taken[-1].data_ptr()
        in_a_row = in_a_row + 1 if now - last == step else 0
        last, step = now, now - last
    return taken


def _writes_beyond(sample: Sample) -> bool:
    """Its tensors and results lie between blocks, which must stay as they are."""
    import torch

    try:
        operands = sample.make()
        results = tensors_in(sample.call(*operands[0], **operands[1]))
    except Exception:
        return False
    strided = [one for one in (*tensors_in(operands), *results) if str(one.layout) == "torch.strided"]
    known = {one.untyped_storage().nbytes() for one in strided if one.device.type == "cpu"}
    sizes = [size for size in known if 0 < size <= _LARGEST_BLOCK]

    def filled(size: int) -> Any:
        return torch.full((size,), _FILLED, dtype=torch.uint8)

    kept: list[Any] = [operands, results, *map(_until_in_a_row, sorted({_BLOCK, *sizes}, reverse=True))]
    around = [filled(size) for size in sizes for _ in range(_FIRST)]
    for call in range(_CALLS):
        # a tensor begins at a multiple of _ALIGNED: at one of these lengths right behind the block
        block = _BLOCK + call * _STEP % _ALIGNED
        kept.append(sample.make())
        around += [filled(block) for _ in range(_BETWEEN)]
        with suppress(Exception):
            kept.append(sample.call(*kept[-1][0], **kept[-1][1]))
        around += [filled(block) for _ in range(_BETWEEN)]
    return not all(bool((block == _FILLED).all()) for block in around)
