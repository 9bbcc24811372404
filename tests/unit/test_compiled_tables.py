"""Tables of compiled code, from tracer's own ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from synthetic import CERTIFICATE, Lane, TraceWriter

from tracer.analysis.links import combine
from tracer.analysis.trees import Forest
from tracer.trace import Trace, load

LAUNCH = 211
NODES = [
    {"name": "mul", "op": "aten::mul", "source": "net.py:7", "dynamo": "y"},
    {"name": "gelu", "op": "aten::gelu", "source": "net.py:8", "dynamo": "z"},
]
REGION: dict[str, Any] = {
    "function": "forward",
    "defined_at": "net.py:5",
    "direction": "forward",
    "compile_id": "0/1",
    "cache": "miss",
    "recompiled": "0/0: size of 'x' changed",
    "graph_id": 3,
    "kind": "CompiledFxGraph",
    "generated": "cabc.py",
    "kernels": {"cpp_fused_gelu_mul_0": {"language": "C++", "line": 12, "threads": 4}},
    "how": "compiled",
    "uses": {"cpp_fused_gelu_mul_0": [{"nodes": NODES, "bytes": 64}, {"nodes": NODES[:1], "bytes": 32}]},
    "hidden": None,
}
NAMES = {
    1: "\x1fcall:1",
    2: "\x1fkernel:cpp_fused_gelu_mul_0",
    3: "\x1fphase:dynamo:0/1",
    4: "mine",
    5: "\x1fkernel:triton_poi_fused_add_3",
    6: "\x1fbench:triton_poi_fused_add_3",
    7: "\x1fcall:2",
    8: "\x1fkernel:double#4",
    9: "\x1fimport:torch._dynamo",
}


def new_lane(writer: TraceWriter, process: int = 0) -> Lane:
    if process == 0:
        writer.process(0)
        writer.hop(0, "aten::mm")
        writer.function(LAUNCH, "cudaLaunchKernel")
    lane = writer.lane(process=process, thread=1000 + process)
    for number, name in NAMES.items():
        lane.define_string(number, name)
    lane.define_source(1, "train.py", 30)
    return lane


def read(writer: TraceWriter, tmp_path: Path) -> Trace:
    return load(writer.write(tmp_path / "x.trace"))


def a_call(lane: Lane) -> None:
    """A kernel, a hop, and the kernel again, in a call of region 1."""
    lane.range_enter(1, source=1)
    lane.range_enter(2)
    lane.range_exit()
    lane.enter(0)
    lane.exit()
    lane.range_enter(2)
    lane.range_exit()
    lane.range_exit()


def test_what_runs_in_a_decorated_function_has_the_line_of_its_def(tmp_path: Path) -> None:
    """Code that Dynamo generated has one line, the first decorator's. Outside of it that line may run too.

    The line that runs is the caller's.
    """
    writer = TraceWriter()
    lane = new_lane(writer)
    lane.define_source(2, "net.py", 3)
    writer.json(0, "compiled:1", REGION | {"decorated_at": "net.py:3"})
    lane.enter(0, source=2)
    lane.exit()
    lane.range_enter(1, source=1)
    lane.range_enter(2, source=2)
    lane.range_exit()
    for source in (2, 1):
        lane.enter(0, source=source)
        lane.exit()
    lane.range_exit()
    trace = read(writer, tmp_path)
    assert trace.hops["called_from"].to_list() == ["net.py:3", "train.py:30", "train.py:30"]
    assert trace.hops["source"].to_list() == ["net.py:3", "net.py:5", "train.py:30"]
    assert trace.compiled_kernels["called_from"].to_list() == ["net.py:5"]
    assert trace.compiled_calls["called_from"].to_list() == ["train.py:30"]


def test_a_function_of_an_installed_library_has_the_line_that_called_it(tmp_path: Path) -> None:
    """A line of a library says nothing to its user, and would be the first of a table."""
    writer = TraceWriter()
    lane = new_lane(writer)
    library = "/home/me/venv/lib/python3.11/site-packages/models/net.py"
    lane.define_source(2, library, 3)
    lane.define_source(3, "train.py", 31)
    writer.json(0, "compiled:1", REGION | {"decorated_at": f"{library}:3", "defined_at": f"{library}:5"})
    for caller in (1, 3):
        lane.range_enter(1, source=caller)
        lane.enter(0, source=2)
        lane.exit()
        lane.range_exit()
    trace = read(writer, tmp_path)
    for column in ("called_from", "source"):
        assert trace.hops[column].to_list() == ["train.py:30", "train.py:31"]
    assert trace.compiled_calls["defined_at"].to_list() == [f"{library}:5"] * 2


def test_imports_are_rows_of_their_own(tmp_path: Path) -> None:
    """One in a call of compiled code does not come between it and its kernels."""
    writer = TraceWriter()
    lane = new_lane(writer)
    writer.json(0, "compiled:1", REGION)
    lane.range_enter(9, source=1)
    lane.range_exit()
    lane.range_enter(1, source=1)
    lane.range_enter(9)
    lane.range_enter(2)
    lane.range_exit()
    lane.range_exit()
    lane.range_exit()
    trace = read(writer, tmp_path)
    assert trace.imports["module"].to_list() == ["torch._dynamo"] * 2
    assert trace.imports["source"].to_list() == ["train.py:30", None]
    assert (trace.imports["end_ns"] > trace.imports["start_ns"]).all()
    assert trace.compiled_kernels["compiled_call"].to_list() == [0]
    assert trace.ranges.is_empty()


def test_calls_and_kernels_have_what_their_region_says(tmp_path: Path) -> None:
    writer = TraceWriter()
    lane = new_lane(writer)
    writer.json(0, "compiled:1", REGION)
    a_call(lane)
    trace = read(writer, tmp_path)
    (call,) = trace.compiled_calls.rows(named=True)
    wanted = {name: REGION[name] for name in ("function", "defined_at", "direction", "compile_id", "cache")}
    assert wanted.items() <= call.items()
    assert (call["region"], call["called_from"], call["recompiled"], call["visible"], call["kernels"]) == (
        *(1, "train.py:30", "0/0: size of 'x' changed"),
        *(True, 1),
    )
    first, second = trace.compiled_kernels.rows(named=True)
    # The second run is the second place where the region runs this kernel.
    assert (first["fused_ops"], first["sources"]) == (["aten::mul", "aten::gelu"], ["net.py:7", "net.py:8"])
    assert (second["fused_ops"], second["sources"]) == (["aten::mul"], ["net.py:7"])
    assert (first["bytes"], second["bytes"], first["threads"], first["generated"]) == (
        64,
        32,
        4,
        "cabc.py:12",
    )
    assert {first["compiled_call"], second["compiled_call"]} == {0}
    assert first["origin"] == "compiled"


def test_what_runs_in_a_call_is_below_it_and_what_is_around_it_above(tmp_path: Path) -> None:
    writer = TraceWriter()
    lane = new_lane(writer)
    writer.json(0, "compiled:1", REGION)
    lane.enter(0)  # an op that calls compiled code
    a_call(lane)
    lane.exit()
    lane.enter(0)
    lane.exit()
    trace = read(writer, tmp_path)
    rows = combine(trace).rows
    kinds, depths = rows["kind"].cast(pl.String).to_list(), Forest.of(rows).depth.tolist()
    assert list(zip(kinds, depths, strict=True)) == [
        ("call", 0),
        ("compiled", 1),
        ("compiled kernel", 2),
        ("call", 2),
        ("compiled kernel", 2),
        ("call", 0),
    ]
    assert trace.compiled_calls["hop"].to_list() == [0]


def test_ops_of_a_region_have_the_lines_of_its_nodes_if_their_number_agrees(tmp_path: Path) -> None:
    def sources(places: int) -> list[str | None]:
        writer = TraceWriter()
        lane = new_lane(writer)
        nodes = [{"nodes": [{"name": "mm", "source": f"net.py:{9 + n}"}]} for n in range(places)]
        writer.json(0, "compiled:1", {**REGION, "uses": {"extern_kernels.mm": nodes}})
        lane.range_enter(1, source=1)
        for _ in range(2):
            lane.enter(0, source=1)
            lane.enter(0)
            lane.exit()
            lane.exit()
        lane.range_exit()
        lane.enter(0, source=1)
        lane.exit()
        return read(writer, tmp_path).hops["source"].to_list()

    assert sources(2) == ["net.py:9", "net.py:9", "net.py:10", "net.py:10", "train.py:30"]
    assert sources(3) == ["train.py:30"] * 5


def test_ranges_of_the_program_do_not_show_those_of_tracer(tmp_path: Path) -> None:
    writer = TraceWriter()
    lane = new_lane(writer)
    lane.range_enter(1)
    lane.range_enter(4)
    lane.range_enter(2)
    lane.enter(0)
    lane.exit()
    lane.range_enter(4)
    lane.range_exit()
    lane.range_exit()
    lane.enter(0)
    lane.exit()
    lane.range_exit()
    lane.enter(0)
    lane.exit()
    lane.range_exit()
    trace = read(writer, tmp_path)
    assert trace.ranges.select("name", "parent").rows() == [("mine", None), ("mine", 0)]
    assert trace.hops["range"].to_list() == ["mine", "mine", None]
    assert len(trace.compiled_calls) == len(trace.compiled_kernels) == 1


def test_an_unknown_kernel_has_the_ops_of_its_name_and_no_line(tmp_path: Path) -> None:
    writer = TraceWriter()
    lane = new_lane(writer)
    writer.json(0, "compiled:2", {"kind": "CompiledFxGraph", "hidden": None})
    lane.range_enter(7)
    lane.range_enter(6)
    lane.range_enter(5)
    lane.range_exit()
    lane.range_exit()
    lane.range_enter(5)
    lane.range_exit()
    lane.range_exit()
    trace = read(writer, tmp_path)
    kernels = trace.compiled_kernels
    assert kernels["autotuning"].to_list() == [True, True, False]
    assert kernels["fused_ops"].to_list() == [["add"]] * 3
    assert kernels["origin"].unique().to_list() == ["name"]
    assert kernels["source"].null_count() == 3
    code = trace.certificate["compiled"]
    assert (code["kernel_runs"], code["from_nodes"], code["by_name"]) == (1, 0, 1)


def test_a_kernel_on_the_gpu_has_the_run_that_launched_it(tmp_path: Path) -> None:
    writer = TraceWriter()
    lane = new_lane(writer)
    writer.json(0, "compiled:1", REGION)
    lane.range_enter(1)
    lane.range_enter(2)
    lane.api(LAUNCH, correlation=5)
    lane.range_exit()
    lane.api(LAUNCH, correlation=6)
    lane.range_exit()
    writer.kernel(5, start=50, end=60)
    writer.kernel(6, start=60, end=70)
    trace = read(writer, tmp_path)
    assert trace.gpu_activities["compiled_kernel"].to_list() == [0, None]
    code = trace.certificate["compiled"]
    assert [code[f"kernels{of}"] for of in ("", "_of_ops", "_of_nodes", "_of_neither")] == [2, 0, 1, 1]
    rows = combine(trace).rows
    assert rows["kind"].cast(pl.String).to_list() == [
        *("compiled", "compiled kernel", "api", "kernel"),
        *("api", "kernel"),
    ]
    assert Forest.of(rows).depth.tolist() == [0, 1, 2, 3, 1, 2]


def test_a_triton_kernel_has_what_its_launch_says(tmp_path: Path) -> None:
    writer = TraceWriter()
    lane = new_lane(writer)
    facts = {"defined_at": "kernels.py:3", "registers": 32, "spills": 0, "num_warps": 4}
    writer.json(0, "launch:4", facts)
    lane.range_enter(8, source=1)
    lane.range_exit()
    (kernel,) = read(writer, tmp_path).compiled_kernels.rows(named=True)
    assert (kernel["name"], kernel["language"], kernel["compiled_call"]) == ("double", "Triton", None)
    assert (kernel["registers"], kernel["spills"], kernel["num_warps"]) == (32, 0, 4)
    assert (kernel["origin"], kernel["source"], kernel["generated"]) == (
        *("written", "train.py:30"),
        "kernels.py:3",
    )


def test_a_forked_process_calls_what_its_parent_described(tmp_path: Path) -> None:
    writer = TraceWriter()
    a_call(new_lane(writer))
    writer.json(0, "compiled:1", REGION)
    writer.process(1, how=1, parent_pid=100)
    a_call(new_lane(writer, process=1))
    trace = read(writer, tmp_path)
    assert trace.compiled_calls["function"].to_list() == ["forward"] * 2


def test_phases_are_nested_and_have_their_compilation(tmp_path: Path) -> None:
    writer = TraceWriter()
    lane = new_lane(writer)
    lane.range_enter(3)
    lane.range_enter(3)
    lane.range_exit()
    lane.range_exit()
    phases = read(writer, tmp_path).compile_phases
    assert phases.select("name", "compile_id", "parent").rows() == [
        ("dynamo", "0/1", None),
        ("dynamo", "0/1", 0),
    ]


def test_the_certificate_says_which_calls_are_hidden_and_why(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process(
        0,
        certificate={
            **CERTIFICATE,
            "compiled_calls": 3,
            "compiled": {
                "breaks": [{"reason": "print", "source": "a.py:3", "times": 2}, 5],
                "missing": ["torch.x"],
            },
        },
    )
    writer.hop(0)
    lane = writer.lane()
    for number, name in NAMES.items():
        lane.define_string(number, name)
    writer.json(0, "compiled:1", REGION)
    writer.json(0, "compiled:2", {**REGION, "hidden": "cpp_wrapper calls its kernels from C++"})
    a_call(lane)
    lane.range_enter(7)
    lane.range_exit()
    certificate = read(writer, tmp_path).certificate
    code = certificate["compiled"]
    assert (code["calls"], code["calls_not_visible"], code["regions"]) == (3, 1, 2)
    assert code["breaks"] == [{"reason": "print", "source": "a.py:3", "times": 2}]
    assert code["missing"] == ["torch.x"]
    assert certificate["not_visible"][0] == (
        "1 call of code compiled by torch.compile or AOTInductor: its kernels are not recorded "
        "(cpp_wrapper calls its kernels from C++)"
    )
    assert not certificate["complete"]


def test_hostile_documents_are_read(tmp_path: Path) -> None:
    for damaged in (
        {"uses": {"cpp_fused_gelu_mul_0": [{"nodes": [{"op": 5}, None, 7], "bytes": -1}, 3]}, "kernels": 7},
        {"uses": None, "kernels": {"cpp_fused_gelu_mul_0": None}, "hidden": 4, "graph_id": "x"},
        [],
    ):
        writer = TraceWriter()
        a_call(new_lane(writer))
        writer.json(0, "compiled:1", damaged)
        trace = read(writer, tmp_path)
        assert len(trace.compiled_kernels) == 2
        assert len(combine(trace).rows) == 4
