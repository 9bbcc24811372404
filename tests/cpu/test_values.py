"""What a recording with hashes of values says of the results of op calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from recorded import recorded_values

TYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def clones(folder: Path, tensors: list[Any]) -> pl.DataFrame:
    """For a clone of each tensor, in their order: hash, nan and infinite."""
    return recorded_values(folder, lambda: [tensor.clone() for tensor in tensors], "aten::clone")


@pytest.mark.parametrize("dtype", TYPES)
def test_a_nan_and_an_infinity_are_seen_in_each_type(tmp_path: Path, dtype: str) -> None:
    import torch

    of = getattr(torch, dtype)
    largest, smallest = torch.finfo(of).max, torch.finfo(of).tiny
    values = [largest, -largest, smallest / 2, float("nan"), float("inf"), -float("inf")]
    found = clones(tmp_path, [torch.tensor([1.0, value, 0.0], dtype=of) for value in values])
    assert found["nan"].to_list() == [False] * 3 + [True, False, False]
    assert found["infinite"].to_list() == [False] * 4 + [True, True]


def test_numbers_without_such_values_have_none(tmp_path: Path) -> None:
    import torch

    found = clones(
        tmp_path, [torch.full((3,), -1, dtype=getattr(torch, name)) for name in ("int16", "int64")]
    )
    assert found.select("nan", "infinite").rows() == [(False, False)] * 2


def test_the_last_element_of_a_large_or_strided_tensor_counts(tmp_path: Path) -> None:
    import torch

    large, strided = torch.zeros(10_001), torch.zeros(70, 50).t()
    large[-1] = strided[-1, -1] = float("nan")
    found = clones(tmp_path, [large, strided, strided[:-1, :-1]])
    assert found["nan"].to_list() == [True, True, False]


def test_a_hash_is_that_of_the_values_and_not_of_their_places(tmp_path: Path) -> None:
    import torch

    made = torch.arange(6000.0).view(60, 100)
    changed = made.clone()
    changed[-1, -1] += 1
    found = clones(tmp_path, [made, made.t().contiguous().t(), changed, made.double(), made.view(100, 60)])
    first, strided, *others = found["hash"].to_list()
    assert strided == first
    assert len({first, *others}) == 4, "another value, dtype or shape"
