"""API and library calls: how they nest, which hop made them, their arguments."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import AUTOGRAD_CPU, Lane, TraceWriter

from examples import examples
from tracer.trace import Trace, load
from tracer.trace.tables.call_arguments import hexadecimal

NS = 10
GET_DEVICE, LAUNCH, COPY, SGEMM, DRIVER_LAUNCH, MALLOC = 17, 211, 41, 5, 307, 20
COPY_KINDS = {"cudaMemcpyHostToHost": 0, "cudaMemcpyHostToDevice": 1, "cudaMemcpyDefault": 4}


def new_writer(processes: int = 1) -> TraceWriter:
    writer = TraceWriter()
    for process in range(processes):
        writer.process(process, how=0 if process == 0 else 2)
        for number, op in enumerate(("aten::outer", "aten::inner")):
            writer.hop(number, op, process=process)
        define_functions(writer, process)
    return writer


def define_functions(writer: TraceWriter, process: int = 0) -> None:
    writer.enumeration("cudaMemcpyKind", process, **COPY_KINDS)
    writer.enumeration("cublasOperation_t", process, CUBLAS_OP_N=0, CUBLAS_OP_T=1)
    writer.function(GET_DEVICE, "cudaGetDevice", ("enter", "device", "int *", 0, 8), process=process)
    writer.function(
        COPY,
        "cudaMemcpyAsync",
        ("enter", "dst", "void *", 0, 8),
        ("enter", "src", "const void *", 8, 8),
        ("enter", "count", "size_t", 16, 8),
        ("enter", "kind", "cudaMemcpyKind", 24, 4),
        ("enter", "stream", "cudaStream_t", 32, 8),
        process=process,
    )
    writer.function(LAUNCH, "cudaLaunchKernel", process=process)
    writer.function(
        MALLOC,
        "cudaMalloc",
        ("enter", "devPtr", "void **", 0, 8),
        ("enter", "size", "size_t", 8, 8),
        ("exit", "*devPtr", "void *", 0, 8),
        process=process,
    )
    writer.function(DRIVER_LAUNCH, "cuLaunchKernel", domain=1, process=process)
    writer.function(
        SGEMM,
        "cublasSgemm_v2",
        ("enter", "transa", "cublasOperation_t", 0, 4),
        ("enter", "m", "int", 4, 4),
        ("enter", "*alpha", "float", 8, 4),
        domain=2,
        process=process,
    )


def read(writer: TraceWriter, tmp_path: Path) -> Trace:
    return load(writer.write(tmp_path / "x.trace"))


def words(layout: str, *values: Any) -> tuple[int, ...]:
    data = struct.pack("<" + layout, *values)
    data = data.ljust(-(-len(data) // 8) * 8, b"\0")
    return struct.unpack(f"<{len(data) // 8}Q", data)


# ---- nesting --------------------------------------------------------------------------------------


def test_a_call_in_a_python_kernel_has_the_line_that_runs(tmp_path: Path) -> None:
    """Of a backward hop it is the forward line, as the hop's own is."""
    writer = new_writer()
    lane = writer.lane()
    lane.define_source(1, "train.py", 3)
    lane.define_source(2, "kernel.py", 9)
    lane.define_string(1, "AddBackward0")
    lane.enter(0, AUTOGRAD_CPU, source=1, sequence=0)
    lane.api(GET_DEVICE, 0, correlation=1)
    lane.api(LAUNCH, correlation=2, source=2)
    lane.exit()
    lane.node(1, sequence=0, made_by=1)
    lane.enter(0, source=1)
    lane.api(LAUNCH, correlation=3, source=2)
    lane.exit()
    calls = read(writer, tmp_path).api_calls
    assert calls["source"].to_list() == ["train.py:3", "kernel.py:9", "train.py:3"]


