"""Results that only an operator's backward reads: an override may keep other things there."""

from __future__ import annotations

from tracer.compare.private_results import PRIVATE, seen
from tracer.compare.trial_samples import USUAL, Sample


def test_each_is_a_result_of_an_operator_that_torch_has() -> None:
    import torch

    for name, places in PRIVATE.items():
        op = getattr(torch.ops.aten, name.removeprefix("aten::")).default
        assert all(0 < place < len(op._schema.returns) for place in places), name


def test_a_trial_does_not_see_them() -> None:
    import torch

    x, one = torch.rand(2, 3, 4), torch.ones(3)
    operands = [x, one, one * 0, one * 0, one.clone(), 0.1, 1e-5]
    op = torch.ops.aten._batch_norm_with_update.default
    assert len(op(*operands)) == 4
    sample = Sample(USUAL, "", lambda: (operands, {}), op)
    for one_of_it in (sample, sample.titled(USUAL, "again", sample.make)):
        assert len(one_of_it.call(*operands)) == 3
        assert one_of_it.call._schema is op._schema


def test_other_operators_and_functions_are_as_they_were() -> None:
    import torch

    for op in (torch.ops.aten.native_batch_norm.default, torch.ops.aten.mm.default, torch.mm):
        assert seen(op) is op
