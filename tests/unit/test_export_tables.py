"""`tracer export --to parquet` and `--to speedscope`, read back and compared with the tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from gpu_trace import PATH
from synthetic import TraceWriter

from tracer.analysis.phases import phase_of_hops
from tracer.analysis.source_lines import SourceLines
from tracer.export.formats import FORMATS
from tracer.export.parquet import TABLES
from tracer.trace import Trace, load
from tracer.trace.tables import schema


@pytest.fixture(scope="module")
def gpu() -> Trace:
    return load(PATH)


def small_trace(path: Path) -> Trace:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::mm")
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    return load(writer.write(path))


def test_parquet_reads_back_equal(gpu: Trace, tmp_path: Path) -> None:
    assert FORMATS["parquet"].write(gpu, tmp_path / "run.parquet") == []
    for name in TABLES:
        table, read = getattr(gpu, name), pl.read_parquet(tmp_path / "run.parquet" / f"{name}.parquet")
        assert read.schema == table.schema, name
        assert read.equals(table), name
        assert dict(read.schema) == dict(pl.DataFrame(schema=getattr(schema, name.upper())).schema), name
    tables = {name for name, value in vars(gpu).items() if isinstance(value, pl.DataFrame)}
    assert tables == set(TABLES)


def test_parquet_of_a_trace_without_cuda_has_all_tables(tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "a.trace")
    FORMATS["parquet"].write(trace, tmp_path / "out")
    for name in TABLES:
        read = pl.read_parquet(tmp_path / "out" / f"{name}.parquet")
        assert read.equals(getattr(trace, name))
    assert len(pl.read_parquet(tmp_path / "out" / "hops.parquet")) == 1


def test_parquet_says_what_the_trace_was(gpu: Trace, tmp_path: Path) -> None:
    FORMATS["parquet"].write(gpu, tmp_path / "out")
    said = json.loads((tmp_path / "out" / "about.json").read_text())
    assert said["time_origin"] == "time 0 is the start of the recording"  # redacted: no time of day
    assert said["environment"]["torch"] == gpu.environment["torch"]
    assert said["certificate"]["hops"] == len(gpu.hops)


def speedscope(trace: Trace, folder: Path) -> dict[str, Any]:
    path = folder / "out.speedscope.json"
    assert FORMATS["speedscope"].write(trace, path) == []
    document = json.loads(path.read_text())
    check_shape(document)
    return document


def check_shape(document: dict[str, Any]) -> None:
    """As https://www.speedscope.app/file-format-schema.json describes a file with evented profiles."""
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(document) <= {"$schema", "shared", "profiles", "name", "exporter", "activeProfileIndex"}
    assert isinstance(document["name"], str)
    assert isinstance(document["exporter"], str)
    assert set(document["shared"]) == {"frames"}
    for frame in document["shared"]["frames"]:
        types = {"name": str, "file": str, "line": int, "col": int}
        assert "name" in frame
        assert all(type(value) is types[name] for name, value in frame.items())
    for profile in document["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "events"}
        assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
        assert type(profile["startValue"]) is type(profile["endValue"]) is int
        assert all(set(event) == {"type", "frame", "at"} for event in profile["events"])
        assert all(type(event["at"]) is int for event in profile["events"])
        times = [event["at"] for event in profile["events"]]
        assert [profile["startValue"], *times, profile["endValue"]] == sorted(
            [0, *times, profile["endValue"]]
        )
        frames = range(len(document["shared"]["frames"]))
        assert all(event["frame"] in frames for event in profile["events"])
        assert sum(weight for _, weight in samples(profile)) == profile["endValue"] - profile["startValue"]
    if document["profiles"]:
        assert document["activeProfileIndex"] in range(len(document["profiles"]))


def samples(profile: dict[str, Any]) -> list[tuple[tuple[int, ...], int]]:
    """Each path of frames that is opened, with the time in which it is the innermost one."""
    found: list[tuple[tuple[int, ...], int]] = []
    open_paths: list[int] = []
    before = profile["startValue"]
    for event in profile["events"]:
        if open_paths:
            path, weight = found[open_paths[-1]]
            found[open_paths[-1]] = path, weight + event["at"] - before
        before = event["at"]
        if event["type"] == "O":
            above = found[open_paths[-1]][0] if open_paths else ()
            open_paths.append(len(found))
            found.append(((*above, event["frame"]), 0))
        else:
            assert found[open_paths.pop()][0][-1] == event["frame"]
    assert not open_paths
    return found


def test_speedscope_has_the_self_time_of_every_path(gpu: Trace, tmp_path: Path) -> None:
    document = speedscope(gpu, tmp_path)
    names = [frame["name"] for frame in document["shared"]["frames"]]
    found: Counter[tuple[str, ...]] = Counter()
    for profile in document["profiles"]:
        paths_of = [tuple(names[frame] for frame in path) for path, _ in samples(profile)]
        for path, (_, weight) in zip(paths_of, samples(profile), strict=True):
            found[(profile["name"], *path)] += weight
        assert len(set(paths_of)) == len(paths_of)
    expected: Counter[tuple[str, ...]] = Counter()
    paths: list[tuple[str, ...]] = []
    threads = dict(gpu.threads.select("thread", "name").iter_rows())
    for row in gpu.hops.with_columns(pl.col(pl.Categorical).cast(pl.String)).iter_rows(named=True):
        name = " ".join([row["op"], f"[{row['key']}]", *([row["kernel"]] if row["kernel"] else [])])
        paths.append((*(paths[row["parent"]] if row["parent"] is not None else ()), name))
        expected[(f"{threads[row['thread']]} ({row['thread']})", *paths[-1])] += row["self_ns"]
    assert found == expected
    busiest = max(document["profiles"], key=lambda profile: profile["endValue"])
    assert document["profiles"][document["activeProfileIndex"]] == busiest


def test_speedscope_frames_say_where_a_kernel_was_registered(tmp_path: Path) -> None:
    document = speedscope(small_trace(tmp_path / "a.trace"), tmp_path)
    assert document["shared"]["frames"] == [{"name": "aten::mm [CPU]", "file": "RegisterCPU.cpp", "line": 1}]
    assert [profile["name"] for profile in document["profiles"]] == ["thread 1000 (1000)"]


def test_speedscope_keeps_processes_apart(tmp_path: Path) -> None:
    writer = TraceWriter()
    for process in (0, 1):
        writer.process(process)
        writer.hop(0, "aten::mm", process=process)
        lane = writer.lane(process=process)
        lane.enter(0)
        lane.exit()
    document = speedscope(load(writer.write(tmp_path / "a.trace")), tmp_path)
    assert [profile["name"] for profile in document["profiles"]] == [
        "thread 1000 (1000) of process 0",
        "thread 1000 (1000) of process 1",
    ]


def test_speedscope_of_a_trace_without_hops(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    assert speedscope(load(writer.write(tmp_path / "a.trace")), tmp_path)["profiles"] == []


@pytest.mark.parametrize("by", ["line", "module"])
def test_speedscope_below_lines_and_modules(gpu: Trace, tmp_path: Path, by: str) -> None:
    path = tmp_path / "out.speedscope.json"
    assert FORMATS["speedscope"].write(gpu, path, by=by) == []
    document = json.loads(path.read_text())
    check_shape(document)
    frames = document["shared"]["frames"]
    found: Counter[tuple[str, ...]] = Counter()
    for profile in document["profiles"]:
        for sample, weight in samples(profile):
            names = [frames[frame]["name"] for frame in sample]
            below = next((place for place, name in enumerate(names) if "::" in name and place), None)
            if below is None:
                assert weight == 0
                continue
            found[tuple(names[:below])] += weight
    expected: Counter[tuple[str, ...]] = Counter()
    hops = gpu.hops.with_columns(pl.col(pl.Categorical).cast(pl.String)).to_dicts()
    sources = SourceLines.of(gpu)
    for row, kind in zip(hops, phase_of_hops(gpu), strict=True):
        root = row
        while root["parent"] is not None:
            root = hops[root["parent"]]
        if by == "module":
            place = root["module"].split(".") if root["module"] is not None else ["no module"]
        elif root["source"] is None:
            place = ["no Python line"]
        else:
            place = ["  ".join(filter(None, (sources.name(root["source"]), sources.text(root["source"]))))]
        expected[(kind, *place)] += row["self_ns"]
    assert found == expected
    assert {kind for kind, *_ in found} == {"forward", "backward", "optimizer", "other"}


def test_the_usual_flame_graph_has_no_such_frames(gpu: Trace, tmp_path: Path) -> None:
    names = {frame["name"] for frame in speedscope(gpu, tmp_path)["shared"]["frames"]}
    assert not names & {"forward", "backward", "optimizer", "other"}
