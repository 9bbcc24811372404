"""A text that a trace has once, and names many times: what the tables and commands take for it."""

from __future__ import annotations

import resource
import struct
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from synthetic import CERTIFICATE, ENUMS, Lane, TraceWriter, tensor, text

from tracer.analysis.ranges import headings, paths_of_hops
from tracer.trace import Trace, load
from tracer.trace.bytes.documents import read_document
from tracer.trace.tables.texts import fitted, longest_that_fits, most_text

LONG = "n" * 8192


def bytes_of(column: pl.Series) -> int:
    if isinstance(column.dtype, pl.List):
        return bytes_of(column.explode())
    if isinstance(column.dtype, pl.Struct):
        return sum(bytes_of(column.struct.field(name)) for name in column.struct.fields)
    known = column.dtype in (pl.String, pl.Categorical)
    return int(column.cast(pl.String).str.len_bytes().sum()) if known else 0


def test_the_length_that_fits() -> None:
    uses = np.array([0, 0, 5, 0, 2])
    assert [longest_that_fits(uses, most) for most in (0, 6, 7, 13, 14, 16, 17, 18)] == [
        0,
        0,
        1,
        1,
        2,
        3,
        3,
        4,
    ]
    assert longest_that_fits(np.array([3]), 0) == 0


TABLE = pl.DataFrame(
    {
        "kind": pl.Series(["é" * 500, "b", None, "b"], dtype=pl.Categorical),
        "lists": [["c" * 3000, "d"], [], None, ["c" * 3000, None]],
        "frames": [[{"name": "e" * 2000, "line": 1}], None, [], [{"name": "f", "line": 2}]],
        "number": [1, 2, 3, 4],
    }
)


def test_texts_that_fit_are_as_they_were() -> None:
    whole = sum(bytes_of(column) for column in TABLE)
    assert fitted({"a": TABLE}, whole)["a"] is TABLE
    assert fitted({"a": TABLE.clear()}, 0)["a"].equals(TABLE.clear())


@pytest.mark.parametrize("most", [9003, 4000, 500, 10])
def test_the_longest_texts_are_cut(most: int) -> None:
    cut = fitted({"a": TABLE}, most)["a"]
    assert cut.schema == TABLE.schema
    assert most - 30 <= sum(bytes_of(column) for column in cut) <= most
    assert cut["lists"].list.len().to_list() == [2, 0, None, 2]
    assert cut["frames"].list.len().to_list() == [1, None, 0, 1]
    if most >= 500:
        assert cut["lists"][0].to_list()[0].endswith("c...")
        assert cut["lists"][0].to_list()[1] == "d"
        assert cut["kind"].to_list()[1:] == ["b", None, "b"]
        assert cut["frames"][3].to_list() == [{"name": "f", "line": 2}]


def test_a_text_is_cut_to_one_length_in_all_tables() -> None:
    name = "a" * 3000
    many, one = (pl.DataFrame({"name": pl.Series([name] * rows, dtype=pl.Categorical)}) for rows in (9, 1))
    cut = fitted({"hops": many, "modules": one, "threads": pl.DataFrame({"name": ["b"]})}, 9000)
    assert set(cut["hops"]["name"]) == set(cut["modules"]["name"]) == {"a" * 997 + "..."}
    assert cut["threads"]["name"].to_list() == ["b"]


def new(enums: object = None) -> tuple[TraceWriter, Lane]:
    writer = TraceWriter(hop_chunk_bytes=1 << 20)
    writer.process(0, certificate={**CERTIFICATE, "cuda": {"available": True}})
    if enums:
        writer.json(0, "enums", enums)
    writer.hop(0)
    return writer, writer.lane(0)


def native_stacks() -> TraceWriter:
    writer, lane = new()
    writer.function(2, "cudaMalloc")
    writer.symbol(0x1000, LONG, "/usr/lib/libtorch_cpu.so")
    lane.enter(0)
    for number in range(1, 401):
        lane.define_stack(number, *[0x1000] * 127, 0x1001 + number)
        lane.api(2, stack=number)
    lane.exit()
    return writer


def python_stacks() -> TraceWriter:
    writer, lane = new()
    lane.define(5, struct.pack("<2I", 1, 5) + text("/" + "f" * 8000 + ".py") + text("g"))
    for number in range(400):
        lane.define(5, struct.pack("<2I", 2 + 2 * number, number) + text("x.py") + text("h"))
        lane.define_python_stack(3 + 2 * number, *[1] * 127, 2 + 2 * number)
        lane.enter(0, source=3 + 2 * number)
        lane.exit()
    return writer


def libraries() -> TraceWriter:
    writer, lane = new()
    writer.json(
        0, "libraries", [{"path": f"/x/libcublas_{LONG * 9}", "base": 4096, "end": 1 << 40, "build_id": ""}]
    )
    writer.function(2, "cudaMalloc")
    lane.enter(0)
    for number in range(1, 101):
        lane.define_stack(number, *(4096 + 128 * number + place for place in range(128)))
        lane.api(2, stack=number)
    lane.exit()
    return writer


def kernels_without_names() -> TraceWriter:
    writer, lane = new()
    writer.json(0, "libraries", [{"path": f"/x/{LONG}", "base": 4096, "end": 1 << 40, "build_id": ""}])
    for number in range(4000):
        writer.hop(number + 1, address=8192 + number)
        lane.enter(number + 1)
        lane.exit()
    return writer


