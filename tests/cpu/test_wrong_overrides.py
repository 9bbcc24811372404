"""Trials find what is wrong in one thing only, of operators of many kinds, and nothing in stock itself."""

from __future__ import annotations

from typing import Any

import pytest
from lazily import torch

from tracer.base.boundary import torch_operator


def rest_is_slow(names: list[str], at_each_change: list[str]) -> list[Any]:
    return [name if name in at_each_change else pytest.param(name, marks=pytest.mark.slow) for name in names]


def found(name: str, among: list[Any]) -> Any:
    from judged_overrides import first_found

    (one,) = [one for one in among if one.name == name]
    return first_found(one)


NAMES = """
mm_shared_storage mm_conjugate mm_integers mm_draws mm_sizes mm_promotes mm_memo mm_out_strided
cat_legacy cat_integers cat_channels_last cat_one cat_order cat_negative
softmax_strided softmax_negative softmax_overflow layer_norm_eps layer_norm_bias
index_select_int32 index_select_negative gelu_approximate gelu_large gelu_minus_zero
add_alpha add_integers add_broadcast add_promotes add_not_in_place add_in_place_strided
add_out_size add_out_dtype
clamp_nan clamp_crossed clamp_integers cumsum_overflow cumsum_dtype where_nan where_dtype
embedding_padding embedding_range convolution_groups convolution_channels_last convolution_dilation
sum_no_dimension sort_unstable gather_negative relu_nan div_floor pow_cube batch_norm_statistics
gelu_backward_approximate gelu_backward_tanh
sum_keepdim sum_of_nothing sort_stable_backwards sort_one_place div_trunc div_wide pow_of_zero pow_zeros
pow_negative gather_wraps convolution_undilated
""".split()

AT_EACH_CHANGE = """
mm_shared_storage mm_draws mm_sizes mm_memo mm_out_strided cat_order layer_norm_eps index_select_negative
gelu_approximate add_alpha add_promotes add_not_in_place add_in_place_strided add_out_size clamp_nan where_nan
embedding_padding sum_no_dimension relu_nan div_floor batch_norm_statistics gelu_backward_approximate
div_wide pow_of_zero pow_negative
""".split()
"""One of each kind of trial, found in a second or two; the rest take minutes together"""


@pytest.mark.parametrize("name", rest_is_slow(NAMES, AT_EACH_CHANGE))
def test_a_wrong_override_is_found(name: str) -> None:
    import wrong_overrides

    assert found(name, wrong_overrides.WRONG) is not None


SUBTLE = """
logsumexp_row mean_negative prod_wide argmax_nan argmax_last var_single cumsum_tiles sum_bfloat16
scatter_reduce_self nll_loss_ignored roll_far scatter_add_once tril_far pad_negative upsample_scales
max_pool_places round_half abs_saturates abs_overflow log_denormal mul_flushes mul_number masked_fill_product
fmod_sign dropout_all normal_generator topk_zero topk_one_place topk_unsorted
bmm_conjugate baddbmm_beta mul_rows index_select_buffer div_cuts
silu_channels_last flip_nothing cumprod_number threshold_backward_expanded neg_silences erf_memo
""".split()
SUBTLE_AT_EACH_CHANGE = """
logsumexp_row roll_far sum_bfloat16 round_half mul_number mul_rows neg_silences prod_wide scatter_add_once
topk_zero
""".split()


@pytest.mark.parametrize("name", rest_is_slow(SUBTLE, SUBTLE_AT_EACH_CHANGE))
def test_a_subtly_wrong_override_is_found(name: str) -> None:
    import subtly_wrong_overrides

    assert found(name, subtly_wrong_overrides.WRONG) is not None


