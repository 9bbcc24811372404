"""Reports and trees of a trace with CUDA."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest
from cuda_frames import CudaBuilder
from cuda_training import F32, GEMM, US, hottest, placement, training
from frames import FakeTrace, TraceBuilder, hop
from markdown_it import MarkdownIt

from tracer.analysis.links import combine
from tracer.analysis.runtime_survey import Steps
from tracer.analysis.source_lines import SourceLines
from tracer.analysis.trees import Forest, fold
from tracer.report.hot_paths import hottest_of
from tracer.report.mermaid import flowchart
from tracer.report.reading import Peaks, Reading
from tracer.report.report import render
from tracer.report.sections import head
from tracer.report.sections.api_details import stack_lines
from tracer.report.text import amount, size
from tracer.report.tree import group_line, plain, title_line, tree_lines
from tracer.trace.names.roles import role


def chosen(reading: Reading) -> tuple[object, ...]:
    found = hottest_of(reading)
    return found.patterns, found.steady, found.fitting, found.among, found.steps


@pytest.mark.parametrize("only", ["cuda", "kernels", None])
def test_every_table_is_well_formed(only: str | None) -> None:
    text = render(Reading(training(), "t", only=only))
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    tables = sum(token.type == "table_open" for token in tokens)
    rules = [line for line in text.splitlines() if re.fullmatch(r"(\| -+:? )+\|", line)]
    assert tables == len(rules) >= 3
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


def test_the_tree_shows_the_chain_down_to_the_gpu() -> None:
    trace = training()
    links = combine(trace)
    groups, nodes = fold(Forest.of(links.rows), ["source", "called_from", "backward_node"])
    lines = [plain(line) for line in tree_lines(nodes, trace.signatures, details=links.details)]
    cell = lines.index(next(line for line in lines if "3 x" in line))
    assert lines[cell : cell + 6] == [
        " 22.0 us    1.0 us    3.3 us  3 x aten::matmul [AutogradCUDA] matmul_AutogradCUDA "
        "(64x64 f32, 64x64 f32)",
        " 21.0 us    1.0 us    3.3 us    aten::mm [AutogradCUDA] mm_AutogradCUDA (64x64 f32, 64x64 f32)",
        " 20.0 us   13.0 us    3.3 us      -> aten::mm [CUDA] mm_CUDA, 3 queries",
        "  7.0 us    2.0 us    3.3 us        cublasSgemm_v2(N, N, m=64, n=64, k=64)",
        "  5.0 us    5.0 us    3.3 us          cudaLaunchKernelExC(grid 2, block 64)",
        f"                      3.3 us            {GEMM}",
    ]
    assert plain(title_line(nodes)) == "   total      self       GPU  op [key] kernel (inputs)"
    heads = [plain(group_line(group, SourceLines("/home/user/project"))) for group in groups.to_dicts()]
    assert heads[0] == "train.py:41  4 op calls, 88.0 us, GPU 13.2 us"
    assert heads[-1] == "train.py:44  4 calls outside ops, 12.0 us, GPU 8.0 us"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_tree_lines_fit(width: int) -> None:
    trace = training()
    links = combine(trace)
    _, nodes = fold(Forest.of(links.rows), ["source"])
    for line in tree_lines(nodes, trace.signatures, width=width, details=links.details):
        assert len(plain(line)) <= width


def test_a_device_kernel_gives_way_before_its_time() -> None:
    trace = training()
    links = combine(trace)
    _, nodes = fold(Forest.of(links.rows), ["source"])
    lines = [plain(line) for line in tree_lines(nodes, trace.signatures, width=60, details=links.details)]
    assert any(line.startswith(" " * 22 + "3.3 us  ") and line.endswith("...") for line in lines)


def test_a_library_call_that_only_stacks_name_has_the_time_of_its_api_calls() -> None:
    builder = CudaBuilder().calls(hop("aten::_cslt_sparse_mm", "CUDA", self_ns=90 * US))
    named = {"library": "libcusparseLt.so.0", "library_call": "cusparseLtMatmul"}
    first = builder.api("cudaLaunchKernel", "launch", 10 * US, 20 * US, hop=0, **named)
    builder.api("cudaLaunchKernel", "launch", 25 * US, 30 * US, hop=0, **named)
    builder.kernel("spmma", 21 * US, 26 * US, first)
    report = Reading(builder.cuda_trace(), "t")
    lines = [plain(line) for line in tree_lines(hottest(report)[0].nodes, report.trace.signatures)]
    assert lines[0].startswith(" 90.0 us   70.0 us    5.0 us  aten::_cslt_sparse_mm")
    assert lines[1] == " 20.0 us              5.0 us    cusparseLtMatmul, its API calls"
    assert '["cusparseLtMatmul 20.0#160;us (its API calls)"]' in flowchart(hottest(report)[0].nodes)


def test_tables_of_all_steps_say_so_beside_those_of_steady_ones() -> None:
    said = "This table counts the whole recording, not only the steady steps."
    text = " ".join(render(Reading(training(), "t")).split())
    for heading in ("## Ops", "## Dispatch keys", "## Source lines"):
        assert said in text.partition(f" {heading} ")[2].partition(" | ")[0], heading
    survey = " ".join(render(Reading(training(), "t", only="cuda")).split())
    assert said in survey.partition(" ### Launches of each op ")[2].partition(" | ")[0]
    assert said not in render(Reading(placement().cuda_trace(), "t"))
    hops = TraceBuilder()
    for step in range(4):
        hops.calls(hop("aten::mm", "CPU", step=step, phase="steady" if step else "warmup"))
    assert said in render(Reading(hops.trace(), "t", steady=True))
    assert said not in render(Reading(hops.trace(), "t"))


@pytest.mark.parametrize(("steps", "known"), [(0, "no step"), (1, "only 1 step"), (2, "only 2 steps")])
def test_too_few_steps_are_not_none(steps: int, known: str) -> None:
    builder = CudaBuilder()
    for step in range(steps + 1):
        builder.calls(hop("aten::mm", "CUDA", self_ns=9000, step=step if step < steps else None))
        builder.api("cudaGetDevice", "query", 100, 150, hop=step)
    text = " ".join(render(Reading(builder.cuda_trace(), "t", only="cuda")).split())
    assert f"- {known} known, so warm-up is not separated from steady state" in text


def adds(*launches: dict[str, Any]) -> FakeTrace:
    """An op that no rule knows the work of, a launch each."""
    builder = CudaBuilder()
    for number, launch in enumerate(launches):
        both = builder.signature(([64], F32), ([64], F32))
        builder.calls(hop("my::op", "CUDA", self_ns=9000, inputs=both))
        start = builder.rows[number]["start_ns"]
        call = builder.api("cudaLaunchKernel", "launch", start, start + 500, hop=number)
        builder.kernel("my_kernel", start + 1000, start + 4000, call, **launch)
    return builder.cuda_trace()


def kernel_rows(trace: FakeTrace, kernel: str) -> list[str]:
    text = render(Reading(trace, "t", only="kernels"))
    return [line for line in text.splitlines() if line.startswith("|") and f"`{kernel}`" in line]


def test_rows_of_kernels_that_would_read_the_same_say_what_differs() -> None:
    trace = adds({"grid": (4, 2, 1)}, {"grid": (8, 1, 1)}, {"grid": (8, 1, 1), "registers": 40})
    in_ranking, in_all = kernel_rows(trace, "my_kernel")[:3], kernel_rows(trace, "my_kernel")[3:]
    assert [re.findall(r"`my_kernel` \((.*?)\)", row) for row in in_ranking] == [
        ["grid 4x2, 32 registers"],
        ["grid 8, 32 registers"],
        ["grid 8, 40 registers"],
    ]
    assert all("| 64 f32, 64 f32 |" in row for row in in_ranking)
    assert [re.findall(r"`my_kernel` \(", row) for row in in_all] == [[], [], []]


def test_inputs_that_differ_beyond_the_cut_or_in_strides_are_told_apart() -> None:
    builder = CudaBuilder()
    many = [([1024, 1024], F32)] * 3 + [([512, 256, 128], F32), ([64, 32, 16], F32), ([32], F32)]
    alike = [builder.signature(*many, ([n], F32)) for n in (7, 8)]
    alike += [builder.signature(([64], F32)), builder.signature(([64], F32), device="cuda:0")]
    builder.tensors[-1] |= {"device": "cpu", "stride": [0]}
    for number, inputs in enumerate(alike):
        builder.calls(hop("my::op", "CUDA", self_ns=9000, inputs=inputs))
        start = builder.rows[number]["start_ns"]
        call = builder.api("cudaLaunchKernel", "launch", start, start + 500, hop=number)
        builder.kernel("my_kernel", start + 1000, start + 4000, call)
    in_unknown = kernel_rows(builder.cuda_trace(), "my_kernel")[:4]
    assert [re.findall(r"`my_kernel`(?: \((.*?)\))?", row)[0] for row in in_unknown] == [
        "inputs ..., 64x32x16 f32, 32 f32, 7 f32",
        "inputs ..., 64x32x16 f32, 32 f32, 8 f32",
        "",
        "with an expanded input",
    ]


def test_a_kernel_that_reads_like_no_other_has_its_name_alone() -> None:
    (in_unknown, _) = kernel_rows(adds({}, {}), "my_kernel")
    assert "| `my_kernel` |" in " ".join(in_unknown.split())


def test_the_floor_of_limits_is_said_as_what_it_is() -> None:
    short, long = training(), training()
    text = render(Reading(long, "t", only="kernels"))
    assert "No limit is below 2.0 us, the time that any kernel is given; none of the trace took less." in text
    short.gpu_activities = short.gpu_activities.with_columns(
        end_ns=pl.when(pl.col("name") == "my_scale").then(pl.col("start_ns") + 900).otherwise("end_ns")
    )
    text = render(Reading(short, "t", only="kernels"))
    assert "No limit is below the shortest kernel of the trace (0.90 us)." in text


def test_a_limit_that_is_known_of_nearly_all_is_not_known_of_all() -> None:
    trace = training()
    trace.gpu_activities = trace.gpu_activities.with_columns(
        end_ns=pl.when(pl.col("name") == "my_scale").then(pl.col("start_ns") + 90).otherwise("end_ns")
    )
    assert "the limit is known for more than 99 % of that time" in render(Reading(trace, "t"))


def test_functions_that_are_not_told_are_counted_and_waits_are_told() -> None:
    builder = CudaBuilder().calls(hop("aten::mm", "CUDA", self_ns=900 * US))
    names = [f"cudaMalloc{letter}" for letter in "ABCDEFGHIJKLMNOPQR"]
    for number, name in enumerate([*names, "cudaStreamSynchronize", "cudaStreamWaitEvent"]):
        start = 1000 * US * (number + 1)
        builder.api(name, role(name) or "", start, start + (40 - number) * US, hop=0)
    text = render(Reading(builder.cuda_trace(), "t", only="cuda"))
    told = re.findall(r"^#### `(\w+)`", text, flags=re.M)
    assert told == [*names[:10], "cudaStreamSynchronize", "cudaStreamWaitEvent"]
    assert "\n8 more functions left out.\n" in text


def test_rows_of_the_certificate_say_what_they_count() -> None:
    counts = {"library_calls": 1, "in_a_hop": 2, "captured_in_a_hop": 3, "outside_ops": 4}
    by = [{"what": "my_scale (scale.so)", "count": 4}]
    trace = (
        TraceBuilder()
        .calls(hop("aten::mm", "CPU"))
        .trace(cuda={"state": "recorded", **counts, "outside_ops_by": by})
    )
    rows = re.findall(r"^\| +(\d) \| (\w[^|]*?) +\|$", render(Reading(trace, "t")), flags=re.M)
    assert rows[-5:] == [
        ("1", "library calls at their hooks"),
        ("2", "kernels in a hop"),
        ("3", "kernels captured in a hop"),
        ("4", "kernels outside ops"),
        ("1", "kernels outside ops by"),
    ]


def test_a_long_kernel_is_drawn_with_all_that_encloses_it() -> None:
    report = Reading(training(), "t")
    add = next(path for path in hottest(report) if path.op == "aten::add.Tensor")
    for limit in (1, 3):
        assert re.findall(r"(h\d)\[", flowchart(add.nodes, limit=limit)) == ["h0", "h1", "h2"]


def test_the_diagram_has_the_chain_and_then_the_hottest() -> None:
    """A library that sets itself up takes longer on the host than the kernel on the GPU."""
    builder = CudaBuilder()
    slow = [hop(f"aten::slow{i}", "CPU", self_ns=30 * US) for i in range(9)]
    builder.calls(hop("aten::mm", "CUDA", *slow, self_ns=900 * US))
    start = builder.rows[0]["start_ns"]
    launch = builder.api("cudaLaunchKernel", "launch", start + 10, start + 20, hop=0)
    builder.kernel("my_kernel", start + 100, start + 2100, launch)
    (path,) = hottest(Reading(builder.cuda_trace(), "t"))
    chart = flowchart(path.nodes, limit=5)
    assert re.findall(r'h\d\["([^ <"]+)', chart) == [
        "aten::mm",
        "cudaLaunchKernel",
        "my_kernel",
        "aten::slow0",
        "aten::slow1",
    ]
    assert '  more["7 more boxes, not drawn"]' in chart
    assert "h0 --> h1\n" in chart
    assert "h1 -.-> h2\n" in chart


@pytest.mark.parametrize(
    ("warmup", "outside", "said"),
    [
        (2, 3, ["2 kernels of warm-up steps and 3 outside steps are left out"]),
        (1, 0, ["1 kernel of warm-up steps is left out"]),
        (0, 3, ["3 kernels outside steps are left out"]),
        (0, 0, []),
        (0, 9, ["9 kernels outside steps, most of the GPU time, counted too"]),
    ],
)
def test_kernels_of_no_steady_step_are_counted_aloud(warmup: int, outside: int, said: list[str]) -> None:
    builder = CudaBuilder()
    phases = ["warmup"] * warmup + ["steady"] * 5 + [None] * outside
    for number, phase in enumerate(phases):
        when = {"step": number if phase else None, "phase": phase}
        builder.calls(hop("my::op", "CUDA", self_ns=9000, **when))
        start = builder.rows[number]["start_ns"]
        call = builder.api("cudaLaunchKernel", "launch", start, start + 500, hop=number, **when)
        builder.kernel("my_kernel", start + 1000, start + 4000, call)
    text = render(Reading(builder.cuda_trace(), "t", only="kernels"))
    assert re.findall(r"^- (.*(?:left out|counted too))$", text, flags=re.M) == said


def test_a_gap_is_long_from_the_larger_of_two_thresholds() -> None:
    for end, said in ((100 * US, "10.0 us"), (9000 * US, "90.0 us")):
        builder = CudaBuilder()
        builder.kernel("a", 1, US)
        builder.kernel("b", end - US, end + 1)
        text = " ".join(render(Reading(builder.cuda_trace(), "t", only="cuda")).split())
        assert f"A gap is long from {said}: 1 % of that time, and 10 us at least." in text


@pytest.mark.parametrize("only", [None, "kernels"])
def test_rows_hold_for_the_tables_of_kernels_too(only: str | None) -> None:
    everything = render(Reading(training(), "t", only=only))
    two = render(Reading(training(), "t", only=only, rows=2))
    kernels = two[two.index("## Device kernels") :]
    assert "more row" in kernels
    assert kernels.count("\n| ") < everything[everything.index("## Device kernels") :].count("\n| ")


def test_measured_peaks_are_said() -> None:
    text = render(Reading(training(), "t", only="kernels", peaks=Peaks(bandwidth=4.3e12)))
    assert "4.3 TB/s" in text
    assert "(as measured by the user)" in " ".join(text.split())


@pytest.mark.parametrize("only", ["cuda", "kernels"])
def test_parts_of_a_trace_without_cuda_say_so(only: str) -> None:
    trace = (
        TraceBuilder()
        .calls(hop("aten::mm", "CPU"))
        .trace(
            cuda={"state": "no driver", "why": "libcuda.so.1 is not there", "kernels": 0, "reconciles": True}
        )
    )
    text = render(Reading(trace, "t", only=only))
    assert "This trace has no CUDA call and no GPU activity." in text
    assert "state: no driver; why: libcuda.so.1 is not there." in text
    assert "captured or dropped" not in text


def test_a_full_report_without_cuda_has_no_cuda_sections() -> None:
    text = render(Reading(TraceBuilder().calls(hop("aten::mm", "CPU")).trace(), "t"))
    assert "## CUDA runtime" not in text
    assert "## Device kernels" not in text
    assert "on GPU" not in text


def test_sizes_and_amounts() -> None:
    assert [size(n) for n in (0, 1023, 1024, 49_152, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "48.0 KiB",
        "3.0 GiB",
    ]
    assert [amount(n, "B/s") for n in (0, 999, 1e3, 524_288, 4.8e12, 2e15)] == [
        "0 B/s",
        "999 B/s",
        "1 kB/s",
        "524 kB/s",
        "4.8 TB/s",
        "2 PB/s",
    ]


def test_paths_are_chosen_by_ops_and_by_calls() -> None:
    trace = training()
    of_library = Reading(trace, "t", patterns=["cublas*"])
    assert {path.op for path in hottest(of_library)} == {"aten::matmul"}
    assert chosen(of_library) == (("cublas*",), False, 2, 4, Steps(2, 2, too_few=False))
    assert [path.op for path in hottest(Reading(trace, "t", patterns=["add", "mm"]))] == [
        path.op for path in hottest(Reading(trace, "t")) if path.op != "aten::_local_scalar_dense"
    ]
    text = render(Reading(trace, "t", patterns=["cublas*", "bmm"], paths=1))
    assert (
        "the 1 hottest of 2 that have `cublas*` or `bmm` in them, of 4 in all, by cost in steady steps. They"
        in " ".join(text.split())
    )
    nothing = render(Reading(trace, "t", patterns=["nothing"]))
    assert "No dispatch path with `nothing` in it was recorded." in nothing


def test_paths_of_steady_steps() -> None:
    trace = training()
    report = Reading(trace, "t", steady=True)
    assert chosen(report) == ((), True, 3, 3, Steps(2, 2, too_few=False))
    assert [path.calls for path in hottest(report)] == [2, 2, 2]
    assert sum(path.share for path in hottest(report)) == pytest.approx(1)
    assert head.data(report).totals.paths == 4
    text = " ".join(render(report).split())
    which = "the 3 hottest of 3 in the 2 steady steps, of 4, by cost in steady steps."
    assert f"{which} They take 100.0 % of the time in ops there." in text
    without = TraceBuilder().calls(hop("aten::mm", "CPU")).trace()
    assert "No dispatch path was recorded in steady steps." in render(Reading(without, "t", steady=True))


def test_headings_of_paths_lead_to_the_device_kernel() -> None:
    text = render(Reading(training(), "t"))
    assert (
        "`aten::matmul [AutogradCUDA]` -> `cublasSgemm_v2` -> `sm80_xmma_gemm f32 nn n 32x32x8 ffma`: "
        in text
    )


def test_a_call_that_stands_out_is_named() -> None:
    builder = TraceBuilder()
    for ns in (3_000_000, 9_000, 2_000_000, 10_000):
        builder.calls(hop("aten::mm", "CPU", self_ns=ns))
    text = render(Reading(builder.trace(), "t"))
    assert "3 calls, 2.0 ms in total, median 10.0 us, longest 2.0 ms, once 3.0 ms; 1 hop per call." in text


def test_reports_begin_with_what_they_show() -> None:
    for only, begin in (
        ("cuda", "Which functions of the CUDA API"),
        ("kernels", "Every kind of kernel"),
        (None, "What the"),
    ):
        assert render(Reading(training(), "t", only=only)).splitlines()[4].startswith(begin)


def test_frames_without_names_are_one_line() -> None:
    frames = [
        {"function": name, "module": f"/x/{module}", "offset": 16}
        for name, module in ((None, "a.so"), (None, "a.so"), (None, "b.so"), ("f", "b.so"), ("f", "b.so"))
    ]
    assert stack_lines(frames) == [
        "2 frames without a name  (a.so)",
        "1 frame without a name  (b.so)",
        "f  (b.so)",
    ]
    many = [{"function": f"f{i}", "module": "a.so", "offset": 0} for i in range(15)]
    assert stack_lines(many)[7:] == ["f7  (a.so)", "... 7 more"]
