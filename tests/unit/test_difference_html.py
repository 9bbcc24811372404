"""The HTML page of a difference: its bars have the figures of its rows, and nothing of a name is HTML."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import gpu_trace
import hostile
import numpy as np
import pytest
from made_runs import edited, run, slower
from test_html_page import FETCHING, Elements, policy_of

from tracer.analysis.difference import Difference, difference
from tracer.analysis.difference.both_calls import both_calls
from tracer.report.difference_text import rows
from tracer.report.html.columns import unpacked
from tracer.report.html.difference import render_difference
from tracer.report.text import unbroken
from tracer.trace import load

TANH = "hidden = torch.tanh(hidden)"
NAMES = ("a.trace", "b.trace")


def page_of(before: Any, after: Any, limit: int = 10, names: tuple[str, str] = NAMES) -> Elements:
    found = difference(before, after)
    return Elements(render_difference(before, after, found, names, limit))


def outermost(before: Any, after: Any) -> tuple[Difference, dict[int, dict[str, float]]]:
    """Of each change the sums over its outermost calls."""
    found = difference(before, after)
    sums: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    nodes = both_calls(before, after, found).nodes
    for row in nodes.iter_rows(named=True):
        if row["parent"] < 0:
            for name in ("before_ns", "after_ns", "before_gpu_ns", "after_gpu_ns"):
                sums[row["change"]][name] += row[name]
    return found, sums


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([run()], [run(slower(TANH, 3), seed=3)]),
        ([run()], [run(edited(TANH, "hidden = F.gelu(hidden)", "aten::gelu", 50_000), seed=3)]),
        ([run(marked=False)], [run(marked=False, factor=2)]),
        ([run(), run(seed=1)], [run(seed=2, factor=1.5), run(seed=4)]),
        ([load(gpu_trace.PATH)], [load(gpu_trace.PATH)]),
    ],
    ids=["slower", "edited", "without steps", "two runs a side", "GPU"],
)
def test_the_calls_of_a_kind_take_what_its_row_says(before: Any, after: Any) -> None:
    found, sums = outermost(before, after)
    assert len(found.changes) > 4
    for number, change in enumerate(found.changes):
        for side in ("before", "after"):
            for name, of in (("ns", change.times.times), ("gpu_ns", change.times.gpu)):
                said = getattr(of, side) or 0
                assert sums[number][f"{side}_{name}"] == pytest.approx(said, rel=1e-6, abs=1), (
                    change.kind.line
                )


def test_calls_below_are_scaled_with_their_kind_and_are_in_it() -> None:
    before, after = [load(gpu_trace.PATH)], [load(gpu_trace.PATH)]
    nodes = both_calls(before, after, difference(before, after)).nodes
    below = np.zeros(len(nodes))
    inner = nodes.filter(nodes["parent"] >= 0)
    np.add.at(below, inner["parent"].to_numpy(), inner["after_gpu_ns"].to_numpy())
    assert len(inner) > 100
    assert (below <= nodes["after_gpu_ns"].to_numpy() + 1).all()
    assert nodes["before_ns"].to_list() == nodes["after_ns"].to_list()


def test_a_kernel_function_and_a_key_that_changed_are_one_bar() -> None:
    before, after = [run()], [run(seed=1)]
    hops = after[0].hops
    tanh = hops["op"].cast(str) == "aten::tanh"
    texts = {"kernel": "mine", "key": "AutocastCPU"}
    for name, text in texts.items():
        column = [text if of else was for of, was in zip(tanh, hops[name].cast(str), strict=True)]
        hops = hops.with_columns(hops[name].__class__(name, column, dtype=hops[name].dtype))
    after[0].__dict__["hops"] = hops
    tree = both_calls(before, after, difference(before, after))
    label = tree.labels.filter(tree.labels["op"] == "aten::tanh")
    assert label.select("key", "kernel").rows() == [("CPU -> AutocastCPU", "tanh_CPU -> mine")]


def test_a_line_that_moved_or_was_edited_is_one_and_other_code_with_its_number_is_not() -> None:
    kept, new = ("x = a(y)", "aten::mm", 5000), ("z = new_code(x)", "aten::tanh", 9000)
    before, after = [run([kept])], [run([new, kept])]
    tree = both_calls(before, after, difference(before, after))
    assert set(tree.origins["line"]) == {"train.py:1 (new)", "train.py:1 -> train.py:2"}
    before, after = [run()], [run(edited(TANH, "hidden = F.gelu(hidden)", "aten::gelu", 50_000))]
    tree = both_calls(before, after, difference(before, after))
    assert set(tree.origins["line"]) == {f"train.py:{number}" for number in range(1, 7)}


def test_the_page_has_both_names_and_each_table_and_fetches_nothing() -> None:
    elements = page_of([run()], [run(slower(TANH, 3), seed=3, children={"aten::linear": ["aten::t"]})])
    ids = [named["id"] for _, named in elements.found if "id" in named]
    assert len(ids) == len(set(ids))
    links = [named["href"] for tag, named in elements.found if tag == "a"]
    assert links == ["#time", "#lines", "#ops", "#structure"]
    assert {link[1:] for link in links} <= set(ids)
    assert re.search(r"before\s*a\.trace train\.py.*after\s*b\.trace train\.py", elements.text, re.DOTALL)
    assert unbroken("a step took 1.0 ms before, 1.3 ms after: ") in elements.text
    fetching = {name for _, named in elements.found for name in named if name in FETCHING} - {"href"}
    assert not fetching
    assert policy_of(elements).startswith("default-src 'none'; ")


def test_the_figures_of_bars_are_the_cells_of_rows() -> None:
    before, after = [run()], [run(slower(TANH, 3), seed=3)]
    found = difference(before, after)
    page = Elements(render_difference(before, after, found, NAMES, 10))
    _, meta = unpacked(page.scripts["script tree-data"])
    assert meta["titles"] == ["before", "after", "ratio (95 %)", "verdict"]
    table = {tuple(row[:2]): row[2:6] for row in rows("line", found)}
    bars = {tuple(change["names"][:2]): change["cells"] for change in meta["changes"]}
    bars |= {(lines, "outside ops"): figures for lines, _, figures in meta["outside"]}
    assert bars == table
    assert meta["rows"]["op"]["aten::tanh"] == next(
        row[1:] for row in rows("op", found) if row[0] == "aten::tanh"
    )


def test_tables_are_longer_than_the_limit_of_changes() -> None:
    script = [(f"x{number} = f{number}(x)", f"aten::op{number}", 4000 + number) for number in range(30)]
    page = page_of([run(script)], [run(script[:15], seed=2)], limit=3)
    assert page.text.count("aten::op") > 30
    assert "Shown: 3 of 15 changes." in page.text


def test_names_are_text(tmp_path_factory: pytest.TempPathFactory) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)> [l](javascript:x) \x1b[31m\u202e"
    folder = tmp_path_factory.mktemp("evil")
    before = [load(hostile.write(folder / "one.trace", evil))]
    page = page_of(before, [run()], names=("</title><script>alert(2)</script>\x1b[31m", "b"))
    assert [named for tag, named in page.found if tag == "img"] == []
    assert len([tag for tag, _ in page.found if tag == "script"]) == 3
    assert "</title><script>alert(2)</script>\\x1b[31m" in page.text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e]", page.text)
