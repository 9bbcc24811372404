"""Experiments as data: what would be run to measure a gain. `tracer.experiments` runs them."""

from __future__ import annotations

from dataclasses import dataclass

Sized = tuple[tuple[int, ...], str]
"""Shape and dtype of a tensor"""


@dataclass(frozen=True)
class Recorded:
    """Recorded op calls, each as it was and with a change.

    calls   rows of `trace.hops`, one of each kind of call; `ns` what all of its kind take of a step, and
            `times` how many they are
    change  `threads`, `channels_last`, `dtype`, `tf32` or `no_grad`, and `to`: its value
    """

    calls: tuple[int, ...]
    ns: tuple[float, ...]
    times: tuple[float, ...]
    change: str
    to: str


@dataclass(frozen=True)
class OptimizerStep:
    """A step of torch.optim's optimizer `name` for parameters of these sizes, as it was and `to`.

    `now` and `to` are `foreach=False`, `foreach=True` or `fused=True`; `ops`: what a step ran, in order.
    """

    name: str
    ops: tuple[str, ...]
    parameters: tuple[Sized, ...]
    device: str
    now: str
    to: str


@dataclass(frozen=True)
class WorkerBatch:
    """A batch of these tensors from one worker process, asked for every `pause_ns`."""

    tensors: tuple[Sized, ...]
    pause_ns: float


@dataclass(frozen=True)
class SparseTable:
    """A step of an embedding of `rows` x `width` for `indices` rows: dense gradients, or sparse.

    `name`, `ops` and `now` of its optimizer are those of OptimizerStep; `times`: tables of this size a step.
    """

    name: str
    ops: tuple[str, ...]
    now: str
    times: float
    rows: int
    width: int
    indices: int
    dtype: str
    device: str


@dataclass(frozen=True)
class Attention:
    """matmul, softmax, matmul of (shape, stride) of each operand, or scaled_dot_product_attention.

    times    how many a step has
    mask     name of the op that masks the scores, shape and dtype of the mask; None: nothing does
    scaled   the scores are multiplied or divided
    dropout  the weights have one
    """

    query: tuple[tuple[int, ...], tuple[int, ...]]
    key: tuple[tuple[int, ...], tuple[int, ...]]
    value: tuple[tuple[int, ...], tuple[int, ...]]
    dtype: str
    device: str
    times: float
    mask: tuple[str, tuple[int, ...], str] | None
    scaled: bool
    dropout: bool
    backward: bool


Experiment = Recorded | OptimizerStep | WorkerBatch | SparseTable | Attention
