"""The HTML page: self-contained, with all sections, and without HTML of names."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import cuda_training
import gpu_trace
import hostile
import numpy as np
import polars as pl
import pytest
import test_report
from frames import TraceBuilder, hop

from tracer.analysis import memory_use
from tracer.analysis.gaps import gaps
from tracer.analysis.step_times import PARTS, step_times
from tracer.report.html import chains, timeline
from tracer.report.html.columns import packed, unpacked
from tracer.report.html.frame import inline
from tracer.report.html.page import render_html
from tracer.report.html.sections import to_html
from tracer.report.page import Page
from tracer.report.reading import Reading
from tracer.report.sections import NAMED, name_of, order
from tracer.trace import load

HOPS = ["call", "redispatch"]
FETCHING = {"src", "href", "action", "data", "poster", "srcset", "background", "formaction", "ping", "cite"}


class Elements(HTMLParser):
    """Elements with their attributes, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.scripts: dict[str, str] = {}
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.found.append((tag, named))
        if tag in ("script", "style"):
            self._inside = tag + " " + named.get("id", str(len(self.scripts)))
            self.scripts[self._inside] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[self._inside] += data
        else:
            self.text += data


@pytest.fixture(scope="module")
def reading() -> Reading:
    return Reading(load(gpu_trace.PATH), "gpu.trace")


@pytest.fixture(scope="module")
def page(reading: Reading) -> str:
    return render_html(reading)


@pytest.fixture(scope="module")
def elements(page: str) -> Elements:
    return Elements(page)


def policy_of(elements: Elements) -> str:
    return next(named["content"] for _, named in elements.found if "http-equiv" in named)


def test_nothing_is_fetched(elements: Elements, page: str) -> None:
    for tag, attributes in elements.found:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form", "video", "audio")
        for name in FETCHING & attributes.keys():
            assert attributes[name].startswith("#"), (tag, attributes)
    style = next(text for name, text in elements.scripts.items() if name.startswith("style"))
    assert "url(" not in style
    assert "@import" not in style
    policy = policy_of(elements)
    assert policy.startswith("default-src 'none'; ")


def test_only_the_scripts_of_the_page_may_run(elements: Elements) -> None:
    policy = policy_of(elements)
    scripts = [text for name, text in elements.scripts.items() if re.fullmatch(r"script \d+", name)]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert len(scripts) == 2
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert not [named for _, named in elements.found if any(name.startswith("on") for name in named)]


def test_no_script_makes_html_of_text_or_runs_text(elements: Elements) -> None:
    scripts = "".join(text for name, text in elements.scripts.items() if name.startswith("script"))
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in scripts
    for word in ("fetch(", "XMLHttpRequest", "WebSocket", "import(", "http://", "https://"):
        assert word not in scripts
    assert "<!--" not in scripts


def test_a_script_cannot_end_its_element() -> None:
    assert inline("a = '</script><!--';") == "a = '<\\/script><\\!--';"


def test_every_anchor_of_the_page_is_there(elements: Elements) -> None:
    links = [named["href"] for tag, named in elements.found if tag == "a"]
    ids = [named["id"] for _, named in elements.found if "id" in named]
    assert len(set(ids)) == len(ids)
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert {"#time", "#timeline", "#roofline", "#certificate"} <= set(links)


def test_every_section_of_the_report_has_its_place(reading: Reading, elements: Elements) -> None:
    ids = {named["id"] for tag, named in elements.found if tag == "section" and "id" in named}
    shown = Page.of(reading)
    for section in order(None):
        name = name_of(section)
        expected = section.wanted(reading) and bool(section.markdown(section.data(reading), shown))
        assert (name in ids) == (expected and name != "path_details"), name
    assert {"steps", "gaps", "ops", "kernels_to_gain"} <= ids


def test_the_page_names_the_licences(elements: Elements) -> None:
    assert "flame-chart-js 3.3.0" in elements.text
    assert "Copyright (c) 2021 Nikolay Ryabov" in elements.text


def test_the_numbers_of_the_page_are_those_of_the_trace(reading: Reading, elements: Elements) -> None:
    columns, meta = unpacked(elements.scripts["script tree-data"])
    kinds = [meta["texts"][number] for number in columns["labels.kind"]]
    of_node = [kinds[label] for label in columns["nodes.label"]]
    is_hop = np.isin(of_node, ["call", "redispatch"])
    assert columns["nodes.rows"][is_hop].sum() == len(reading.trace.hops)
    outermost = columns["nodes.parent"] < 0
    assert columns["nodes.gpu_ns"][outermost].sum() == int(
        reading.trace.gpu_activities.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    )
    lines = {meta["texts"][number] for number in columns["origins.line"] if number >= 0}
    assert "sample.py:33" in lines
    assert not any(line.startswith("/work") for line in lines)


