"""Alignment of two dispatch chains: nothing lost, nothing out of order, as alike as can be."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from tracer.compare.alignment import Link, Pair, align, first_difference, likeness

LINKS = st.builds(
    Link,
    kind=st.sampled_from(["call", "redispatch", "library", "kernel"]),
    op=st.sampled_from(["aten::mm", "aten::add", "cublasSgemm_v2"]),
    key=st.sampled_from(["", "CPU", "AutogradCPU"]),
    kernel=st.sampled_from(["", "wrapper_CPU_mm", "mine.mm"]),
    count=st.integers(1, 2),
)
CHAINS = st.lists(LINKS, max_size=7)

MM = Link("call", "aten::mm", "AutogradCPU", "VariableType::mm")
STOCK_MM = Link("redispatch", "aten::mm", "CPU", "wrapper_CPU_mm")
OWN_MM = Link("redispatch", "aten::mm", "CPU", "mine.mm")
EMPTY = Link("call", "aten::new_empty", "CPU", "wrapper_new_empty")
CONJ = Link("call", "aten::resolve_conj", "CPU", "wrapper_resolve_conj")


def best_by_trying(stock: list[Link], override: list[Link]) -> int:
    """The largest sum of likeness that any alignment has."""

    @cache
    def best(i: int, j: int) -> int:
        if i == len(stock) or j == len(override):
            return 0
        paired = likeness(stock[i], override[j])
        return max(best(i + 1, j), best(i, j + 1), paired + best(i + 1, j + 1) if paired else 0)

    return best(0, 0)


@given(CHAINS, CHAINS)
def test_every_line_of_both_stands_once_and_in_order(stock: list[Link], override: list[Link]) -> None:
    pairs = align(stock, override)
    assert [pair.stock for pair in pairs if pair.stock is not None] == list(range(len(stock)))
    assert [pair.override for pair in pairs if pair.override is not None] == list(range(len(override)))


@given(CHAINS, CHAINS)
def test_lines_are_the_same_where_they_are_equal_and_pairs_are_alike(
    stock: list[Link], override: list[Link]
) -> None:
    for pair in align(stock, override):
        if pair.stock is None or pair.override is None:
            assert not pair.same
            continue
        assert pair.same == (stock[pair.stock] == override[pair.override])
        assert likeness(stock[pair.stock], override[pair.override]) > 0


@given(CHAINS, CHAINS)
def test_no_other_alignment_is_more_alike(stock: list[Link], override: list[Link]) -> None:
    reached = sum(
        likeness(stock[pair.stock], override[pair.override])
        for pair in align(stock, override)
        if pair.stock is not None and pair.override is not None
    )
    assert reached == best_by_trying(stock, override)


@given(CHAINS, CHAINS)
def test_the_first_difference_is_where_the_common_beginning_ends(
    stock: list[Link], override: list[Link]
) -> None:
    common = 0
    while common < min(len(stock), len(override)) and stock[common] == override[common]:
        common += 1
    expected = None if stock == override else common
    assert first_difference(align(stock, override)) == expected


@given(CHAINS, LINKS, st.integers(0, 7))
def test_a_line_more_is_the_only_difference(chain: list[Link], more: Link, place: int) -> None:
    longer = [*chain[:place], more, *chain[place:]]
    assert [pair.same for pair in align(chain, longer)].count(False) == 1
    assert [pair.same for pair in align(longer, chain)].count(False) == 1


def test_an_override_in_the_place_of_a_stock_kernel() -> None:
    pairs = align([MM, STOCK_MM, CONJ], [MM, OWN_MM, EMPTY, CONJ])
    assert pairs == [Pair(0, 0, True), Pair(1, 1, False), Pair(None, 2, False), Pair(2, 3, True)]
    assert first_difference(pairs) == 1


def test_another_kernel_of_the_same_op_and_key_is_more_alike_than_another_key() -> None:
    pairs = align([STOCK_MM], [MM, OWN_MM])
    assert pairs == [Pair(None, 0, False), Pair(0, 1, False)]


def test_a_library_call_never_goes_with_an_op_of_its_name() -> None:
    assert likeness(Link("library", "mm"), Link("call", "mm")) == 0


def test_long_chains_that_have_nothing_in_common() -> None:
    left = [Link("call", f"a::{i % 50}") for i in range(600)]
    right = [Link("call", f"b::{i % 50}") for i in range(700)]
    assert len(align(left, right)) == 1300
