"""Which kinds of op calls of two traces are the same, what is behind a change, and what a ratio can say."""

from __future__ import annotations

from collections import Counter

import pytest

from tracer.analysis.difference import Change, Kind
from tracer.analysis.difference.alignment import aligned
from tracer.analysis.difference.causes import causes
from tracer.analysis.difference.kinds import Key
from tracer.analysis.difference.times import Both, times_by_name, times_of

NOTHING = Both(times_of([], []), times_of([], []))


def kind(line: str, text: str, op: str = "aten::mm", module: str = "", chain: str = "mm") -> Kind:
    return Kind(
        line=line,
        text=text,
        op=op,
        backward=False,
        modules=frozenset([module] if module else []),
        calls=1,
        first_ns=0,
        chains=Counter({chain: 1}),
        inputs={},
        step_ns=[],
        gpu_ns=[],
    )


def side(*kinds: Kind) -> dict[Key, Kind]:
    return {(one.file, one.text, one.op, one.backward): one for one in kinds}


def pairs(before: dict[Key, Kind], after: dict[Key, Kind]) -> list[tuple[str | None, str | None]]:
    return [
        (one and f"{one.line} {one.text}", other and f"{other.line} {other.text}")
        for one, other in aligned(before, after)
    ]


def test_a_line_that_moved() -> None:
    found = pairs(side(kind("a.py:3", "y = x @ w")), side(kind("a.py:9", "y = x @ w")))
    assert found == [("a.py:3 y = x @ w", "a.py:9 y = x @ w")]


def test_a_copied_file_is_found_by_what_it_has_in_common() -> None:
    before = side(kind("a.py:1", "x"), kind("a.py:2", "y"), kind("lib.py:1", "z"))
    after = side(kind("b.py:1", "x"), kind("b.py:2", "y"), kind("b.py:3", "new one"), kind("lib.py:1", "z"))
    assert pairs(before, after) == [
        ("a.py:1 x", "b.py:1 x"),
        ("a.py:2 y", "b.py:2 y"),
        ("lib.py:1 z", "lib.py:1 z"),
        (None, "b.py:3 new one"),
    ]


def test_another_file_stays_another_file() -> None:
    before = side(*(kind(f"a.py:{line}", f"text {line}") for line in range(5)))
    after = side(kind("b.py:1", "text 1"), *(kind(f"b.py:{line}", f"other {line}") for line in range(2, 6)))
    assert all(None in pair for pair in aligned(before, after))


def test_an_edited_line_by_its_module_and_by_its_text() -> None:
    before = side(kind("a.py:1", "out = net(x)", module="net.0"), kind("a.py:2", "loss = out.mm(w)"))
    after = side(
        kind("a.py:1", "anything else", module="net.0"),
        kind("a.py:2", "loss = out.mm(w).detach()"),
        kind("a.py:3", "q"),
    )
    assert pairs(before, after) == [
        ("a.py:1 out = net(x)", "a.py:1 anything else"),
        ("a.py:2 loss = out.mm(w)", "a.py:2 loss = out.mm(w).detach()"),
        (None, "a.py:3 q"),
    ]
    apart = pairs(side(kind("a.py:1", "out = net(x)")), side(kind("a.py:1", "w.zero_grad_of_all()")))
    assert apart == [("a.py:1 out = net(x)", None), (None, "a.py:1 w.zero_grad_of_all()")]


def change(before: str, after: str, *what: str) -> Change:
    return Change(kind("a.py:1", "x", chain=before), kind("a.py:1", "x", chain=after), what, NOTHING)


def test_causes_in_their_order() -> None:
    changes = [
        change(
            "aten::mm [CPU] mm\n  kernel_64x64_align4",
            "aten::mm [AutocastCPU] f (override mine)\n  kernel_64x64_align1",
            "dtype 0: float32 -> 0: bfloat16",
            "another chain",
        ),
        change("a", "a", "stride 0: 4x1 -> 0: 1x4"),
        change("a", "a", "stride 0: 4x1 -> 0: 1x4"),
    ]
    found = causes(changes, {"threads": (4, 1)}, {"torch": ("2.11", None), "platform": ("a", "b")}, (0, 8))
    assert found == [
        "threads 4 -> 1",
        "torch 2.11 -> unknown",
        "torch.compile only after (8 calls of compiled code)",
        "stride of inputs differs in 2 kinds of op calls",
        "dtype of inputs differs in 1 kind of op calls",
        "override mine only after",
        "key CPU only before",
        "key AutocastCPU only after",
        "alignment that a kernel needs align4 -> align1",
    ]
    assert causes([change("tensorop_align4", "simt_align1")], {}, {}, (3, 5)) == []


def test_the_chains_that_are_shown_differ() -> None:
    both, only_before, only_after = "a", "b", "c"
    one, other = kind("a.py:1", "x"), kind("a.py:1", "x")
    one.chains.clear(), other.chains.clear()
    one.chains.update({both: 9, only_before: 1})
    other.chains.update({both: 9, only_after: 1})
    assert Change(one, other, (), NOTHING).chains == (only_before, only_after)
    assert Change(one, one, (), NOTHING).chains == (both, both)
    assert Change(None, other, ("new",), NOTHING).chains is None


@pytest.mark.parametrize(
    ("after", "verdict"), [([200] * 9, "slower"), ([50] * 9, "faster"), ([60, 100, 190], "no change")]
)
def test_verdicts(after: list[int], verdict: str) -> None:
    ratio = times_of([100] * 9, after).ratio
    assert ratio is not None
    assert ratio.verdict == verdict


def test_two_steps_have_no_ratio_and_names_are_in_the_order_of_change() -> None:
    assert times_of([1, 1], [2, 2, 2]).ratio is None
    assert times_of([0, 0, 0], [2, 2, 2]).ratio is None
    host = ({"a": [10], "b": [100], "c": [5]}, {"a": [12], "b": [150], "c": [5]})
    gpu = ({"c": [0]}, {"c": [30]})
    found = times_by_name(host, gpu)
    assert list(found) == ["b", "c", "a"]
    assert (found["c"].gpu.after, found["a"].gpu.after) == (30, None)