def test_the_page_has_the_wall_time_of_the_recording_and_the_module_around_each() -> None:
    """In ops on one thread, and outside ops: as `tracer steps` says, step by step and after the last one."""
    builder = TraceBuilder().calls(
        hop("aten::mm", "CPU", source="/x/a.py:1", module="net.0"),
        hop("aten::add", "CPU", source="/x/a.py:2"),
        hop("aten::mul", "CPU", source="/x/a.py:1"),
        times=200,
    )
    trace = builder.trace()
    trace.modules = pl.DataFrame(
        [("Net", None), ("net", "Net"), ("net.0", "net")], trace.modules.schema, orient="row"
    )
    columns, meta = unpacked(Elements(render_html(Reading(trace, "t"))).scripts["script tree-data"])
    steps = step_times(trace)
    outermost = columns["nodes.parent"] < 0
    outside = sum(row[1] for row in meta["outside"])
    assert outside == steps["outside_ops_ns"].sum() == 599 * 100
    assert columns["nodes.host_ns"][outermost].sum() + outside == steps["wall_ns"].sum()
    assert meta["modules"] == {"net.0": ["Net", "net", "net.0"]}
    assert [row[0] for row in meta["outside"]] == [
        "/x/a.py:1 -> /x/a.py:2",
        "/x/a.py:2 -> /x/a.py:1",
        "/x/a.py:1 -> /x/a.py:1",
    ]
    assert [row[2] for row in meta["outside"]] == [200, 200, 199]


def test_every_call_of_the_page_has_the_phase_that_the_steps_count_it_in(
    reading: Reading, elements: Elements
) -> None:
    columns, meta = unpacked(elements.scripts["script tree-data"])
    names = [meta["texts"][number] if number >= 0 else None for number in columns["origins.phase"]]
    phase = np.array(names, object)[columns["nodes.origin"]]
    hops = np.isin([meta["texts"][columns["labels.kind"][label]] for label in columns["nodes.label"]], HOPS)
    expected = reading.phases.value_counts().rows()
    found = [(name, columns["nodes.rows"][hops & (phase == name)].sum()) for name, _ in expected]
    assert sorted(found) == sorted(expected)
    assert len(found) >= 2
    waiting = {meta["texts"][op] for op in columns["labels.op"][columns["labels.waits"] == 1]}
    assert "cudaStreamSynchronize" in waiting or "cudaDeviceSynchronize" in waiting


def test_of_many_pairs_of_lines_the_rest_is_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "MOST_GAPS", 2)
    builder = TraceBuilder().calls(*(hop("aten::mm", "CPU", source=f"a.py:{line}") for line in range(9)))
    _, meta = unpacked(Elements(render_html(Reading(builder.trace(), "t"))).scripts["script tree-data"])
    assert meta["outside"][2:] == [["6 more pairs of lines", 600, 6, 100, ""]]


def test_gaps_are_those_of_the_steady_steps_if_the_calls_are(reading: Reading) -> None:
    page = render_html(Reading(reading.trace, "t", steady=True))
    _, meta = unpacked(Elements(page).scripts["script tree-data"])
    assert sum(row[1] for row in meta["outside"]) == gaps(reading.trace).outside_ns


