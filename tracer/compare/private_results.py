"""Results that are between a kernel and its own backward: another kernel may keep other things there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRIVATE: Mapping[str, frozenset[int]] = {
    "aten::_cudnn_rnn": frozenset({3, 4}),
    "aten::miopen_rnn": frozenset({3, 4}),
    "aten::mkldnn_rnn_layer": frozenset({3}),
    "aten::_thnn_fused_gru_cell": frozenset({1}),
    "aten::_thnn_fused_lstm_cell": frozenset({2}),
    "aten::cudnn_batch_norm": frozenset({3}),
    "aten::_batch_norm_with_update": frozenset({3}),
    "aten::_batch_norm_with_update_functional": frozenset({3}),
    "aten::_batch_norm_no_update": frozenset({3}),
}
"""Operator -> positions of its results that only its backward reads (torch's derivatives.yaml): a reserve,
a workspace, weights in another layout. Their form and values are no promise of the operator."""


_STATISTICS: Mapping[str, frozenset[int]] = {
    name: frozenset({1, 2})
    for name in ("aten::native_layer_norm", "aten::native_group_norm", "aten::native_batch_norm")
}
"""Means and deviations, which the backward pass reads: the mean of infinity is infinity, or NaN"""


def statistics_of(op: Any) -> frozenset[int]:
    """Positions of results in which NaN and infinity are the same."""
    return _STATISTICS.get(str(getattr(getattr(op, "_schema", None), "name", "")), frozenset())


class _Seen:
    """An operator that returns what its callers may look at."""

    def __init__(self, op: Any, private: frozenset[int]) -> None:
        self._op, self._private = op, private

    def __call__(self, *positional: Any, **named: Any) -> Any:
        results = self._op(*positional, **named)
        return tuple(one for place, one in enumerate(results) if place not in self._private)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def seen(op: Any) -> Any:
    """A function or an operator of torch.ops, without its results that only its backward reads."""
    private = PRIVATE.get(str(getattr(getattr(op, "_schema", None), "name", "")), frozenset())
    return _Seen(op, private) if private and not isinstance(op, _Seen) else op
