"""The built-in cases: data that every part of a comparison knows how to read."""

from __future__ import annotations

import warnings
from math import isfinite

import pytest

from tracer.compare.bounds import allowance, bound_of
from tracer.compare.cases import CASES, CPU, CUDA, FAMILIES, STRICT, TF32, Case, cases_of
from tracer.compare.workload import without_warnings


def test_every_family_has_cases_for_a_gpu_and_for_the_cpu() -> None:
    assert FAMILIES == ("mm", "gru", "cat")
    for family in FAMILIES:
        assert cases_of(family, CUDA)
        assert cases_of(family, CPU)


def test_names_tell_cases_apart() -> None:
    for device in (CUDA, CPU):
        names = [case.name for family in FAMILIES for case in cases_of(family, device)]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_has_bounds(case: Case) -> None:
    outputs = ["result"] if case.family != "gru" else ["output", "h_n", *(["grad x"] * case.backward)]
    for output in outputs:
        bound = bound_of(case, output)
        if case.op == "cat":
            assert bound is None
        else:
            assert bound is not None
            assert isfinite(bound.relative) or isfinite(bound.largest)


@pytest.mark.parametrize("case", cases_of("mm", CUDA) + cases_of("mm", CPU), ids=lambda case: case.name)
def test_shapes_of_products_go_together(case: Case) -> None:
    (_, inner), (other, _) = case.shapes
    assert inner == other


def test_fp32_on_a_gpu_says_how_it_is_computed() -> None:
    for family in ("mm", "gru"):
        for case in cases_of(family, CUDA):
            assert (case.mode in (STRICT, TF32)) == (case.dtype == "float32"), case.name


def test_the_cases_of_the_goals_are_there() -> None:
    names = [case.name for family in FAMILIES for case in cases_of(family, CUDA)]
    for wanted in (
        "gru fp32 TF32 T32 B64 I256 H512",
        "gru fp32 TF32 T1 B1 I1536 H512",
        "gru fp32 TF32 T1 B64 I1536 H512",
        "gru fp32 TF32 T1 B128 I1536 H512",
        "mm fp32 strict 8x1536 1536x5893, weight transposed",
        "mm fp32 strict 64x1536 1536x5893, weight transposed",
        "mm fp32 strict 128x1536 1536x5893, weight transposed",
        "mm fp32 strict 1x1536 1536x5893, weight transposed",
        "mm bf16 1x1536 1536x5893, weight transposed",
        "cat fp32 2 x 64x512, dim 1",
        "cat fp32 4 x 64x512, dim 1",
        "cat fp32 2 x 4096x4096, dim 0",
        "cat bf16 2 x 4096x4097, dim 1",
    ):
        assert wanted in names


def test_cases_are_chosen_by_words_in_their_names() -> None:
    chosen = cases_of("gru", CUDA, ["t1 b64"])
    assert [case.name for case in chosen] == [
        "gru fp32 TF32 T1 B64 I1536 H512",
        "gru bf16 T1 B64 I1536 H512",
        "gru fp32 TF32 T1 B64 I1536 H512, forward and backward",
    ]
    assert cases_of("gru", CUDA, ["no such"]) == []


def test_bounds_follow_precision() -> None:
    def relative(dtype: str, mode: str) -> float:
        bound = bound_of(Case("mm", "mm", ((8, 64), (64, 8)), dtype, mode), "result")
        assert bound is not None
        return bound.relative

    tightest_first = [
        ("float64", ""),
        ("float32", STRICT),
        ("float16", ""),
        ("float32", TF32),
        ("bfloat16", ""),
    ]
    bounds = [relative(*one) for one in tightest_first]
    assert bounds == sorted(bounds)
    assert relative("float32", "") == relative("float32", STRICT)


def test_the_allowance_beside_stock() -> None:
    assert allowance(1.0, 0.1) == pytest.approx(0.45)  # twice stock and a quarter of the bound
    assert allowance(1.0, 0.9) == 1.0  # never over the bound
    assert allowance(1.0, 5.0) == 1.0  # a stock that exceeds the bound loosens nothing


def test_the_warning_of_stock_about_weights_is_left_out_and_no_other() -> None:
    apart = "RNN module weights are not part of single contiguous chunk of memory. This means they need to"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with without_warnings():
            warnings.warn(apart, stacklevel=1)
            warnings.warn("another", stacklevel=1)
        warnings.warn(apart, stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["another", apart]