def test_the_page_has_the_python_stacks(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = hostile.write(tmp_path_factory.mktemp("stacks") / "t.trace", "train.py")
    columns, meta = unpacked(Elements(render_html(Reading(load(path), "t"))).scripts["script tree-data"])
    used = {str(number) for number in columns["nodes.stack"] if number >= 0}
    assert used & meta["stacks"].keys()
    assert ["train.py:3", "train.py:4"] in [
        [frame.split()[0] for frame in frames] for frames in meta["stacks"].values()
    ]


@pytest.mark.parametrize("high", [0, 127, 128, -129, 40_000, 1 << 31, 1 << 50])
def test_columns_come_back(high: int) -> None:
    given = {"a": np.array([-1, high]), "b": np.array([], np.int64)}
    columns, meta = unpacked(packed(given, {"x": ["\u202e</script>"]}))
    assert columns["a"].tolist() == [-1, high]
    assert columns["b"].tolist() == []
    assert meta == {"x": ["\u202e</script>"]}


def test_packed_data_is_the_same_each_time() -> None:
    columns = {"a": np.arange(1000)}
    assert packed(columns, {}) == packed(columns, {})


# ---- sections ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a <b onclick=x>b</b>", "<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>\n"),
        ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>\n"),
        ("![a](http://x/y)", "<p>![a](http://x/y)</p>\n"),
        ("<http://x/y>", "<p>&lt;http://x/y&gt;</p>\n"),
        ("<details><summary>Names</summary>\n\nx\n\n</details>", None),
        ("<details open onclick=x><summary>Names</summary>\n\nx", "&lt;details open onclick=x&gt;"),
        (
            "<details><summary><script></summary>",
            "&lt;details&gt;&lt;summary&gt;&lt;script&gt;",
        ),
    ],
)
def test_of_html_only_details_are_kept(text: str, html: str | None) -> None:
    if html is None:
        assert to_html(text) == "<details><summary>Names</summary>\n<p>x</p>\n</details>\n"
    else:
        assert to_html(text).startswith(html)


def test_names_are_text(tmp_path_factory: pytest.TempPathFactory) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)> [l](javascript:x) \x1b[31m\u202e"
    path = hostile.write(tmp_path_factory.mktemp("evil") / "evil.trace", evil)
    page = render_html(Reading(load(path), "</title><script>alert(2)</script>\x1b[31m"))
    elements = Elements(page)
    assert [named for tag, named in elements.found if tag == "img"] == []
    assert len([tag for tag, _ in elements.found if tag == "script"]) == 4
    assert "alert(1)</script><img src=x onerror=alert(1)>" in elements.text
    assert "</title><script>alert(2)</script>\\x1b[31m" in elements.text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e]", elements.text)


# ---- timeline ----------------------------------------------------------------------------------------


def of_timeline(reading: Reading) -> tuple[dict[str, np.ndarray], dict]:
    from tracer.analysis.call_tree import call_tree

    forest = reading.part
    return unpacked(timeline.packed_timeline(reading, forest, call_tree(forest, reading.phases).node_of))


def test_the_timeline_has_all_events_of_its_steps(reading: Reading) -> None:
    columns, meta = of_timeline(reading)
    assert sum(step["left_out"] for step in meta["steps"]) == 0
    first_to_last = len(reading.part.hops)
    untimed = sum(step["untimed"] for step in meta["steps"])
    assert len(columns["start"]) + untimed == first_to_last
    names = [track["name"] for track in meta["tracks"]]
    assert any(name.startswith("GPU 0 stream") for name in names)
    for step in meta["steps"]:
        part = slice(step["first"], step["first"] + step["count"])
        parent, start, length = (columns[name][part] for name in ("parent", "start", "length"))
        inner = parent >= 0
        host = ~np.array([track["gpu"] for track in meta["tracks"]])[columns["track"][part]]
        nested = inner & host
        assert (start[nested] >= start[parent[nested]]).all()
        assert (start[nested] + length[nested] <= start[parent[nested]] + length[parent[nested]]).all()
        on_gpu = inner & ~host
        assert (start[on_gpu] >= start[parent[on_gpu]]).all()  # launched before it ran


def test_the_tracks_of_a_step_add_up_to_its_row_in_the_table_of_steps(reading: Reading) -> None:
    for each in (reading, *(Reading(trace(), "t") for trace in TRACES.values())):
        _, meta = of_timeline(each)
        rows = {row["name"]: row for row in each.step_times.iter_rows(named=True)}
        for step in meta["steps"]:
            row = rows[step["step"]]
            sums = dict.fromkeys((*PARTS, "waits"), 0)
            for part, _start, length in step["parts"]:
                sums[part] += length
            expected = {part: row[f"{part}_ns"] for part in PARTS if part != "other"}
            assert {part: sums[part] for part in expected} == expected
            ends = [start + length for _, start, length in step["parts"]]
            assert all(start >= end for end, (_, start, _) in zip(ends, step["parts"][1:], strict=False))
            assert ends == [] or ends[-1] <= step["wall_ns"]
            assert sum(step["busy"]) == row["gpu_busy_ns"]
    assert any(step["busy"] for step in of_timeline(reading)[1]["steps"])


