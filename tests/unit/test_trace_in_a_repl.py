"""A trace in a REPL: what its methods show."""

from __future__ import annotations

import html
import re

import pytest
from gpu_trace import PATH

import tracer
from tracer.interactive.shown import Text
from tracer.interactive.trace import Trace, load


@pytest.fixture(scope="session")
def trace(names_of_the_sample: None) -> Trace:
    return load(PATH)


def test_load_gives_the_tables_and_the_methods(trace: Trace) -> None:
    assert tracer.load is load
    assert isinstance(trace, tracer.Trace)
    assert len(trace.hops) > 1000
    assert repr(trace).startswith(f"<Trace {PATH}: complete")
    assert isinstance(trace.without_phases(), Trace)


def test_the_tree(trace: Trace) -> None:
    lines = repr(trace.tree(step=1, limit=30)).splitlines()
    assert lines[0].split() == ["total", "self", "GPU", "op", "[key]", "kernel", "(inputs)"]
    assert lines[-1].startswith("Shown: 30 of ")
    assert any("cublasSgemm_v2(" in line for line in trace.tree(limit=0).splitlines())
    shallow = trace.tree(step=1, depth=1, limit=0)
    assert "->" not in shallow
    assert (
        shallow._repr_html_() == f'<pre style="overflow-x:auto;white-space:pre">{html.escape(shallow)}</pre>'
    )
    named = trace.tree(step=1, limit=0)
    assert "reduce_kernel<512" in named
    assert not re.search(r"<(?!/?pre\b)", named._repr_html_()), "a browser takes nothing for a tag"
    with pytest.raises(ValueError, match="no hop is in step 99"):
        trace.tree(step=99)


def test_the_flat_table(trace: Trace) -> None:
    table = trace.flat(by="op", sort="calls")
    assert table["calls"].is_sorted(descending=True)
    assert table["calls"].sum() == (trace.hops["kind"] == "call").sum()
    assert trace.flat().columns[:3] == ["op", "key", "kernel"]
    with pytest.raises(ValueError, match="by='line': choose hop, op"):
        trace.flat(by="line")
    with pytest.raises(ValueError, match="sort='time': choose self"):
        trace.flat(sort="time")


def test_steps_and_reports(trace: Trace) -> None:
    assert trace.steps_table()["step"].drop_nulls().to_list() == trace.steps["step"].to_list()
    report = trace.report("ops", "steps")
    assert re.findall("^## (.*)", report, flags=re.M) == ["Steps", "Ops"]
    assert report._repr_markdown_() == repr(report) == str(report)
    with pytest.raises(ValueError, match="'lines' is not a section; choose "):
        trace.report("lines")


def test_a_flat_table_is_shown_as_top_shows_it(trace: Trace) -> None:
    table = trace.flat(by="source", limit=2)
    lines = repr(table).splitlines()
    assert lines[0].split()[:4] == ["total", "self", "of", "self"]
    assert lines[-1] == f"Shown: 2 of {len(table)} rows. More: limit=0."
    assert table._repr_html_() == Text(str(table))._repr_html_()
    assert "shape: (1," in repr(table.head(1)), "what is made of it is polars' own"
    assert not re.search(r"<(?!/?pre\b)", trace.flat("kernel")._repr_html_())


def test_a_notebook_shows_a_few_kb_and_the_page_on_request(trace: Trace) -> None:
    shown = trace._repr_html_()
    assert len(shown.encode()) < 20_000
    assert shown.startswith(f"<p><b>{PATH.name}</b>: complete")
    assert "sample.py:" in shown
    assert "aten::mm" in shown
    assert ".page()" in shown
    page = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', trace.page()._repr_html_())
    assert page is not None
    assert html.unescape(page[1]) == str(trace.page())
    assert str(trace.page()).startswith("<!doctype html>")
    assert len(repr(trace.page())) < 100