def keys_of_threads() -> TraceWriter:
    sets = [["Undefined", *(f"{letter}{number}{LONG}" for number in range(15))] for letter in "cd"]
    writer, lane = new({**ENUMS, "keys": ["Undefined", *sets, *(f"e{number}{LONG}" for number in range(40))]})
    for number in range(2000):
        masks = [number * prime << 15 | 0x7FFF | 1 << 50 for prime in (7919, 104729)]
        lane.define(16, struct.pack("<I2Q", number + 1, *masks) + text(""))
        lane.enter(0)
        lane.exit()
    return writer


def inputs() -> TraceWriter:
    writer, lane = new({**ENUMS, "dtypes": {"6": LONG}, "device_types": {"0": LONG}, "layouts": {"0": LONG}})
    for number in range(150):
        tensors = [tensor((1,), position=place) for place in range(100)]
        lane.define_signature(number + 1, *tensors, tensor((number,)))
        lane.enter(0, signature=number + 1)
        lane.exit()
    return writer


def ranges() -> TraceWriter:
    writer, lane = new()
    lane.define_string(1, LONG)
    for _ in range(6000):
        lane.range_enter(1)
        lane.enter(0)
        lane.exit()
    for _ in range(6000):
        lane.range_exit()
    return writer


def nodes_of_kernels() -> TraceWriter:
    writer, lane = new()
    nodes = [{"name": "n", "op": f"aten::a{number}", "source": f"a.py:{number}"} for number in range(3000)]
    writer.json(0, "compiled:1", {"uses": {"triton_poi_0": [{"nodes": nodes}]}, "how": "compiled"})
    lane.define_string(1, "\x1fcall:1")
    lane.define_string(2, "\x1fkernel:triton_poi_0")
    for _ in range(3000):
        for name in (1, 2):
            lane.range_enter(name)
        for _ in range(2):
            lane.range_exit()
    return writer


def ops_in_a_region() -> TraceWriter:
    writer, lane = new()
    writer.hop(1, op=f"aten::{LONG}")
    writer.json(0, "compiled:1", {"defined_at": "a.py:1", "uses": {"aten.mm": [{"nodes": []}]}})
    lane.define_string(1, "\x1fcall:1")
    lane.define(5, struct.pack("<2I", 1, 5) + text("/" + "f" * 8000 + ".py") + text("g"))
    lane.range_enter(1)
    for _ in range(15_000):
        lane.enter(1, source=1)
        lane.exit()
    lane.range_exit()
    return writer


def calls_of_a_region() -> TraceWriter:
    writer, lane = new()
    uses = {f"aten.a{number}": [{"nodes": [{"source": f"a.py:{number}"}]}] for number in range(4000)}
    writer.json(0, "compiled:1", {"uses": uses})
    lane.define_string(1, "\x1fcall:1")
    for _ in range(2000):
        lane.range_enter(1)
        lane.enter(0)
        lane.exit()
        lane.range_exit()
    return writer


MADE = (
    native_stacks,
    python_stacks,
    libraries,
    kernels_without_names,
    keys_of_threads,
    inputs,
    ranges,
    nodes_of_kernels,
    ops_in_a_region,
    calls_of_a_region,
)


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_each_table_has_texts_in_proportion_to_the_trace(made: object, tmp_path: Path) -> None:
    assert callable(made)
    path = made().write(tmp_path / "x.trace")
    size, before = path.stat().st_size, peak()
    begin = time.process_time()
    trace = load(path)
    used = {name: sum(map(bytes_of, table)) for name, table in tables_of(trace).items()}
    assert max(used.values()) <= most_text(size)
    assert sum(map(len, set(trace.hops["kernel"].drop_nulls()))) < 2 << 20
    assert peak() - before < 2 * most_text(2 * size)
    assert time.process_time() - begin < 5


def tables_of(trace: Trace) -> dict[str, pl.DataFrame]:
    return {name: table for name, table in vars(trace).items() if isinstance(table, pl.DataFrame)}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_ranges_in_each_other_have_headings_of_a_bounded_length(tmp_path: Path) -> None:
    trace = load(ranges().write(tmp_path / "x.trace"))
    numbers, paths = paths_of_hops(trace.hops, trace.ranges)
    assert len(set(numbers.tolist())) == 6000
    assert max(map(len, paths)) == 128
    texts = headings(trace.hops, trace.ranges)
    assert bytes_of(texts) < 17 << 20
    assert texts[5999].endswith("n...")


def test_names_of_enumerations_and_paths_of_libraries_are_cut() -> None:
    document = f'{{"num_backends": 1, "keys": ["{LONG}", ["{LONG}", "b"]], "dtypes": {{"6": "{LONG}"}}}}'
    enums, damaged = read_document("enums", document.encode())
    assert not damaged
    assert enums["keys"] == ["n" * 64, ["n" * 64, "b"]]
    assert enums["dtypes"] == {"6": "n" * 64}
    libraries, _ = read_document("libraries", f'[{{"path": "/{LONG * 9}"}}]'.encode())
    assert len(libraries[0]["path"]) == 8192
