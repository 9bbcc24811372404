"""Which changes a likely cause explains, and the kernel function that changed as a cause."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import polars as pl
from made_runs import run
from test_difference import NOTHING, kind

from tracer.analysis.chain import Chain, Link
from tracer.analysis.difference import difference
from tracer.analysis.difference.causes import causes
from tracer.analysis.difference.change import Change, change_of
from tracer.analysis.difference.folding import cause_of
from tracer.report.difference_page import difference_page
from tracer.report.difference_text import explained, folded

OTHER = "another chain"


def call(level: int, op: str, key: str, kernel: str = "", kind: str = "call") -> Link:
    return Link(level, kind, op, key, kernel or f"{op}_{key}")


GELU = (call(0, "aten::gelu", "AutogradCPU"), call(1, "aten::gelu", "CPU", "wrapper_CPU_gelu", "redispatch"))
MINE = (
    call(0, "aten::gelu", "AutogradCPU"),
    call(1, "aten::gelu", "CPU", "fast_gelu", "redispatch"),
    call(2, "aten::empty.memory_format", "BackendSelect"),
    call(3, "aten::empty.memory_format", "CPU", kind="redispatch"),
)


def change(before: Chain, after: Chain, *what: str, line: str = "a.py:1") -> Change:
    return Change(kind(line, "x", chain=before), kind(line, "x", chain=after), what, NOTHING)


def explained_by(changes: list[Change]) -> list[str | None]:
    likely = causes(changes, {}, {}, (0, 0), lambda kernel: f"{kernel.after}.cpp:12")
    found = [cause_of(one, likely) for one in changes]
    return [cause and cause.text for cause in found]


def test_a_kernel_that_changed_is_the_cause_and_what_it_calls_is_not() -> None:
    changes = [change(GELU, MINE, OTHER), change(GELU, MINE, OTHER), change(GELU, GELU)]
    (cause,) = causes(changes, {}, {}, (0, 0), lambda kernel: "main.cpp:12")
    assert cause.text == (
        "kernel of aten::gelu [CPU] wrapper_CPU_gelu -> fast_gelu (main.cpp:12) in 2 kinds of op calls"
    )
    assert [cause_of(one, [cause]) for one in changes[:2]] == [cause, cause]


def test_many_kernels_of_another_torch_are_counted() -> None:
    def one(number: int) -> Change:
        chains = [(call(0, f"aten::op{number}", "CPU", f"{side}{number}"),) for side in ("old", "new")]
        return change(chains[0], chains[1], OTHER)

    texts = [cause.text for cause in causes([one(n) for n in range(7)], {}, {}, (0, 0))]
    assert len(texts) == 6
    assert texts[-1] == "2 more kernel functions"


def test_an_override_is_a_cause_of_its_own() -> None:
    override = (GELU[0], replace(GELU[1], kernel="mine", more="(override mine)"))
    texts = [cause.text for cause in causes([change(GELU, override, OTHER)], {}, {}, (0, 0))]
    assert texts == ["override mine only after"]


def test_a_property_of_inputs_explains_what_is_nothing_more() -> None:
    grad = "requires_grad 0: True -> 0: False"
    changes = [
        change(GELU, GELU, grad),
        change(GELU, GELU, grad),
        change(GELU, MINE, grad, "shape 0: 2 -> 0: 3"),
    ]
    assert explained_by(changes) == [
        "requires_grad of inputs differs in 3 kinds of op calls",
        "requires_grad of inputs differs in 3 kinds of op calls",
        "requires_grad of inputs differs in 3 kinds of op calls",
    ]
    vanished = replace(changes[0], what=("vanished",))
    moved = replace(changes[0], what=("line x -> y", grad))
    assert explained_by([*changes, vanished, moved])[-2:] == [None, None]


def test_a_key_that_went_explains_chains_that_differ_in_nothing_else() -> None:
    without = (replace(GELU[1], level=0, kind="call"),)
    other_op = (call(0, "aten::tanh", "CPU"),)
    found = explained_by([change(GELU, without, OTHER), change(GELU, (*without, *other_op), OTHER)])
    assert found[0] == "key AutogradCPU only before"
    assert found[1] is None


def test_a_key_that_both_chains_have_explains_nothing_of_them() -> None:
    """Another kind lost AutogradCPU; this one keeps it and calls another op below it."""
    without = (replace(GELU[1], level=0, kind="call"),)
    below = (GELU[0], call(1, "aten::tanh", "CPU"))
    kept = change((call(0, "aten::t", "AutogradCPU"),), (call(0, "aten::t", "AutogradCPU"),))
    found = explained_by([change(GELU, without, OTHER), change(GELU, below, OTHER), kept])
    assert found[:2] == ["key AutogradCPU no longer in 1 kind of op calls", None]


def test_ops_of_an_edited_line_that_did_not_change_are_one_entry() -> None:
    """Each had a block of its own that said how the line was edited."""
    edits = ["line x -> y"] * 3 + ["line x -> z"]
    changes = [change(GELU, GELU, edit) for edit in edits] + [change(GELU, GELU, edits[0], "new")]
    changes = [replace(one, cause=cause_of(one, [])) for one in changes]
    found = [(first.what, len(others)) for first, others in folded(changes)]
    assert found == [(("line x -> y",), 2), (("line x -> z",), 0), (("line x -> y", "new"), 0)]
    text = explained(changes[0], changes[1:3], 10)
    assert text.startswith("the same cause (the edited line) explains 2 more changes: ")


def test_what_a_cause_explains_is_one_entry() -> None:
    grad = "requires_grad 0: True -> 0: False"
    changes = [change(GELU, GELU, grad, line=f"a.py:{n}") for n in range(8)]
    changes.insert(1, change(GELU, GELU, "new"))
    likely = causes(changes, {}, {}, (0, 0))
    changes = [replace(one, cause=cause_of(one, likely)) for one in changes]
    (first, others), (new, none) = folded(changes)
    assert (first.kind.line, len(others), new.what, none) == ("a.py:0", 7, ("new",), [])
    text = explained(first, others, 10)
    assert text.startswith(
        "the same cause (requires_grad of inputs differs in 8 kinds of op calls) explains 7 more changes: "
        "a.py:1 aten::mm, "
    )
    assert text.endswith("a.py:5 aten::mm, ...")
    assert explained(first, others, 0).endswith("a.py:7 aten::mm")
    assert explained(new, none, 10) == ""


def test_two_recordings_name_the_place_of_the_new_kernel() -> None:
    """Of whole traces: where the second function was registered, and one entry for both lines."""
    before, after = run(seed=1), run(seed=2)
    columns = after.hops.columns
    linear = pl.col("op").cast(pl.String) == "aten::linear"
    changed = after.hops.with_columns(
        kernel=pl.when(linear).then(pl.lit("fast_linear")).otherwise(pl.col("kernel").cast(pl.String)),
        registered_at=pl.when(linear)
        .then(pl.lit("/home/user/mine/main.cpp:12"))
        .otherwise(pl.col("registered_at").cast(pl.String)),
    ).select(columns)
    after.hops = changed.cast(
        {"kernel": before.hops.schema["kernel"], "registered_at": before.hops.schema["registered_at"]}
    )
    found = difference([before], [after])
    assert found.causes == [
        "kernel of aten::linear [CPU] linear_CPU -> fast_linear (main.cpp:12) in 2 kinds of op calls"
    ]
    ((first, others),) = folded(found.structural)
    assert (first.kind.line, [other.kind.line for other in others]) == ("train.py:2", ["train.py:4"])
    page = difference_page(found, "a", "b", 0)
    assert page.count("### train.py:") == 1
    assert "explains 1 more change: train.py:4" in " ".join(page.split())


def test_kinds_that_some_runs_of_one_side_lack_are_no_change() -> None:
    none = replace(kind("a.py:1", "x"), calls=0, chains=Counter())
    some = replace(kind("a.py:1", "x"), of_runs=(kind("a.py:1", "x"), none))
    assert change_of(None, some).uneven
    assert change_of(some, None).uneven
    assert not change_of(None, kind("a.py:1", "x")).uneven
