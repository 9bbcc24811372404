"""`tracer export --to perfetto` and `--to chrome`, read back and compared with the tables."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from exported import Slice, chrome_slices, perfetto_slices
from gpu_trace import PATH
from hypothesis import example, given
from hypothesis import strategies as st
from one_op import one_op
from synthetic import TraceWriter, tensor

from examples import examples
from tracer.export import chrome
from tracer.export.export_errors import ExportError
from tracer.export.formats import FORMATS
from tracer.export.marks import module_marks, range_marks, step_marks
from tracer.trace import Trace, load

try:
    import perfetto.trace_builder.proto_builder  # noqa: F401

    HAS_PERFETTO = True
except ImportError:
    HAS_PERFETTO = False
needs_perfetto = pytest.mark.skipif(not HAS_PERFETTO, reason="the package perfetto is not installed")

BOTH = [
    pytest.param("perfetto", marks=needs_perfetto),
    "chrome",
]
TABLES = {"hop": "hops", "library": "library_calls", "api": "api_calls", "gpu": "gpu_activities"}


def plain(table: pl.DataFrame) -> list[dict[str, Any]]:
    return table.with_columns(pl.col(pl.Categorical).cast(pl.String)).to_dicts()


def exported(trace: Trace, to: str, folder: Path) -> list[Slice]:
    path = folder / f"out{FORMATS[to].suffix}"
    assert FORMATS[to].write(trace, path) == []
    assert [entry.name for entry in folder.glob("*out*")] == [path.name]
    slices = {"perfetto": perfetto_slices, "chrome": chrome_slices}[to](path)
    return [inner for inner in slices if inner.category in TABLES]


def expected_around(trace: Trace) -> dict[tuple[str, int], tuple[str, int] | None]:
    """What encloses each row of hops and calls, as the tables say."""
    around: dict[tuple[str, int], tuple[str, int] | None] = {}
    for category, candidates in (
        ("hop", [("hop", "parent")]),
        ("library", [("library", "parent"), ("hop", "hop")]),
        ("api", [("api", "parent"), ("library", "library_call_id"), ("hop", "hop")]),
    ):
        for row in plain(getattr(trace, TABLES[category])):
            found = ((kind, row[column]) for kind, column in candidates if row[column] is not None)
            around[category, row["id"]] = next(found, None)
    return around


def is_nested_as_the_tables(trace: Trace, slices: list[Slice]) -> None:
    host = [inner for inner in slices if inner.category != "gpu"]
    expected = expected_around(trace)
    assert len(host) == len(expected)
    assert {inner.id: inner.around and inner.around.id for inner in host} == expected


@pytest.fixture(scope="module")
def gpu() -> Trace:
    return load(PATH)


@pytest.mark.parametrize("to", BOTH)
def test_every_row_is_a_slice_with_its_times_and_nesting(to: str, gpu: Trace, tmp_path: Path) -> None:
    slices = exported(gpu, to, tmp_path)
    assert Counter(inner.category for inner in slices) == {
        category: len(getattr(gpu, table)) for category, table in TABLES.items()
    }
    is_nested_as_the_tables(gpu, slices)
    for category, table in TABLES.items():
        times = {(row["id"], row["start_ns"], row["end_ns"]) for row in plain(getattr(gpu, table))}
        assert {(s.id[1], s.start, s.end) for s in slices if s.category == category} == times
    activities = [inner for inner in slices if inner.category == "gpu"]
    assert not any(inner.around for inner in activities)


@pytest.mark.parametrize("to", BOTH)
def test_arguments_are_the_columns(to: str, gpu: Trace, tmp_path: Path) -> None:
    slices = {inner.id: inner for inner in exported(gpu, to, tmp_path)}
    same = {
        "hop": "op key kernel source called_from registered_at rule range backward_node step phase "
        "sequence_nr forward_hop",
        "library": "library arguments result hop source step",
        "api": "domain role kernel library library_call arguments correlation result stack hop source",
        "gpu": "kind device context stream registers bytes graph api_call hop captured_by correlation",
    }
    for category, columns in same.items():
        for row in plain(getattr(gpu, TABLES[category])):
            arguments = slices[category, row["id"]].arguments
            for column in columns.split():
                assert arguments.get(column) == row[column], (category, row["id"], column)
    for row in plain(gpu.hops):
        assert slices["hop", row["id"]].name == f"{row['op']} [{row['key']}]"
        assert ("inputs" in slices["hop", row["id"]].arguments) == (row["inputs"] is not None)
    for row in plain(gpu.gpu_activities):
        assert slices["gpu", row["id"]].name == row["name"]
        grid = slices["gpu", row["id"]].arguments.get("grid")
        assert grid == ("x".join(map(str, row["grid"])) if row["grid"] else None)


@pytest.mark.parametrize("to", BOTH)
def test_arrows_go_from_calls_to_the_gpu_and_from_forward_to_backward(
    to: str, gpu: Trace, tmp_path: Path
) -> None:
    slices = exported(gpu, to, tmp_path)
    leaving = [(flow, inner.id) for inner in slices for flow in inner.leaving]
    arriving = [(flow, inner.id) for inner in slices for flow in inner.arriving]
    assert len(dict(leaving)) == len(leaving) == len(dict(arriving)) == len(arriving)
    source = dict(leaving)
    arrows = {(source[flow], target) for flow, target in arriving}
    hops = plain(gpu.hops)
    expected = {
        (("api", row["api_call"]), ("gpu", row["id"]))
        for row in plain(gpu.gpu_activities)
        if row["api_call"] is not None
    }
    for row in hops:
        parent = hops[row["parent"]] if row["parent"] is not None else {}
        if row["forward_hop"] is not None and parent.get("forward_hop") != row["forward_hop"]:
            expected.add((("hop", row["forward_hop"]), ("hop", row["id"])))
    assert arrows == expected
    assert {kind for (kind, _), _ in arrows} == {"api", "hop"}


@pytest.mark.parametrize("to", BOTH)
def test_tracks_are_threads_and_streams(to: str, gpu: Trace, tmp_path: Path) -> None:
    slices = exported(gpu, to, tmp_path)
    pid = gpu.processes["pid"][0]
    assert all(inner.track[1 if to == "perfetto" else 0] == pid for inner in slices)
    for table, category in (("hops", "hop"), ("api_calls", "api")):
        threads = {row["id"]: row["thread"] for row in plain(getattr(gpu, table))}
        shown = {s.id[1]: s.track[2 if to == "perfetto" else 1] for s in slices if s.category == category}
        assert shown == threads
    names = dict(gpu.threads.select("thread", "name").iter_rows())
    assert {inner.track[-1] for inner in slices if inner.category != "gpu"} <= set(names.values())
    for inner in slices:
        if inner.category == "gpu":
            stream = f"GPU {inner.arguments['device']} stream {inner.arguments['stream']}"
            assert inner.track[-1].startswith(stream)


def small_writer() -> TraceWriter:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::mm", rule="")
    writer.hop(1, "aten::empty", key="", registered_at="")
    return writer


@pytest.mark.parametrize("to", BOTH)
def test_inputs_read_as_text(to: str, tmp_path: Path) -> None:
    writer = small_writer()
    lane = writer.lane()
    lane.define_signature(
        1,
        tensor((2, 3)),
        tensor((), position=1, device=(1, 0)),
        tensor(None, position=2, undefined=True, dtype=-1),
        tensor((4,), position=3, layout=1),
    )
    lane.enter(0, signature=1)
    lane.enter(1)
    lane.exit(raised=True)
    lane.exit()
    slices = exported(load(writer.write(tmp_path / "a.trace")), to, tmp_path)
    inputs = slices[0].arguments["inputs"]
    assert inputs.startswith("2x3 float32 cpu, scalar float32 cuda:0, undefined, 4 float32")
    assert slices[1].arguments["raised"] is True
    assert "raised" not in slices[0].arguments
    assert "rule" not in slices[0].arguments


@pytest.mark.parametrize("to", BOTH)
def test_open_hops_processes_and_threads_without_names(to: str, tmp_path: Path) -> None:
    writer = small_writer()
    writer.process(1, how=1)
    first, other = writer.lane(thread=1000), writer.lane(process=1, number=0, thread=1001)
    first.name_thread(1, "main")
    writer.hop(0, "aten::mm", process=1)
    for lane in (first, other):
        lane.enter(0)
        lane.enter(0)
        lane.exit()
    trace = load(writer.write(tmp_path / "a.trace"))
    slices = exported(trace, to, tmp_path)
    is_nested_as_the_tables(trace, slices)
    assert [inner.arguments.get("open") for inner in slices] == [True, None, True, None]
    assert {inner.track[-1] for inner in slices} == {"main", "thread 1001"}
    assert {inner.track[1 if to == "perfetto" else 0] for inner in slices} == {100, 101}


@pytest.mark.parametrize("to", BOTH)
def test_a_trace_without_hops(to: str, tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    assert exported(load(writer.write(tmp_path / "a.trace")), to, tmp_path) == []


@pytest.mark.parametrize("to", BOTH)
def test_activities_that_overlap_in_a_stream_get_tracks_of_their_own(to: str, tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.hop(0)
    writer.string(1, "kernel")
    times = [(7000, 7900), (7100, 7200), (7150, 7300), (7300, 7400), (7900, 8000)]
    for number, (start, end) in enumerate(times):
        writer.kernel(number + 1, start, end, name=1)
    writer.kernel(6, 7000, 7100, name=1, stream=9)
    writer.kernel(7, 7000, 7100, name=1, context=2)
    slices = exported(load(writer.write(tmp_path / "a.trace")), to, tmp_path)
    names = [inner.track[-1] for inner in sorted(slices, key=lambda inner: inner.arguments["activity"])]
    by_correlation = {inner.arguments["correlation"]: inner.track[-1] for inner in slices}
    one = "GPU 0 stream 7 context 1"
    assert [by_correlation[number] for number in range(1, 6)] == [
        one,
        f"{one} (2)",
        f"{one} (3)",
        f"{one} (2)",
        one,
    ]
    assert by_correlation[6] == "GPU 0 stream 9 context 1"
    assert by_correlation[7] == "GPU 0 stream 7 context 2"
    assert len(names) == 7
    assert not any(inner.around for inner in slices)


@pytest.mark.parametrize("to", BOTH)
def test_activities_without_times_are_counted(to: str, tmp_path: Path) -> None:
    writer = small_writer()
    writer.kernel(1)
    writer.kernel(2, 7000, 7100)
    trace = load(writer.write(tmp_path / "a.trace"))
    assert trace.gpu_activities["start_ns"].null_count() == 1
    remarks = FORMATS[to].write(trace, tmp_path / "out")
    assert remarks == ["1 GPU activities have no times, so the timeline omits them"]


@pytest.mark.parametrize("to", BOTH)
def test_an_activity_with_a_damaged_end_takes_no_time(to: str, tmp_path: Path) -> None:
    writer = small_writer()
    writer.kernel(1, 7100, 7000)
    writer.kernel(2, 7200, 7300)
    trace = load(writer.write(tmp_path / "a.trace"))
    slices = exported(trace, to, tmp_path)
    assert [(inner.start, inner.end) for inner in slices] == [(71000, 71000), (72000, 73000)]


INSIDE = {"": "hla", "h": "hla", "l": "la", "a": "a"}
"""What is entered inside what: calls enclose calls, and no hops"""


@examples(40)
@given(moves=st.lists(st.sampled_from("hhllaaxxxxx"), max_size=60), rate=st.sampled_from([1.0, 0.2, 0.05]))
@example(moves=list("axh" + "hx" * 10 + "x"), rate=0.05)  # a call that takes no time, then a hop
@pytest.mark.parametrize("to", BOTH)
def test_any_nesting_comes_back(
    to: str, tmp_path_factory: pytest.TempPathFactory, moves: list[str], rate: float
) -> None:
    """Also where many events have the same time, because a tick is less than a nanosecond."""
    if to == "chrome":
        rate = 1.0  # its nesting is that of the times alone
    writer = TraceWriter(header={"last_ticks": 1_001_000, "last_ns": 5000 + int(1_000_000 * rate)})
    writer.process()
    writer.hop(0)
    writer.function(0, "cudaMalloc")
    writer.function(0, "cublasSgemm_v2", domain=2)
    lane = writer.lane()
    opened: list[str] = []
    for move in moves:
        if move == "x" and opened:
            lane.exit() if opened.pop() == "h" else lane.call_exit()
        elif move in INSIDE[opened[-1] if opened else ""]:
            {"h": lane.enter, "l": lane.library_enter, "a": lane.api_enter}[move](0)
            opened.append(move)
    folder = tmp_path_factory.mktemp("any")
    trace = load(writer.write(folder / "a.trace"))
    is_nested_as_the_tables(trace, exported(trace, to, folder))


@pytest.mark.parametrize("to", BOTH)
def test_a_hop_in_a_library_call_stands_in_it(to: str, tmp_path: Path) -> None:
    """Of a library that calls back into torch; the table says which hop is around it."""
    writer = small_writer()
    writer.function(0, "cudnnBackendExecute", domain=2)
    lane = writer.lane()
    lane.enter(0)
    lane.library_enter(0)
    lane.enter(1)
    lane.exit()
    lane.call_exit()
    lane.exit()
    trace = load(writer.write(tmp_path / "a.trace"))
    slices = {inner.id: inner for inner in exported(trace, to, tmp_path)}
    assert slices["hop", 1].around is slices["library", 0]
    assert slices["library", 0].around is slices["hop", 0]
    for row in plain(trace.hops):
        assert (slices["hop", row["id"]].start, slices["hop", row["id"]].end) == (
            row["start_ns"],
            row["end_ns"],
        )


@needs_perfetto
def test_texts_and_names_are_written_once(gpu: Trace, tmp_path: Path) -> None:
    path = tmp_path / "out.pftrace"
    FORMATS["perfetto"].write(gpu, path)
    data = path.read_bytes()
    for text in (b"torch::autograd::VariableType::mm", b"registered_at", b"cudaLaunchKernelExC"):
        assert data.count(b"\x12" + bytes([len(text)]) + text) == 1
    assert data.count(b"torch::autograd::VariableType::mm") < 5
    assert len(data) < 1_500_000


def test_chrome_refuses_more_events_than_viewers_take(
    gpu: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = len(step_marks(gpu)) + len(module_marks(gpu)) + len(range_marks(gpu))
    events = sum(len(getattr(gpu, table)) for table in TABLES.values()) + marks
    arrows = sum(len(inner.arriving) for inner in exported(gpu, "chrome", tmp_path))
    (tmp_path / "out.chrome.json").unlink()
    assert chrome.MOST_EVENTS == 2_000_000
    monkeypatch.setattr(chrome, "MOST_EVENTS", events + 2 * arrows)
    assert FORMATS["chrome"].write(gpu, tmp_path / "fits.json") == []
    monkeypatch.setattr(chrome, "MOST_EVENTS", events + 2 * arrows - 1)
    with pytest.raises(ExportError, match=r"makes [\d,]+ events, .*; use --to perfetto$"):
        FORMATS["chrome"].write(gpu, tmp_path / "more.json")
    assert [path.name for path in tmp_path.iterdir()] == ["fits.json"]


def test_a_name_that_ends_in_gz_is_compressed(gpu: Trace, tmp_path: Path) -> None:
    FORMATS["chrome"].write(gpu, tmp_path / "a.json")
    FORMATS["chrome"].write(gpu, tmp_path / "a.json.gz")
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.json").read_bytes()
    assert len(chrome_slices(tmp_path / "a.json.gz")) > 7000
    if HAS_PERFETTO:
        FORMATS["perfetto"].write(gpu, tmp_path / "a.pftrace.gz")
        assert len(perfetto_slices(tmp_path / "a.pftrace.gz")) > 7000


def test_what_is_said_about_the_trace(tmp_path: Path) -> None:
    trace = load(one_op(tmp_path / "a.trace"))
    FORMATS["chrome"].write(trace, tmp_path / "a.json")
    said = json.loads((tmp_path / "a.json").read_text())["otherData"]
    assert said["time_origin"] == "time 0 is the start of the recording, 2026-01-02T03:04:05+00:00"
    assert said["certificate"] == trace.certificate["verdict"]
    if HAS_PERFETTO:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets

        FORMATS["perfetto"].write(trace, tmp_path / "a.pftrace")
        packets = Packets.FromString((tmp_path / "a.pftrace").read_bytes()).packet
        (process,) = [p.track_descriptor.process for p in packets if p.track_descriptor.HasField("process")]
        assert {said["time_origin"], said["certificate"]} < set(process.process_labels)
