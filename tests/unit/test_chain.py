"""Dispatch chains: their text, what is folded, and what two of them have in common."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from tracer.analysis.chain import Chain, Link, Pair, align, diff, first_difference, folded, shape, within
from tracer.analysis.chain import likeness as likenesses

LINKS = st.builds(
    Link,
    level=st.just(0),
    kind=st.sampled_from(["call", "redispatch", "library", "kernel"]),
    op=st.sampled_from(["aten::mm", "aten::add", "cublasSgemm_v2"]),
    key=st.sampled_from(["", "CPU", "AutogradCPU"]),
    kernel=st.sampled_from(["", "wrapper_CPU_mm", "mine.mm"]),
    most=st.integers(1, 2),
)
CHAINS = st.lists(LINKS, max_size=7)

MM = Link(0, "call", "aten::mm", "AutogradCPU", "VariableType::mm")
STOCK_MM = Link(0, "redispatch", "aten::mm", "CPU", "wrapper_CPU_mm")
OWN_MM = Link(0, "redispatch", "aten::mm", "CPU", "mine.mm")
EMPTY = Link(0, "call", "aten::new_empty", "CPU", "wrapper_new_empty")
CONJ = Link(0, "call", "aten::resolve_conj", "CPU", "wrapper_resolve_conj")


def likeness(one: Link, other: Link) -> int:
    return int(likenesses([one], [other])[0, 0])


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
    assert [pair.one for pair in pairs if pair.one is not None] == list(range(len(stock)))
    assert [pair.other for pair in pairs if pair.other is not None] == list(range(len(override)))


@given(CHAINS, CHAINS)
def test_lines_are_the_same_where_they_are_equal_and_pairs_are_alike(
    stock: list[Link], override: list[Link]
) -> None:
    for pair in align(stock, override):
        if pair.one is None or pair.other is None:
            assert not pair.same
            continue
        assert pair.same == (stock[pair.one] == override[pair.other])
        assert likeness(stock[pair.one], override[pair.other]) > 0


@given(CHAINS, CHAINS)
def test_no_other_alignment_is_more_alike(stock: list[Link], override: list[Link]) -> None:
    reached = sum(
        likeness(stock[pair.one], override[pair.other])
        for pair in align(stock, override)
        if pair.one is not None and pair.other is not None
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
    assert likeness(Link(0, "library", "mm"), Link(0, "call", "mm")) == 0


def test_long_chains_that_have_nothing_in_common() -> None:
    left = [Link(0, "call", f"a::{i % 50}") for i in range(600)]
    right = [Link(0, "call", f"b::{i % 50}") for i in range(700)]
    assert len(align(left, right)) == 1300


def chain(*lines: str) -> Chain:
    """Links of lines that are indented by two spaces a level."""
    return tuple(Link.read((len(line) - len(line.lstrip())) // 2, line.strip()) for line in lines)


def lines(chain: Chain) -> list[str]:
    return [link.line for link in chain]


WRITTEN = (
    "aten::mm [AutogradCPU] VariableType::mm",
    "  -> aten::mm [CPU] at::native::(anonymous namespace)::f<int [2]> raises",
    "    2 x library cublasSgemm_v2",
    "    2..4 x GPU void gemm<float, 4>(float [4])",
    "    wait cudaStreamSynchronize",
    "  compiled kernel triton_poi_fused_0",
    "  call of forward (model.py:3)",
)


def test_the_text_of_a_link_is_read_as_it_is_written() -> None:
    assert lines(chain(*WRITTEN)) == list(WRITTEN)
    assert [link.kind for link in chain(*WRITTEN)] == [
        *("call", "redispatch", "library", "kernel", "wait", "compiled kernel", "")
    ]


@given(
    st.builds(
        Link,
        level=st.just(0),
        kind=st.just("call"),
        op=st.sampled_from(["a::b", "a::c.out"]),
        key=st.sampled_from(["CPU", "AutogradCPU"]),
        kernel=st.text("a [x]()<>", max_size=9),
    )
)
def test_what_is_written_is_read(link: Link) -> None:
    assert Link.read(0, link.line.rstrip()).line == link.line.rstrip()


def test_neighbours_of_one_shape_are_one_with_their_counts() -> None:
    assert lines(folded(chain("a", "  b", "  c", "    d", "  c", "    d", "  b"))) == [
        *("a", "  b", "  2 x c", "    d", "  b")
    ]
    assert lines(folded(chain("a", "  b", "    c", "    c", "  b", "    c", "  d"))) == [
        *("a", "  2 x b", "    1..2 x c", "  d")
    ]
    assert lines(folded(chain("a", "  b", "  b", "    c"))) == ["a", "  b", "  b", "    c"]


def test_a_deep_chain_is_folded_compared_and_written_in_linear_time() -> None:
    deep = tuple(Link(level, "call", f"a::{level % 7}") for level in range(9_000))
    assert folded(deep) == deep
    assert within(deep, deep)
    assert not list(diff(deep, deep))
    assert shape(deep) == shape(tuple(replace(link, most=3) for link in deep))


def test_a_diff_says_what_was_taken_away_before_what_was_added() -> None:
    one = chain("a", "  b", "  c", "  d", "  e", "  f", "  g", "  h", "  i", "  j", "  k")
    other = chain("a", "  x", "  y", "  c", "  d", "  e", "  f", "  g", "  h", "  i", "  k")
    assert list(diff(one, other)) == [
        *(" a", "-  b", "+  x", "+  y", "   c", "   d", " ...", "   h", "   i", "-  j", "   k")
    ]
    assert list(diff(one, one)) == []
    level = chain("a", "  b", "    c")
    assert list(diff(level, chain("a", "  b", "  c"))) == [" a", "   b", "-    c", "+  c"]
