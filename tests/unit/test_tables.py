"""The tables of a trace: their columns and what stands in them."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import polars as pl
import pytest
from synthetic import AUTOGRAD_CPU, CALL, CPU, REDISPATCH, Lane, TraceWriter, tensor

from tracer.trace import Trace, load

NS = 10
ACCUMULATE_GRAD = 2**63 - 1
BY_PARENT, UNASKED = 0, 3

COLUMNS = {
    "hops": "id op key kernel kind source start_ns end_ns self_ns module step phase parent process thread "
    "registered_at rule inputs called_from python_stack range sequence_nr backward_node forward_hop raised "
    "override handed_over key_set thread_keys open",
    "signatures": "id position shape stride dtype device requires_grad layout keys list_length",
    "dispatch_keys": "priority key functionality",
    "key_sets": "id keys",
    "thread_keys": "id process included excluded included_by_default excluded_by_default modes",
    "api_calls": "id hop parent library_call_id process thread domain name role start_ns end_ns correlation "
    "arguments result stack library library_call kernel captured source step phase open",
    "library_calls": "id hop parent process thread library name start_ns end_ns arguments result source step "
    "phase open",
    "gpu_activities": "id api_call hop captured_by process kind name device context stream start_ns end_ns "
    "grid block cluster registers static_shared_bytes dynamic_shared_bytes shared_bytes local_bytes bytes "
    "graph graph_node compiled_kernel step phase correlation",
    "compiled_calls": "id region function defined_at called_from direction compile_id graph_id "
    "cache recompiled generated artifact kernels visible hidden parent hop process thread start_ns end_ns "
    "step phase open",
    "compiled_kernels": "id compiled_call name language autotuning fused_ops source sources nodes origin "
    "generated threads bytes registers spills num_warps called_from parent hop process thread start_ns "
    "end_ns step phase open",
    "compile_phases": "id name compile_id parent source process thread start_ns end_ns open",
    "imports": "id module source process thread start_ns end_ns step phase open",
    "stacks": "id frames",
    "python_stacks": "id frames",
    "values": "hop hash nan infinite view",
    "tensors": "hop result signature number storage version",
    "modules": "module around",
    "optimizers": "process optimizer class parameters options",
    "loaders": "process num_workers batch_size prefetch_factor pin_memory persistent_workers",
    "process_groups": "process group description ranks",
    "ranges": "id name process thread parent start_ns end_ns step phase open",
    "memory": "id hop process thread time_ns device address bytes allocated_by source step",
    "devices": "process device name computeCapabilityMajor computeCapabilityMinor globalMemoryBandwidth "
    "globalMemorySize constantMemorySize l2CacheSize numThreadsPerWarp coreClockRate numMemcpyEngines "
    "numMultiprocessors maxIPC maxWarpsPerMultiprocessor maxBlocksPerMultiprocessor "
    "maxSharedMemoryPerMultiprocessor maxRegistersPerMultiprocessor maxRegistersPerBlock "
    "maxSharedMemoryPerBlock maxThreadsPerBlock",
    "steps": "process step phase start_ns end_ns module cpu_ns preempted_ns",
    "module_calls": "id module source process thread start_ns end_ns step phase open",
    "source_lines": "source text cell",
    "processes": "process pid how command rank ranks host boot restarts",
    "threads": "process thread name",
}


def writer_with(*ops: str) -> TraceWriter:
    writer = TraceWriter()
    writer.process()
    for number, op in enumerate(ops):
        writer.hop(number, op)
    return writer


def hop(lane: Lane, number: int, *key_set: int, **options: int) -> int:
    tick = lane.enter(number, *key_set, **options)
    lane.exit()
    return tick


def read(writer: TraceWriter, tmp_path: Path) -> Trace:
    return load(writer.write(tmp_path / "x.trace"))


@pytest.fixture(params=["empty", "one hop"])
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    writer = writer_with("aten::mm") if request.param == "one hop" else TraceWriter()
    if request.param == "one hop":
        hop(writer.lane(), 0)
    return read(writer, tmp_path)


@pytest.mark.parametrize("table", COLUMNS)
def test_columns_are_the_contract(trace: Trace, table: str) -> None:
    assert getattr(trace, table).columns == COLUMNS[table].split()


def test_the_page_names_every_table_and_column() -> None:
    page = (Path(__file__).parents[2] / "docs/api.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    columns = {column for name, columns in COLUMNS.items() for column in columns.split() if name != "devices"}
    assert (columns | set(COLUMNS)) - named == set()
    tables = re.findall(r"^\| (`\w+`) \| (?:`|a )", page, re.MULTILINE)
    assert {table.strip("`") for table in tables} <= {*COLUMNS, *columns}


def test_types_do_not_depend_on_what_was_recorded(trace: Trace) -> None:
    schema = trace.hops.schema
    for name in ("kind", "op", "key", "kernel", "registered_at", "rule", "source", "called_from"):
        assert schema[name] == pl.Categorical
    for name in ("module", "range", "backward_node", "override", "phase"):
        assert schema[name] == pl.Categorical
    for name in ("start_ns", "end_ns", "self_ns"):
        assert schema[name] == pl.Int64
    for name in ("id", "parent", "inputs", "forward_hop"):
        assert schema[name] == trace.hops.schema["id"]
    assert schema["raised"] == schema["open"] == pl.Boolean
    assert trace.signatures.schema["shape"] == trace.signatures.schema["stride"] == pl.List(pl.Int64)
    assert trace.signatures.schema["id"] == schema["inputs"]
    assert trace.api_calls.schema["hop"] == trace.gpu_activities.schema["api_call"] == schema["id"]
    assert trace.api_calls.schema["arguments"] == trace.devices.schema["name"] == pl.String


def test_what_is_not_captured_yet_is_null(tmp_path: Path) -> None:
    writer = writer_with("aten::mm")
    hop(writer.lane(), 0)
    row = read(writer, tmp_path).hops.row(0, named=True)
    for name in ("module", "step", "phase", "override", "range", "backward_node", "forward_hop", "inputs"):
        assert row[name] is None


def test_kind_goes_by_call_site_and_else_by_the_enclosing_op(tmp_path: Path) -> None:
    writer = writer_with("aten::mm", "aten::add.Tensor")
    lane = writer.lane()
    lane.enter(0, AUTOGRAD_CPU)
    hop(lane, 0, call_site=REDISPATCH)
    hop(lane, 0, call_site=BY_PARENT)
    hop(lane, 1, call_site=BY_PARENT)
    hop(lane, 0, call_site=CALL)
    hop(lane, 0, AUTOGRAD_CPU, call_site=BY_PARENT)  # not below the key of the hop around it
    hop(lane, 0, AUTOGRAD_CPU & ~1 | 2, call_site=BY_PARENT)  # nor is another backend's
    lane.exit()
    hop(lane, 1, call_site=BY_PARENT)
    trace = read(writer, tmp_path)
    expected = ["call", "redispatch", "redispatch", "call", "call", "call", "call", "call"]
    assert trace.hops["kind"].to_list() == expected
    assert trace.hops["op"].to_list()[3] == "aten::add.Tensor"
    assert trace.certificate["op_calls"] == 6


def test_code_that_did_not_ask_the_profiler_passes_on_the_call_of_its_op_at_any_key(tmp_path: Path) -> None:
    writer = writer_with("aten::mm", "aten::add.Tensor")
    lane = writer.lane()
    lane.enter(0, AUTOGRAD_CPU)
    for op, key_set in ((0, CPU), (0, AUTOGRAD_CPU), (0, AUTOGRAD_CPU & ~1 | 2), (1, CPU)):
        hop(lane, op, key_set, call_site=UNASKED)
    lane.exit()
    hop(lane, 0, call_site=UNASKED)
    trace = read(writer, tmp_path)
    assert trace.hops["kind"].to_list() == ["call", *["redispatch"] * 3, "call", "call"]


def test_key_is_the_highest_of_the_key_set(tmp_path: Path) -> None:
    writer = writer_with("aten::mm")
    lane = writer.lane()
    for key_set in (CPU, AUTOGRAD_CPU, CPU & ~1, AUTOGRAD_CPU | 2, 1 << 60):
        hop(lane, 0, key_set=key_set)
    keys = read(writer, tmp_path).hops["key"].to_list()
    # A functionality that torch did not name then: the key of the table entry.
    assert keys == ["CPU", "AutogradCPU", "Undefined", "AutogradCUDA", "CPU"]


def test_kernel_names_registration_and_rule(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, address=0x1000, registered_at="RegisterCPU.cpp:42", rule="kernel")
    writer.hop(1, address=0x2000, rule="backend fallback")
    writer.hop(2, address=0, boxed=0x3000)
    writer.hop(3, address=0x1000, python_kernel="ops.double (ops.py:7)")
    writer.hop(4, address=0x4000)
    writer.hop(5, registered_at="", rule="")
    writer.symbol(0x1000, "_ZN2at12_GLOBAL__N_112_GLOBAL__N_114wrapper_CPU_mmEv", "/lib/libtorch_cpu.so")
    writer.symbol(0x2000, "_ZN2at16negationFallbackEv", "/lib/libtorch_cpu.so")
    writer.symbol(0x3000, "plain_c_function", "/lib/libc.so")
    writer.symbol(0x4000, "", "/lib/libextension.so", offset=0x40)
    lane = writer.lane()
    for number in range(6):
        hop(lane, number)
    trace = read(writer, tmp_path)
    assert trace.hops["kernel"].to_list() == [
        "wrapper_CPU_mm",
        "fallback: at::negationFallback",
        "plain_c_function",
        "ops.double (ops.py:7)",
        "libextension.so+0x40",
        None,
    ]
    assert trace.hops.select("registered_at", "rule").row(0) == ("RegisterCPU.cpp:42", "kernel")
    assert trace.hops.select("registered_at", "rule").row(5) == (None, None)
    assert trace.certificate["unresolved_kernels"] == 1


def test_backward_hops_have_the_line_of_their_forward_hop(tmp_path: Path) -> None:
    writer = writer_with("aten::mm", "aten::relu", "aten::mul")
    main = writer.lane(number=0, thread=1001, torch_thread=1)
    main.define_source(1, "train.py", 10)
    main.define_source(2, "train.py", 11)
    main.define_source(3, "train.py", 20)
    main.enter(0, AUTOGRAD_CPU, source=1, sequence=0)
    hop(main, 0, call_site=REDISPATCH)
    main.exit()
    # A composite op: the inner call makes node 1.
    main.enter(1, AUTOGRAD_CPU, source=2, sequence=1)
    hop(main, 1, key_set=AUTOGRAD_CPU, sequence=1)
    main.exit()

    main.define_string(1, "torch::autograd::generated::MmBackward0")

    engine = writer.lane(number=1, thread=1002, torch_thread=2)
    engine.define_string(1, "torch::autograd::generated::MmBackward0")
    engine.define_string(2, "torch::autograd::AccumulateGrad")
    engine.define_string(3, "torch::autograd::PyNode Double")
    engine.node(1, sequence=0, made_by=1)
    engine.enter(2, AUTOGRAD_CPU, sequence=2)
    hop(engine, 2)
    engine.exit()
    engine.node(2, sequence=ACCUMULATE_GRAD, made_by=1)
    hop(engine, 2)
    engine.node(3, sequence=2, made_by=1)  # made in Python, in no hop
    hop(engine, 2)
    engine.node(0)
    hop(engine, 2)

    main.node(1, sequence=1, made_by=1)
    hop(main, 2, source=3)
    # A backward of a backward: its forward hop is the backward hop on the engine's thread.
    main.node(1, sequence=2, made_by=2)
    hop(main, 2, source=3)

    hops = read(writer, tmp_path).hops.select(
        "id", "thread", "backward_node", "forward_hop", "source", "called_from"
    )
    line_10, line_11, line_20 = "train.py:10", "train.py:11", "train.py:20"
    assert hops.rows() == [
        (0, 1001, None, None, line_10, line_10),
        (1, 1001, None, None, line_10, line_10),
        (2, 1001, None, None, line_11, line_11),
        (3, 1001, None, None, line_11, line_11),
        (4, 1001, "MmBackward0", 3, line_11, line_20),
        (5, 1001, "MmBackward0", 6, line_10, line_20),
        (6, 1002, "MmBackward0", 0, line_10, None),
        (7, 1002, "MmBackward0", 0, line_10, None),
        (8, 1002, "AccumulateGrad", None, None, None),
        (9, 1002, "Double", None, None, None),
        (10, 1002, None, None, None, None),
    ]


def test_a_node_that_no_recorded_hop_made_has_no_forward_hop(tmp_path: Path) -> None:
    writer = writer_with("aten::linear", "aten::addmm", "aten::mm", "aten::_foreach_mul_")
    lane = writer.lane(torch_thread=1)
    lane.enter(0, AUTOGRAD_CPU, sequence=4)  # nodes 4 and 5, of which the inner call made one
    lane.enter(1, AUTOGRAD_CPU, sequence=4)
    lane.exit(made=1)
    lane.exit(made=2)
    lane.enter(2, AUTOGRAD_CPU, sequence=6)  # it needs no gradient
    lane.exit(made=0)
    lane.enter(
        3, AUTOGRAD_CPU, sequence=9
    )  # nodes 6 to 8 were made between hops, or by operators without a hook
    lane.exit(made=3)
    lane.enter(2, AUTOGRAD_CPU, sequence=13)  # of an operator without a hook, 12
    lane.exit(made=1)
    lane.enter(2, AUTOGRAD_CPU, sequence=14)  # open: what it makes is not known
    lane.define_string(1, "X")
    other = writer.lane(number=1, thread=1002, torch_thread=2)
    other.define_string(1, "X")
    numbers = range(3, 16)
    for number in numbers:
        other.node(1, sequence=number, made_by=1)
        hop(other, 2)
    hops = read(writer, tmp_path).hops.filter(pl.col("thread") == 1002)
    found = dict(zip(numbers, hops["forward_hop"].to_list(), strict=True))
    made = {4: 1, 5: 0, 9: 3, 10: 3, 11: 3, 13: 4}
    assert found == {number: made.get(number) for number in numbers}


def test_a_node_made_in_another_process_or_later_has_no_forward_hop(tmp_path: Path) -> None:
    writer = writer_with("aten::mm")
    writer.process(1, how=2)
    writer.hop(0, "aten::mm", process=1)
    hop(writer.lane(0, 0, 1001, torch_thread=1), 0, key_set=AUTOGRAD_CPU, sequence=0)
    lane = writer.lane(1, 0, 1002, torch_thread=2)
    lane.define_string(1, "MmBackward0")
    lane.node(1, sequence=0, made_by=1)
    hop(lane, 0)
    lane.node(1, sequence=5, made_by=2)
    hop(lane, 0)
    lane.node(0)
    hop(lane, 0, key_set=AUTOGRAD_CPU, sequence=5)
    assert read(writer, tmp_path).hops["forward_hop"].to_list() == [None] * 4


def test_range_is_the_innermost_one(tmp_path: Path) -> None:
    writer = writer_with("aten::mm")
    lane = writer.lane()
    lane.define_string(1, "step")
    lane.define_string(2, "forward")
    lane.range_exit()  # began before the recording
    hop(lane, 0)
    lane.range_enter(1)
    hop(lane, 0)
    lane.range_enter(2)
    hop(lane, 0)
    lane.range_exit()
    hop(lane, 0)
    lane.range_enter(2)
    lane.range_exit()
    lane.range_exit()
    hop(lane, 0)
    assert read(writer, tmp_path).hops["range"].to_list() == [None, "step", "forward", "step", None]


def test_signatures_are_one_row_a_tensor_and_one_id_a_content(tmp_path: Path) -> None:
    writer = writer_with("aten::mm")
    matrix = tensor((64, 32), (32, 1), requires_grad=True)
    other = tensor((2,), (1,), position=1, device=(1, 3), dtype=99)
    unknown = tensor(None, dtype=-1, layout=255)
    undefined = tensor((), position=2, undefined=True)
    first = writer.lane(number=0, thread=1001, torch_thread=1)
    first.define_signature(1, matrix, other)
    first.define_signature(2, unknown, undefined)
    second = writer.lane(number=1, thread=1002, torch_thread=2)
    second.define_signature(1, matrix, other)
    hop(first, 0, signature=1)
    hop(first, 0, signature=2)
    hop(first, 0)
    hop(second, 0, signature=1)
    trace = read(writer, tmp_path)
    one, two, none, same = trace.hops["inputs"].to_list()
    assert (one, none) == (same, None)
    assert trace.signatures.rows() == [
        row
        for _, row in sorted(
            [
                (
                    one,
                    (one, 0, [64, 32], [32, 1], "torch.float32", "cpu", True, "torch.strided", "CPU", None),
                ),
                (one, (one, 1, [2], [1], "ScalarType 99", "cuda:3", False, "torch.strided", "CPU", None)),
                (two, (two, 0, None, None, None, "cpu", False, None, "CPU", None)),
                (two, (two, 2, None, None, "torch.float32", None, False, "torch.strided", "CPU", None)),
            ],
            key=lambda pair: (pair[0], pair[1][1]),
        )
    ]


def test_a_list_that_was_cut_has_its_length(tmp_path: Path) -> None:
    writer = writer_with("aten::mm")
    lane = writer.lane()
    row = tensor((4,), (1,))
    cut = struct.pack("<IHIHI", 2, 0, 300, 1, 100)
    scalar = struct.pack("<IHI", 1, 2, 1) + b"5"
    lane.define_signature(1, *[row] * 3, tensor((4,), (1,), position=7), scalars=cut + scalar, cut=True)
    hop(lane, 0, signature=1)
    for lists in range(1, 5):  # without scalars, and with as many bytes behind it as fill eight
        lane.define_signature(
            1 + lists, row, scalars=struct.pack("<I" + "HI" * lists, lists, *[70] * 2 * lists), cut=True
        )
        hop(lane, 0, signature=1 + lists)
    trace = read(writer, tmp_path)
    assert "damage" not in repr(trace), trace
    assert trace.signatures["list_length"].to_list() == [300, 300, 300, None, None]
    assert trace.scalars.rows() == [(0, 2, "5")]


def test_processes_threads_and_environment(tmp_path: Path) -> None:
    writer = writer_with("aten::mm")
    writer.json(0, "environment", {"python": "3.11"})
    writer.process(1, how=1, parent_pid=100)
    writer.hop(0, "aten::mm", process=1)
    lane = writer.lane(0, 0, 1001, torch_thread=1)
    lane.name_thread(1, "python")
    hop(lane, 0)
    hop(writer.lane(1, 0, 2001, torch_thread=1), 0)
    trace = read(writer, tmp_path)
    assert trace.processes.rows() == [
        (0, 100, "root", "python 0", *[None] * 5),
        (1, 101, "forked", "python 1", *[None] * 5),
    ]
    assert trace.threads.rows() == [(0, 1001, "python"), (1, 2001, None)]
    assert trace.environment == {"python": "3.11"}
    assert trace.hops["key"].to_list() == ["CPU", "CPU"]
    assert trace.path in repr(trace)


def test_hops_are_ordered_by_process_thread_and_start(tmp_path: Path) -> None:
    writer = writer_with("aten::mm")
    late = writer.lane(0, 0, thread=1009, torch_thread=1)
    early = writer.lane(0, 1, thread=1002, torch_thread=2)
    for _ in range(2):
        hop(late, 0)
        hop(early, 0)
    late.adopt(1002, torch_thread=3)  # the thread id is used again
    hop(late, 0)
    hops = read(writer, tmp_path).hops
    assert hops["thread"].to_list() == [1002, 1002, 1002, 1009, 1009]
    assert hops.select("process", "thread", "start_ns").rows() == sorted(
        hops.select("process", "thread", "start_ns").rows()
    )


def test_hops_and_ranges_of_the_main_thread_are_first(tmp_path: Path) -> None:
    """The system's numbers of threads begin again at its limit: those that it starts may be lower."""
    writer = writer_with("aten::mm")
    writer.process(1, how=1, pid=32700)
    writer.hop(0, "aten::mm", process=1)
    for process, main in ((0, 100), (1, 32700)):
        for number, thread in enumerate((7, main, 32750)):
            lane = writer.lane(process, number, thread=thread, torch_thread=number + 1)
            if process == 0:
                lane.range_enter(1)
            hop(lane, 0)
            if process == 0:
                lane.range_exit()
    trace = read(writer, tmp_path)
    assert trace.hops["thread"].to_list() == [100, 7, 32750, 32700, 7, 32750]
    assert trace.ranges["thread"].to_list() == [100, 7, 32750]


def test_time_is_counted_by_the_pair_of_clocks(tmp_path: Path) -> None:
    for clock, last_ns, expected, known in (
        (1, 5000 + 250, 2.5, True),
        (2, 0, 1, True),
        (1, 5000, 1, False),
    ):
        writer = writer_with("aten::mm")
        writer.header = {"clock": clock, "last_ns": last_ns}
        lane = writer.lane()
        writer.ticks += 99
        tick = hop(lane, 0)
        trace = read(writer, tmp_path)
        assert trace.hops["start_ns"].to_list() == [int(tick * expected)]
        assert trace.certificate["clock_known"] is known
        assert trace.certificate["clock_tick_ns"] == (expected if known else None)