def test_a_call_belongs_to_the_innermost_open_hop(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.define_source(1, "train.py", 3)
    lane.define_source(2, "setup.py", 9)
    lane.api(GET_DEVICE, 0, correlation=1, source=2)
    lane.enter(0, source=1)
    lane.api(GET_DEVICE, 0, correlation=2)
    lane.enter(1)
    start = lane.api(LAUNCH, correlation=3)
    lane.exit()
    lane.api(GET_DEVICE, 0, correlation=4)
    lane.exit()
    lane.api(GET_DEVICE, 0, correlation=5)
    calls = read(writer, tmp_path).api_calls
    assert calls.select("id", "hop", "name", "source", "correlation").rows() == [
        (0, None, "cudaGetDevice", "setup.py:9", 1),
        (1, 0, "cudaGetDevice", "train.py:3", 2),
        (2, 1, "cudaLaunchKernel", "train.py:3", 3),
        (3, 0, "cudaGetDevice", "train.py:3", 4),
        (4, None, "cudaGetDevice", None, 5),
    ]
    assert calls.row(2, named=True)["start_ns"] == start * NS
    assert calls.row(2, named=True)["end_ns"] == (start + 1) * NS
    assert calls["domain"].unique().to_list() == ["runtime"]
    assert calls["role"].to_list() == ["query", "query", "launch", "query", "query"]


def test_library_calls_enclose_api_calls_and_runtime_calls_those_of_the_driver(tmp_path: Path) -> None:
    writer = new_writer()
    writer.function(6, "cublasLtMatmul", domain=2)
    lane = writer.lane()
    lane.enter(0)
    lane.library_enter(SGEMM, *words("2if", 1, 64, 0.5))
    lane.api(GET_DEVICE, 0, correlation=1)
    lane.library_enter(6)
    lane.api_enter(LAUNCH, correlation=2)
    lane.api(DRIVER_LAUNCH, correlation=3, driver=True)
    lane.call_exit()
    lane.call_exit()
    lane.call_exit(result=7)
    lane.exit()
    trace = read(writer, tmp_path)
    assert trace.api_calls.select(
        "name", "domain", "hop", "parent", "library_call_id", "library_call"
    ).rows() == [
        ("cudaGetDevice", "runtime", 0, None, 0, "cublasSgemm_v2"),
        ("cudaLaunchKernel", "runtime", 0, None, 1, "cublasSgemm_v2"),
        ("cuLaunchKernel", "driver", 0, 1, 1, "cublasSgemm_v2"),
    ]
    assert trace.api_calls["library"].unique().to_list() == ["libcublas"]
    assert trace.library_calls.select(
        "id", "hop", "parent", "library", "name", "arguments", "result"
    ).rows() == [
        (0, 0, None, "libcublas", "cublasSgemm_v2", "transa=CUBLAS_OP_T, m=64, *alpha=0.5", 7),
        (1, 0, 0, "libcublasLt", "cublasLtMatmul", "", 0),
    ]


def test_a_killed_process_leaves_its_calls_open(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.enter(0)
    lane.library_enter(SGEMM)
    lane.api(GET_DEVICE, 0)
    lane.api_enter(LAUNCH)
    last = lane.enter(1)
    trace = read(writer, tmp_path)
    assert trace.api_calls.select("name", "open", "result").rows() == [
        ("cudaGetDevice", False, 0),
        ("cudaLaunchKernel", True, None),
    ]
    assert trace.library_calls.select("open", "result", "end_ns").rows() == [(True, None, last * NS)]
    assert trace.api_calls["end_ns"][1] == last * NS


def test_a_call_whose_exit_is_lost_ends_where_the_thread_is_seen_outside_of_it(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.api_enter(LAUNCH)
    lane.open_calls.pop()
    seen = lane.api(GET_DEVICE, 0)
    trace = read(writer, tmp_path)
    assert trace.api_calls.select("end_ns", "open", "result").rows()[0] == (seen * NS, False, None)
    assert "1 API or library call without a recorded exit" in trace.certificate["why"]
    assert not trace.certificate["cuda"]["reconciles"]


def test_calls_of_threads_and_processes_keep_apart(tmp_path: Path) -> None:
    writer = new_writer(2)
    rows = []
    for process in (1, 0):
        for number in (1, 0):
            lane = writer.lane(process, number, thread=1000 + 10 * process + number, torch_thread=number + 1)
            lane.enter(0)
            for _ in range(3):
                tick = lane.api(COPY, *words("3Qi4xQ", 1, 2, tick_of(lane), 1, 0), correlation=1)
                rows.append((process, lane.thread, tick * NS, "cudaMemcpyAsync"))
            lane.exit()
    calls = read(writer, tmp_path).api_calls
    assert calls.select("process", "thread", "start_ns", "name").rows() == sorted(rows)
    assert calls["hop"].to_list() == [hop for hop in range(4) for _ in range(3)]
    counts = [int(text.split("count=")[1].split(",")[0]) for text in calls["arguments"]]
    assert [(count + 1) * NS for count in counts] == calls["start_ns"].to_list()


def test_arguments_and_enclosing_calls_of_each_thread_of_a_lane_are_its_own(tmp_path: Path) -> None:
    writer = new_writer()
    lanes = [writer.lane(0, number, thread=1000 + 10 * number, torch_thread=number) for number in range(2)]
    for nth in range(3):
        for number, lane in enumerate(lanes):
            lane.adopt(1000 + 10 * number + nth, torch_thread=10 * number + nth + 1)
            lane.api(GET_DEVICE, lane.thread)
            lane.api_enter(MALLOC, lane.thread, 1)
            lane.api(DRIVER_LAUNCH, driver=True)
            lane.call_exit(lane.thread)
    calls = read(writer, tmp_path).api_calls
    threads = calls["thread"].unique().sort().to_list()
    assert len(threads) == 6
    assert calls["arguments"].to_list() == [
        text
        for thread in threads
        for text in (f"device={thread:#x}", f"devPtr={thread:#x}, size=1, *devPtr={thread:#x}", "")
    ]
    assert calls["parent"].to_list() == [
        parent for number in range(6) for parent in (None, None, 3 * number + 1)
    ]


def tick_of(lane: Lane) -> int:
    return lane.file.ticks


def test_a_forked_process_knows_the_functions_of_its_parent(tmp_path: Path) -> None:
    writer = new_writer()
    writer.process(1, how=1, parent_pid=100)
    writer.lane(1).api(GET_DEVICE, 0)
    assert read(writer, tmp_path).api_calls.select("process", "name").rows() == [(1, "cudaGetDevice")]


def test_a_function_that_is_not_defined_has_no_name(tmp_path: Path) -> None:
    writer = new_writer()
    writer.lane().api(999)
    trace = read(writer, tmp_path)
    assert trace.api_calls.select("name", "role", "arguments").rows() == [(None, None, "")]
    assert "1 API or library call of an unknown function" in trace.certificate["verdict"]


def test_the_device_kernel_that_a_call_launches(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.define_string(4, "_Z6kernelv")
    lane.api(LAUNCH, kernel=4)
    lane.api(LAUNCH, captured=True)
    calls = read(writer, tmp_path).api_calls
    assert calls.select("kernel", "captured").rows() == [("_Z6kernelv", False), (None, True)]


# ---- arguments -----------------------------------------------------------------------------------


def test_arguments_are_text_and_typed_columns(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    far = 0xFFFF_8000_0000_1230
    lane.api(COPY, *words("3Qi4xQ", far, 0, 4096, 1, 0xABC))
    lane.api(GET_DEVICE, 0x7FFE)
    lane.api(COPY, *words("3Qi4xQ", 1, 2, 1 << 63, 77, 0))
    lane.api_enter(MALLOC, 0x10, 512)
    lane.call_exit(1 << 63 | 5)
    lane.api_enter(MALLOC, 0x10, 513)
    lane.call_exit(result=2)
    trace = read(writer, tmp_path)
    assert trace.api_calls["arguments"].to_list() == [
        f"dst={far:#x}, src=0x0, count=4096, kind=cudaMemcpyHostToDevice, stream=0xabc",
        "device=0x7ffe",
        "dst=0x1, src=0x2, count=9223372036854775808, kind=77, stream=0x0",
        "devPtr=0x10, size=512, *devPtr=0x8000000000000005",
        "devPtr=0x10, size=513",
    ]
    copies = trace.arguments("cudaMemcpyAsync")
    assert copies.columns == ["id", "dst", "src", "count", "kind", "stream"]
    assert copies.rows() == [
        (0, far, 0, 4096, "cudaMemcpyHostToDevice", 0xABC),
        (2, 1, 2, 1 << 63, "77", 0),
    ]
    assert copies.schema["id"] == trace.api_calls.schema["id"]
    assert copies.schema["count"] == pl.UInt64
    assert trace.arguments("cudaMalloc").rows() == [(3, 0x10, 512, 1 << 63 | 5), (4, 0x10, 513, None)]
    with pytest.raises(KeyError, match="no call of cudaFree was recorded"):
        trace.arguments("cudaFree")


def test_arguments_of_library_calls_have_their_ids(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.api(GET_DEVICE, 0)
    for m in (-3, 8):
        lane.library_enter(SGEMM, *words("2if", 0, m, 1.5))
        lane.call_exit()
    trace = read(writer, tmp_path)
    assert trace.arguments("cublasSgemm_v2").rows() == [
        (0, "CUBLAS_OP_N", -3, 1.5),
        (1, "CUBLAS_OP_N", 8, 1.5),
    ]


def test_every_type_of_field(tmp_path: Path) -> None:
    writer = new_writer()
    fields = [
        ("short", "h", -2, -2, "-2"),
        ("unsigned char", "B", 250, 250, "250"),
        ("bool", "?", True, 1, "1"),
        ("long long", "q", -(1 << 40), -(1 << 40), str(-(1 << 40))),
        ("unsigned int", "I", 1 << 31, 1 << 31, "2147483648"),
        ("double", "d", 0.25, 0.25, "0.25"),
        ("__half", "e", 0.5, 0.5, "0.5"),
        ("enum unknown_t", "i", -1, -1, "-1"),
        ("const enum cudaMemcpyKind", "i", 4, "cudaMemcpyDefault", "cudaMemcpyDefault"),
        ("const struct opaque * const", "Q", 255, 255, "0xff"),
        ("uuid_t", "16s", b"\x01\xab" + bytes(14), "01ab" + "00" * 14, "01ab" + "00" * 14),
    ]
    layout, offset = [], 0
    for number, (kind, code, *_) in enumerate(fields):
        size = struct.calcsize(code)
        layout.append(("enter", f"f{number}", kind, offset, size))
        offset += size
    writer.function(800, "everything", *layout, ("enter", "beyond", "int", 8 * 24, 4), domain=1)
    packed = words("".join(code for _, code, *_ in fields), *(value for _, _, value, *_ in fields))
    writer.lane().api(800, *packed, driver=True)
    trace = read(writer, tmp_path)
    expected = [f"f{number}={text}" for number, (*_, text) in enumerate(fields)]
    assert trace.api_calls["arguments"].to_list() == [", ".join(expected)]
    row = trace.arguments("everything").row(0)
    assert row == (0, *(value for *_, value, _ in fields), None)


def test_one_name_with_two_layouts_has_the_columns_of_both(tmp_path: Path) -> None:
    writer = new_writer()
    writer.function(900, "cudaFoo", ("enter", "a", "int", 0, 4))
    writer.function(901, "cudaFoo", ("enter", "a", "int", 0, 4), ("enter", "b", "size_t", 8, 8))
    lane = writer.lane()
    lane.api(901, 1, 2)
    lane.api(900, 3)
    assert read(writer, tmp_path).arguments("cudaFoo").select("id", "a", "b").rows() == [
        (0, 1, 2),
        (1, 3, None),
    ]


@pytest.mark.parametrize("layout", ["", "enter\ta\n", "enter\ta\tint\tx\t4\n", "never\ta\tint\t0\t4"])
def test_a_layout_of_another_form_is_no_error(tmp_path: Path, layout: str) -> None:
    from synthetic import definition, text

    writer = new_writer()
    writer.process_definitions[0].append(
        definition(9, struct.pack("<2I", 0, 950) + text("odd") + text(layout))
    )
    writer.lane().api(950, 1)
    trace = read(writer, tmp_path)
    assert trace.api_calls["arguments"].to_list() == [""]
    assert trace.arguments("odd").rows() == [(0,)]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=30))
def test_hexadecimal_is_that_of_python(values: list[int]) -> None:
    import numpy as np

    assert hexadecimal(np.array(values, np.uint64)).to_list() == [f"{value:#x}" for value in values]


# ---- any calls read back ----------------------------------------------------------------------------


class Step(NamedTuple):
    """Enters something and then leaves the innermost `leaves` things."""

    kind: str
    arguments: tuple[int, ...]
    leaves: int


actions = st.builds(
    Step,
    st.sampled_from(["hop", "api", "driver", "library"]),
    st.lists(st.integers(0, 2**64 - 1), max_size=24).map(tuple),
    st.integers(0, 3),
)


@examples(150)
@given(steps=st.lists(actions, max_size=60), chunk_words=st.integers(40, 200))
def test_any_calls_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], chunk_words: int
) -> None:
    writer = new_writer()
    writer.hop_chunk_bytes = 64 + 8 * chunk_words
    layout = [("enter", f"a{number}", "void *", 8 * number, 8) for number in range(24)]
    for domain in range(3):
        writer.function(600, f"f{domain}", *layout, domain=domain)
    lane = writer.lane()
    stack: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    hops = libraries = 0
    for action in steps:
        # A call stays within the hop that made it, and a hop that it makes within the call.
        if len([thing for thing in stack if thing["kind"] != "hop"]) >= 15:
            break
        row: dict[str, Any] = {"kind": action.kind}
        calls = [thing for thing in stack if thing["kind"] != "hop"]
        if action.kind == "hop":
            row["id"] = hops
            hops += 1
            lane.enter(0)
        else:
            row["hop"] = next((thing["id"] for thing in reversed(stack) if thing["kind"] == "hop"), None)
            row["library"] = next((call["id"] for call in reversed(calls) if call["kind"] == "library"), None)
            if action.kind == "library":
                row["id"] = libraries
                libraries += 1
                row["start"] = lane.library_enter(600, *action.arguments)
            else:
                row["start"] = lane.api_enter(600, *action.arguments, driver=action.kind == "driver")
            row["text"] = ", ".join(f"a{n}={value:#x}" for n, value in enumerate(action.arguments))
            rows.append(row)
        row["end"] = None
        stack.append(row)
        for _ in range(min(action.leaves, len(stack))):
            left = stack.pop()
            left["end"] = lane.exit() if left["kind"] == "hop" else lane.call_exit()
    trace = load(writer.write(tmp_path_factory.mktemp("calls") / "calls.trace"))
    assert trace.certificate["torn_events"] == trace.certificate["damaged_chunks"] == 0
    assert len(trace.hops) == hops
    for kinds, table, link in (
        (("api", "driver"), trace.api_calls, "library_call_id"),
        (("library",), trace.library_calls, "parent"),
    ):
        wanted = [row for row in rows if row["kind"] in kinds]
        assert table["start_ns"].to_list() == [row["start"] * NS for row in wanted]
        assert table["hop"].to_list() == [row["hop"] for row in wanted]
        assert table[link].to_list() == [row["library"] for row in wanted]
        assert table["arguments"].to_list() == [row["text"] for row in wanted]
        assert table["open"].to_list() == [row["end"] is None for row in wanted]
        closed = table.filter(~pl.col("open"))["end_ns"].to_list()
        assert closed == [row["end"] * NS for row in wanted if row["end"] is not None]