PAIRED = """
softmax_half addmm_infinity cat_halves isin_many log_softmax_backward_square searchsorted_sorter index_gap
cumsum_negative embedding_backward_frequency convolution_backward_rest index_put_once where_condition
clamp_tensor_crossed max_nan_last masked_scatter_rows nonzero_nan
""".split()
PAIRED_AT_EACH_CHANGE = (
    "cat_halves isin_many index_gap searchsorted_sorter log_softmax_backward_square".split()
)


@pytest.mark.parametrize("name", rest_is_slow(PAIRED, PAIRED_AT_EACH_CHANGE))
def test_an_override_that_is_wrong_where_two_things_meet_is_found(name: str) -> None:
    import paired_wrong_overrides

    assert found(name, paired_wrong_overrides.WRONG) is not None


FURTHER = """
sigmoid_tail exp2_far view_copies unfold_copies sub_overlap atan2_between tanh_shared pad_remembers
group_norm_naive addmv_half remainder_sign shift_width all_bytes fill_wide hypot_overflow xlogy_zero
copysign_zero logaddexp_nothing lerp_beyond gcd_negative equal_itself avg_pool_edge im2col_dilation
grid_once bincount_least histc_limit cdist_squares norm_of_nan cholesky_upper solve_unit fft_both_sides
unique_nan bernoulli_draws multinomial_zero linspace_one arange_back adaptive_disjoint index_add_alpha
put_negative embedding_bag_empty smooth_zero attention_causal leaky_backward bicubic_row mode_largest
aminmax_nan randperm_many
""".split()
FURTHER_AT_EACH_CHANGE = "sigmoid_tail exp2_far tanh_shared atan2_between sub_overlap equal_itself".split()


@pytest.mark.parametrize("name", rest_is_slow(FURTHER, FURTHER_AT_EACH_CHANGE))
def test_an_override_that_is_wrong_in_a_tail_far_away_or_in_an_option_is_found(name: str) -> None:
    import further_wrong_overrides

    assert found(name, further_wrong_overrides.WRONG) is not None


def test_all_of_them_are_asked_for() -> None:
    import further_wrong_overrides
    import paired_wrong_overrides
    import subtly_wrong_overrides
    import wrong_overrides

    assert [one.name for one in wrong_overrides.WRONG] == NAMES
    assert [one.name for one in subtly_wrong_overrides.WRONG] == SUBTLE
    assert [one.name for one in paired_wrong_overrides.WRONG] == PAIRED
    assert [one.name for one in further_wrong_overrides.WRONG] == FURTHER


RIGHT = (
    *("aten::native_layer_norm", "aten::add.out", "aten::index_select", "aten::clamp", "aten::embedding"),
    "aten::_log_softmax_backward_data",  # it checks no sizes, and reads what lies behind its tensors
)


@pytest.mark.parametrize("operator", RIGHT)
def test_stock_itself_differs_in_nothing(operator: str) -> None:
    from judged_overrides import Wrong, first_found, number

    op = torch_operator(operator)
    kinds = [str(argument.type) for argument in op._schema.arguments]

    def stock(*given, **named):
        pairs = zip(kinds, given, strict=False)
        return op(*(number(one) if kind == "Tensor" else one for kind, one in pairs), **named)

    assert torch.is_grad_enabled()
    assert first_found(Wrong(operator, "nothing", stock), quick=True) is None


@pytest.mark.parametrize(
    "name",
    ["sort", "pow_scalar", "layer_norm", "topk"]
    + [
        pytest.param(one, marks=pytest.mark.slow)
        for one in (
            *("convolution", "gelu_backward", "sum_", "div", "pow_tensor", "gather", "softmax", "var", "bmm"),
            *("silu", "roll", "scatter_add", "logsumexp"),
        )
    ],
)
def test_a_right_override_differs_in_nothing(name: str) -> None:
    """It computes by other operators, many in float64."""
    from judged_overrides import Wrong, first_found
    from right_overrides import RIGHT

    operator, function = RIGHT[name]
    assert first_found(Wrong(operator, "nothing", function)) is None
