"""Which kinds of op calls of two traces are the same, what is behind a change, and what a ratio can say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tracer.analysis.chain import Chain, Link
from tracer.analysis.difference import Kind
from tracer.analysis.difference.alignment import aligned
from tracer.analysis.difference.causes import causes
from tracer.analysis.difference.change import Change, change_of
from tracer.analysis.difference.circumstances import different
from tracer.analysis.difference.kinds import Key, _order
from tracer.analysis.difference.options import options
from tracer.analysis.difference.text import without_comment
from tracer.analysis.difference.times import Both, times_by_name, times_of

NOTHING = Both(times_of([], []), times_of([], []))


MM = (Link(0, "call", "aten::mm"),)
MM_CPU = (Link(1, "redispatch", "aten::mm", "CPU"),)


def kind(line: str, text: str, op: str = "aten::mm", module: str = "", chain: Chain = MM) -> Kind:
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


def change(before: Chain, after: Chain, *what: str) -> Change:
    return Change(kind("a.py:1", "x", chain=before), kind("a.py:1", "x", chain=after), what, NOTHING)


def texts(*arguments: Any) -> list[str]:
    return [cause.text for cause in causes(*arguments)]


def test_causes_in_their_order() -> None:
    changes = [
        change(
            (Link(0, "call", "aten::mm", "CPU", "mm"), Link(1, "kernel", "kernel_64x64_align4")),
            (
                Link(0, "call", "aten::mm", "AutocastCPU", "f", "(override mine)"),
                Link(1, "kernel", "kernel_64x64_align1"),
            ),
            "dtype 0: float32 -> 0: bfloat16",
            "another chain",
        ),
        change(MM, MM, "stride 0: 4x1 -> 0: 1x4"),
        change(MM, MM, "stride 0: 4x1 -> 0: 1x4"),
    ]
    found = texts(changes, {"threads": (4, 1)}, {"torch": ("2.11", None), "platform": ("a", "b")}, (0, 8))
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
    kernels = [(Link(0, "kernel", name),) for name in ("tensorop_align4", "simt_align1")]
    assert texts([change(*kernels)], {}, {}, (3, 5)) == []


def test_the_chains_that_are_shown_differ() -> None:
    both, only_before, only_after = ((Link(0, "call", name),) for name in "abc")
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
    ratio = times_of([[100] * 9], [after]).ratio
    assert ratio is not None
    assert ratio.verdict == verdict


def test_two_steps_have_no_ratio_and_names_are_in_the_order_ofchange_of() -> None:
    assert times_of([[1, 1]], [[2, 2, 2]]).ratio is None
    assert times_of([[0, 0, 0]], [[2, 2, 2]]).ratio is None
    host = ({"a": [[10]], "b": [[100]], "c": [[5]]}, {"a": [[12]], "b": [[150]], "c": [[5]]})
    gpu = ({"c": [[0]]}, {"c": [[30]]})
    found = times_by_name(host, gpu)
    assert list(found) == ["b", "c", "a"]
    assert (found["c"].gpu.after, found["a"].gpu.after) == (30, None)


def test_a_line_counts_once_however_many_ops_its_backward_has() -> None:
    """One of two lines was edited: the other one, with fewer op calls, says that it is the same file."""
    backward = [kind("a.py:2", "m(x).sum()", f"aten::op{n}") for n in range(9)]
    edited = [kind("b.py:2", "n(y).mean()", f"aten::op{n}") for n in range(9)]
    found = pairs(side(kind("a.py:1", "x = f()"), *backward), side(kind("b.py:1", "x = f()"), *edited))
    assert found[0] == ("a.py:1 x = f()", "b.py:1 x = f()")


def test_a_line_that_got_longer_is_the_same_line() -> None:
    found = pairs(side(kind("a.py:3", "z = x.t()")), side(kind("a.py:3", "z = x.t().contiguous() * 2 + y")))
    assert found == [("a.py:3 z = x.t()", "a.py:3 z = x.t().contiguous() * 2 + y")]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a = x + y  # sum", "a = x + y"),
        ("a = '#' + y", "a = '#' + y"),
        ("a = f('#')  # '#'", "a = f('#')"),
        ("f(x,  # first", "f(x,"),
    ],
)
def test_comments_do_not_count(text: str, code: str) -> None:
    assert without_comment(text) == code


def with_inputs(**inputs: set[str]) -> Kind:
    return replace(kind("a.py:1", "y = x @ w"), inputs=inputs)


def test_strides_that_follow_from_the_shape_are_nochange_of() -> None:
    small = {"shape": {"0: 8x16"}, "stride": {"0: 16x1"}, "order": {"0: contiguous"}}
    large = {"shape": {"0: 8x18"}, "stride": {"0: 18x1"}, "order": {"0: contiguous"}}
    turned = {"shape": {"0: 8x18"}, "stride": {"0: 1x8"}, "order": {"0: [1, 0]"}}
    assert change_of(with_inputs(**small), with_inputs(**large)).what == ("shape 0: 8x16 -> 0: 8x18",)
    assert len(change_of(with_inputs(**small), with_inputs(**turned)).what) == 2
    same_shape = {**large, "stride": {"0: 36x1"}, "order": {"0: [0, 1] with holes"}}
    assert change_of(with_inputs(**large), with_inputs(**same_shape)).what == ("stride 0: 18x1 -> 0: 36x1",)


def test_shapes_that_vary_in_both_runs_are_nochange_of() -> None:
    def shapes(*numbers: int) -> Kind:
        return with_inputs(shape={f"0: {n}x16" for n in numbers})

    assert change_of(shapes(1, 2, 3, 4), shapes(3, 7, 8, 9)).what == ()
    assert change_of(shapes(1, 2, 3, 4), shapes(8)).what != ()


def test_the_order_of_dimensions() -> None:
    assert _order([2, 3], [3, 1]) == "contiguous"
    assert _order([2, 1, 3], [3, 99, 1]) == "contiguous"
    assert _order([0, 3], [7, 7]) == "contiguous"
    assert _order([2, 3], [1, 2]) == "[1, 0]"
    assert _order([2, 3], [6, 2]) == "[0, 1] with holes"
    assert _order([1, 3, 4, 4], [48, 1, 12, 3]) == "[0, 2, 3, 1]"
    assert _order([], []) == "contiguous"


def test_other_options_of_the_recording_come_first() -> None:
    def recorded(**options: object) -> SimpleNamespace:
        return SimpleNamespace(environment={"options": options})

    assert options(recorded(ops=[], source=True), recorded(ops=["aten::*mm*"], source=True)) == [
        "recorded with another --ops: all before, aten::*mm* after"
    ]
    assert options(recorded(values="none"), recorded(values="hash", why=True)) == [
        "recorded with another --values: none before, hash after"
    ]
    assert options(recorded(), SimpleNamespace(environment={})) == []


def test_what_is_not_known_is_no_difference() -> None:
    assert different({"threads": 2, "cpu": "x"}, {"cpu": "y"}, ("threads", "cpu")) == {"cpu": ("x", "y")}


def test_a_key_that_only_some_op_calls_lost() -> None:
    lost = kind("a.py:1", "y = m(x)", chain=(Link(0, "call", "aten::mm", "AutogradCPU"), *MM_CPU))
    left = kind("a.py:1", "y = m(x)", chain=MM_CPU)
    kept = kind("a.py:2", "z = n(x)", chain=(Link(0, "call", "aten::t", "AutogradCPU"),))
    changes = [change_of(lost, left), change_of(kept, kept)]
    assert texts(changes, {}, {}, (0, 0)) == ["key AutogradCPU no longer in 1 kind of op calls"]
