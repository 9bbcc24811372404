"""Bytes of ops against what real ops read and write: the dtype of what they make, and inputs that overlap."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

from lazily import torch

from tracer.analysis import dtypes, op_rules
from tracer.analysis.work import Tensor

DTYPES = (
    *("float32", "bfloat16", "complex64", "int64", "uint8", "bool"),
    *("float64", "float16", "complex128", "int8", "int16", "int32"),
)
ONLY_IN_PLACE_OR_ON_GPUS = {"masked_scale", "glu_jvp", "native_dropout"}


def test_real_ops_write_and_read_what_is_said() -> None:
    from compared_work import compare_samples

    # torch looks through the stack for each sample, which takes 20 times as long below pytest-xdist.
    with ThreadPoolExecutor(1) as thread:
        mode = thread.submit(compare_samples).result()
    assert not mode.wrong, "\n".join(sorted(mode.wrong))
    rules = {*op_rules.POINTWISE, *op_rules.TO_FLOATS, *op_rules.COMPARISONS}
    rules |= {"abs", "angle", "where", "masked_fill", "cat", "cumsum"}
    assert rules - mode.compared <= ONLY_IN_PLACE_OR_ON_GPUS


def test_dtypes_together_are_those_of_torch() -> None:
    for a, b in itertools.product(DTYPES, repeat=2):
        promoted = torch.promote_types(getattr(torch, a), getattr(torch, b))
        assert f"torch.{dtypes.promote(a, b)}" == str(promoted), (a, b)


def test_places_that_overlap_count_once() -> None:
    from compared_work import places, row

    picker = random.Random(3)
    image = torch.zeros(2, 3, 9, 10)
    views = [image.unfold(2, 3, step).unfold(3, size, 2) for step in (1, 2, 3, 4) for size in (1, 2, 5)]
    views += [image.unfold(3, 4, 1), image.expand(5, 2, 3, 9, 10), image[:, :, ::2, 1:], image[0, 0, :0]]
    views += [image.as_strided((2, 2), (0, 0)), torch.zeros(())]
    for _ in range(300):  # any strides
        shape = [picker.randint(1, 4) for _ in range(picker.randint(1, 4))]
        views.append(
            torch.zeros(400).as_strided(shape, [picker.choice((0, 1, 2, 3, 4, 6, 12)) for _ in shape])
        )
    exact = 0
    for view in views:
        said, true = Tensor.of(row(view)), places(view)
        assert said is not None
        assert true <= said.elements <= view.numel(), (view.shape, view.stride())
        exact += said.elements == true
    assert exact >= 0.9 * len(views)
    for view in views[:18]:
        said = Tensor.of(row(view))
        assert said is not None
        assert said.elements == places(view), (view.shape, view.stride())