def test_of_too_many_parts_the_longest_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_PIECES", 2)
    calls = [hop("aten::mm", "CPU", self_ns=ns) for ns in (100, 500, 100, 900, 100)]
    (step,) = of_timeline(Reading(TraceBuilder().calls(*calls).trace(), "t"))[1]["steps"]
    assert [length for _, _, length in step["parts"]] == [500, 900]
    assert step["parts_left_out"] == 3


def test_the_memory_of_a_step_is_what_was_given_out_until_then() -> None:
    trace = test_report.training()
    times = [1_000, 50_000, 50_010, 10**9]
    trace.memory = pl.DataFrame(
        [
            (number, None, 0, 1, at, "cpu", number, size, None, None, None)
            for number, (at, size) in enumerate(zip(times, (100, 4000, -4000, 7), strict=True))
        ],
        trace.memory.schema,
        orient="row",
    ).with_columns(allocated_by=pl.Series([None, None, 1, None], dtype=trace.memory.schema["allocated_by"]))
    (step,) = of_timeline(Reading(trace, "t"))[1]["steps"]
    (given,) = step["memory"].values()
    assert len(given) == timeline.BUCKETS
    assert max(given) == 4100 == memory_use.memory_use(trace)[0].peak_bytes
    assert given[-1] == 100
    assert given.count(4100) == 1


def test_of_too_many_events_the_longest_are_kept_with_those_around_them(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, meta = of_timeline(reading)
    monkeypatch.setattr(timeline, "MOST_EVENTS", 20)
    monkeypatch.setattr(timeline, "LEAST_EVENTS", 20)
    columns, cut = of_timeline(reading)
    for step, before in zip(cut["steps"], meta["steps"], strict=True):
        assert step["count"] == min(before["count"], 20)
        assert step["left_out"] == before["count"] - step["count"]
        part = slice(step["first"], step["first"] + step["count"])
        assert (columns["parent"][part] < step["count"]).all()
        all_of = slice(before["first"], before["first"] + before["count"])
        assert columns["length"][part].max() == whole["length"][all_of].max()
        outermost = (whole["parent"][all_of] < 0).sum()
        assert (columns["parent"][part] < 0).sum() <= outermost


def test_work_of_the_gpu_is_kept_with_its_launch(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_EVENTS", 100)
    monkeypatch.setattr(timeline, "LEAST_EVENTS", 100)
    columns, meta = of_timeline(reading)
    assert sum(step["left_out"] for step in meta["steps"]) > 0
    on_gpu = np.array([track["gpu"] for track in meta["tracks"]])[columns["track"]]
    assert on_gpu.sum() > 3
    assert (columns["parent"][on_gpu] >= 0).all()


def test_of_many_steps_the_longest_and_the_usual_are_shown() -> None:
    lengths = [100 + number % 7 for number in range(200)]
    lengths[50], lengths[150] = 5000, 4000
    steps = pl.DataFrame({"step": range(200), "wall_ns": lengths})
    chosen = timeline._chosen(steps)["step"].to_list()
    assert len(chosen) == timeline.MOST_STEPS
    assert {50, 150} <= set(chosen)
    assert chosen == sorted(chosen)


# ---- what a trace may lack, and filters ---------------------------------------------------------------


TRACES = {"cpu": test_report.training, "gpu": cuda_training.training, "none": lambda: TraceBuilder().trace()}


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
@pytest.mark.parametrize("only", [None, "cuda", "kernels"])
def test_any_trace_has_a_page(trace, only: str | None) -> None:
    elements = Elements(render_html(Reading(trace(), "t", only=only)))
    assert "Where time goes" in elements.text


def test_filters_hold_for_the_tree(reading: Reading) -> None:
    def rows(**options) -> int:
        page = render_html(Reading(reading.trace, "t", **options))
        columns, meta = unpacked(Elements(page).scripts["script tree-data"])
        assert bool(meta["said"]) == bool(options)
        return int(columns["nodes.rows"].sum())

    everything, steady, chosen = rows(), rows(steady=True), rows(patterns=("aten::mm",))
    assert 0 < steady < everything
    assert 0 < chosen < everything


def test_sections_that_were_chosen(reading: Reading) -> None:
    elements = Elements(render_html(Reading(reading.trace, "t", sections=("ops",))))
    ids = {named.get("id") for tag, named in elements.found if tag == "section"}
    assert ids & set(NAMED) == {"ops"}
