"""The report: what its sections hold, and that the markdown says it and is well formed."""

from __future__ import annotations

import re

import polars as pl
import pytest
from cuda_frames import CudaBuilder
from frames import FakeTrace, TraceBuilder, hop
from markdown_it import MarkdownIt

from tracer.analysis.inputs_text import signature_texts
from tracer.analysis.runtime_survey import Steps
from tracer.report.cells import code, prose, table
from tracer.report.hot_paths import Path, hottest_of, near_equal
from tracer.report.mermaid import flowchart
from tracer.report.page import times
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.sections.tables import OPS
from tracer.report.text import (
    duration,
    duration_and_self,
    package_relative,
    shorten,
    steady_steps,
    whole_percent,
)
from tracer.report.tree import plain, tree_lines

TRAIN = "/home/user/project/train.py"


def at(line: int) -> dict[str, str]:
    return {"source": f"{TRAIN}:{line}", "called_from": f"{TRAIN}:{line}"}


def training() -> FakeTrace:
    """Three steps of a linear layer forward and backward, an error, and a hop left open."""
    builder = TraceBuilder()
    matrices = builder.signature(([64, 64], "torch.float32"), ([64, 64], "torch.float32"))
    wide = builder.signature(([64, 128], "torch.float32"), ([128, 64], "torch.float32"))

    def matmul(inputs: int):
        kernel = hop("aten::mm", "CPU", hop("aten::empty", "CPU", self_ns=400), self_ns=9300)
        return hop(
            "aten::matmul",
            "AutogradCPU",
            hop("aten::mm", "AutogradCPU", kernel, self_ns=800),
            inputs=inputs,
            rule="math kernel",
            **at(41),
        )

    backward = {"backward_node": "MmBackward0", "forward_hop": 1, "source": f"{TRAIN}:41"}
    backward["called_from"] = f"{TRAIN}:45"
    for inputs in (matrices, matrices, wide):
        builder.calls(matmul(inputs))
        cells = [hop("aten::add.Tensor", "CPU"), hop("aten::tanh", "CPU", self_ns=2000)]
        builder.calls(hop("aten::rnn_tanh.input", "CPU", *cells, *cells, **at(42)))
        builder.calls(
            hop("aten::t", "CPU", **backward),
            hop("aten::mm", "CPU", self_ns=12_000, **backward),
            thread=101,
        )
        builder.calls(
            hop("aten::add_.Tensor", "CPU", backward_node="AccumulateGrad", called_from=f"{TRAIN}:45"),
            thread=101,
        )
    failing = hop("aten::mm", "CPU", self_ns=300, raised=True)
    builder.calls(hop("aten::mm", "AutogradCPU", failing, raised=True, **at(50)))
    builder.calls(hop("my::odd|`name`", "CPU", hop("aten::neg", "CPU", open=True), open=True, **at(51)))
    return builder.trace(
        not_hooked=[{"op": "my::a|b", "key": "CPU", "why": "its kernel has no address"}],
        verdict="31 hops; 1 table entry was not hooked",
    )


@pytest.fixture
def text() -> str:
    return render(Reading(training(), "train.0001.trace"))


def hottest(reading: Reading) -> list[Path]:
    return hottest_of(reading).paths


def test_the_verdict_comes_first(text: str) -> None:
    assert text.splitlines()[2] == "**31 hops; 1 table entry was not hooked**"


def test_every_table_is_well_formed(text: str) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    tables = sum(token.type == "table_open" for token in tokens)
    rules = [line for line in text.splitlines() if re.fullmatch(r"(\| -+:? )+\|", line)]
    assert tables == len(rules) >= 9
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(cells) == 1, block


def test_names_with_pipes_and_backticks_are_shown_as_they_are(text: str) -> None:
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<code>my::odd|`name`</code></td>" in html
    assert "<code>my::a|b [CPU]</code> its kernel has no address" in html


def test_mermaid_blocks_have_only_quoted_labels_and_known_boxes(text: str) -> None:
    blocks = re.findall(r"```mermaid\n(.*?)```", text, flags=re.S)
    assert blocks
    for block in blocks:
        near, first, *lines = block.splitlines()
        assert near.startswith("%%{init: ")
        assert first == "flowchart TD"
        boxes, kinds = set(), set()
        for line in lines:
            if box := re.fullmatch(r'  (\w+)\["[^"`]*"\](?::::(\w+))?', line):
                boxes.add(box[1])
                kinds |= {box[2]} - {None}
            elif colour := re.fullmatch(r"  classDef (\w+) fill:#\w+,stroke:#\w+,color:#111", line):
                kinds.remove(colour[1])
            else:
                arrow = re.fullmatch(r'  (\w+) (?:-->|==>|-\.->)(?:\|"\d+ x"\|)? (\w+)', line)
                assert arrow, line
                assert {arrow[1], arrow[2]} <= boxes, line
        assert not kinds, "a kind without a colour"


def test_a_path_shows_hops_kernels_and_redispatches() -> None:
    report = Reading(training(), "t")
    matmul = next(path for path in hottest(report) if path.op == "aten::matmul")
    chart = flowchart(matmul.nodes)
    assert 'h2["aten::mm [CPU] 9.7#160;us<br/>mm_CPU"]:::backend\n  h1 ==> h2\n' in chart
    assert "h0 --> h1" in chart
    rnn = next(path for path in hottest(report) if path.op == "aten::rnn_tanh.input")
    assert 'h0 -->|"2 x"| h1' in flowchart(rnn.nodes)


def test_a_large_path_is_cut_and_says_so() -> None:
    many = [hop(f"aten::op{i}", "CPU") for i in range(40)]
    report = Reading(TraceBuilder().calls(hop("my::all", "CPU", *many)).trace(), "t")
    chart = flowchart(hottest(report)[0].nodes, limit=24)
    assert '  more["17 more boxes, not drawn"]' in chart
    assert "> more" not in chart
    assert "h24" not in chart
    assert '  more["1 more box, not drawn"]' in flowchart(hottest(report)[0].nodes, limit=40)


def test_the_middle_of_a_long_chain_is_left_out() -> None:
    chain = hop("aten::op13", "CPU")
    for number in reversed(range(13)):
        chain = hop(f"aten::op{number}", "CPU", chain)
    report = Reading(TraceBuilder().calls(chain).trace(), "t")
    chart = flowchart(hottest(report)[0].nodes)
    assert re.findall(r"aten::op(\d+) ", chart) == ["0", "1", "2", "3", "4", "8", "9", "10", "11", "12"]
    assert '  more["4 more boxes, not drawn"]' in chart


def test_a_large_path_draws_the_hops_with_the_most_time() -> None:
    inner = [hop(f"aten::inner{i}", "CPU") for i in range(9)]
    many = [hop(f"aten::op{i}", "CPU", *(inner if i == 30 else ())) for i in range(40)]
    report = Reading(TraceBuilder().calls(hop("my::all", "CPU", *many)).trace(), "t")
    chart = flowchart(hottest(report)[0].nodes, limit=2)
    assert 'h0["my::all [CPU]' in chart
    assert 'h1["aten::op30 [CPU]' in chart


def test_paths_with_the_same_hops_are_one_with_a_line_for_each_other() -> None:
    builder = CudaBuilder()
    for dtype, kernel, ns in (("float32", "sgemm_64", 9000), ("bfloat16", "hgemm_128", 4000)):
        inputs = builder.signature(([8, 8], f"torch.{dtype}"), device="cuda:0")
        builder.calls(hop("aten::mm", "CUDA", self_ns=30_000, inputs=inputs))
        start, own = builder.rows[-1]["start_ns"], len(builder.rows) - 1
        call = builder.api("cudaLaunchKernel", "launch", start, start + 900, hop=own)
        builder.kernel(kernel, start + 1000, start + 1000 + ns, call)
    builder.calls(hop("aten::neg", "CUDA", self_ns=500))
    reading = Reading(builder.cuda_trace(), "t")
    groups = near_equal(hottest(reading))
    assert [[path.op for path in group] for group in groups] == [["aten::mm"] * 2, ["aten::neg"]]
    text = render(reading)
    assert re.findall(r"^### (\d)\. `(\S+)", text, flags=re.M) == [("1", "aten::mm"), ("2", "aten::neg")]
    said = "The same hops, with other kernels or other CUDA calls:\n\n- `hgemm_128`, 1 call, 30.0 us in total"
    assert said in text
    assert "inputs `8x8 bf16` (1 call)\n" in text
    table = text.partition("## Hottest paths")[2].partition("\n## ")[0]
    assert re.findall(r"\| (\d) +\| [^|]*(\w)gemm_[^|]*\|$", table, flags=re.M) == [("1", "s"), ("1", "h")]


def test_shares_of_all_paths_are_the_whole() -> None:
    assert sum(path.share for path in hottest(Reading(training(), "t"))) == pytest.approx(1)


def test_rows_beyond_the_limit_are_counted() -> None:
    report = Reading(training(), "t", rows=2)
    shown = OPS.data(report).rows
    assert (len(shown.rows), shown.left_out) == (2, 8)
    assert "8 more rows left out." in render(report)


def test_one_row_beyond_the_limit_is_one_row() -> None:
    calls = TraceBuilder().calls(hop("aten::mm", "CPU"), hop("aten::add", "CPU"))
    assert "1 more row left out." in render(Reading(calls.trace(), "t", rows=1))


def test_no_path_wanted_is_not_no_path_recorded() -> None:
    text = render(Reading(training(), "t", paths=0))
    assert "; none is shown." in text
    assert "No dispatch path" not in text
    assert "No op call was recorded" not in text


def test_dropped_hops_and_their_reasons_are_listed() -> None:
    trace = (
        TraceBuilder()
        .calls(hop("aten::mm", "CPU"))
        .trace(
            lost_entries=[{"op": f"my::op{i}", "key": "CPU"} for i in range(12)],
            closed_in_order={0: True, 1: False},
            why=["1 process ended without a stop: 1"],
        )
    )
    text = render(Reading(trace, "t"))
    assert "- lost entries: `my::op0 [CPU]`" in text
    assert "- lost entries: 2 more" in text
    assert re.search(r"1 of 2 \| closed in order +\|", text)
    assert "- 1 process ended without a stop: 1\n" in text
    assert "| why" not in text


def test_kernels_of_exceptions_and_open_hops_have_paths_relative_to_packages() -> None:
    kernel = "impl (/usr/lib/python3.12/site-packages/torch/_library/autograd.py:108)"
    builder = TraceBuilder().calls(hop("my::failing", "CPU", raised=True), hop("my::open", "CPU", open=True))
    for row in builder.rows:
        row["kernel"] = kernel
    text = render(Reading(builder.trace(), "t"))
    for heading in ("## Exceptions", "## Open at the end"):
        section = text.partition(heading)[2].partition("\n## ")[0]
        assert "| `impl (torch/_library/autograd.py:108)` |" in " ".join(section.split())


def test_backward_calls_say_what_each_node_calls(text: str) -> None:
    section = " ".join(text.partition("\n## Backward\n")[2].split())
    assert "| total | op calls | hops | line | forward op | node | what it calls |" in section
    assert "AccumulateGrad has no forward op: its line is the one that called backward()" in section
    assert "| `train.py:45` | | `AccumulateGrad` |" in section


def test_times_of_a_column_share_a_unit_in_which_they_can_be_read() -> None:
    assert times([10_175_768_000, 340_000_000, 99_000_000, 4_500, 0, None]) == [
        *("10.18 s", "0.34 s", "99.0 ms", "4.5 us", "", "")
    ]
    assert times([20_000_000, 100_000, 99_000]) == ["20.00 ms", "0.10 ms", "99.0 us"]
    assert times([999_999, 100]) == ["1,000.00 us", "0.10 us"]
    assert times([None]) == [""]
    assert times([]) == []


def test_a_share_that_rounds_to_nothing_is_not_none() -> None:
    builder = TraceBuilder().calls(hop("aten::slow", "CPU", self_ns=20_000_000), hop("aten::quick", "CPU"))
    text = render(Reading(builder.trace(), "t"))
    assert "### 2. `aten::quick [CPU]`: < 0.1 % of the time in ops\n" in text
    text = text[text.index("## Hottest paths") :]
    rows = [line for line in text.splitlines() if "`aten::quick" in line and line.startswith("|")]
    assert ["< 0.1 %" in row for row in rows] == [True, True]  # of the hottest paths, and of the ops
    assert "0.0 %" not in text.replace("100.0 %", "")
    alone = render(Reading(builder.trace(), "t", patterns=["quick"]))
    assert "They take < 0.1 % of the time in ops." in " ".join(alone.split())


def test_a_backward_line_that_runs_itself_is_named_once() -> None:
    builder = TraceBuilder()
    builder.calls(hop("aten::t", "CPU", backward_node="TBackward0", **at(41)))
    text = render(Reading(builder.trace(), "t"))
    assert "- `train.py:41`, backward in `TBackward0`: 1 call\n" in text
    builder = TraceBuilder()
    builder.calls(hop("aten::t", "CPU", backward_node="TBackward0", **at(41) | {"called_from": "a.py:45"}))
    text = render(Reading(builder.trace(), "t"))
    assert "- `train.py:41`, backward in `TBackward0`, run from `a.py:45`: 1 call\n" in text


def test_times() -> None:
    assert [duration(ns) for ns in (0, 994, 995, 12_345, 999_949, 999_950, 1_500_000_000)] == [
        "0.00 us",
        "0.99 us",
        "1.0 us",
        "12.3 us",
        "999.9 us",
        "1.0 ms",
        "1.5 s",
    ]
    assert duration_and_self(12_345, 1200) == "12.3 us (self 1.2)"
    assert duration_and_self(2_000_000, 1200) == "2.0 ms (self 1.2 us)"


def test_steady_steps_are_counted_beside_all() -> None:
    assert steady_steps(Steps(1, 5)) == "the 5 steady steps, of 6"
    assert steady_steps(Steps(1, 1, untold=2)) == "the 1 steady step, of 4"
    assert steady_steps(Steps(0, 3)) == "the 3 steady steps"


def test_signatures_read_short() -> None:
    schema = TraceBuilder().trace().signatures.schema
    tensor = {"stride": None, "requires_grad": False, "layout": "torch.strided", "device": "cpu"}
    rows = [
        {"id": 1, "position": 0, "shape": [2, 3], "dtype": "torch.bfloat16", **tensor},
        {"id": 1, "position": 1, "shape": [], "dtype": "torch.int64", **tensor},
        {"id": 2, "position": 0, "shape": [3], "dtype": "torch.bool", **tensor, "layout": "torch.sparse_coo"},
        {"id": 2, "position": 1, "shape": None, "dtype": None, **tensor, "device": None},
        {"id": 3, "position": 0, "shape": [3], "dtype": "torch.complex64", **tensor},
        {"id": 3, "position": 1, "shape": [3], "dtype": "torch.float64", **tensor, "device": "cuda:0"},
        *({"id": 4, "position": i, "shape": None, "dtype": "torch.uint8", **tensor} for i in range(5)),
        {"id": 5, "position": 0, "shape": [3], "dtype": "torch.bfloat16", **tensor, "device": "cuda:0"},
        {"id": 5, "position": 1, "shape": None, "dtype": "torch.bfloat16", **tensor},
        {"id": 6, "position": 0, "shape": [3], "dtype": "torch.bfloat16", **tensor, "device": "cuda:0"},
        {"id": 6, "position": 1, "shape": None, "dtype": "torch.bfloat16", **tensor},
        {"id": 6, "position": 2, "shape": [3], "dtype": "torch.bfloat16", **tensor},
    ]
    texts = signature_texts(pl.DataFrame(rows, schema=schema), [1, 2, 3, 4, 5, 6, None])
    assert texts == {
        1: "2x3 bf16, scalar i64",
        2: "3 bool sparse_coo, undefined",
        3: "3 c64 cpu, 3 f64 cuda:0",
        4: "5 of ? u8",
        5: "3 bf16, ? bf16",
        6: "3 bf16 cuda:0, ? bf16, 3 bf16 cpu",
    }


def test_inputs_that_read_the_same_are_counted_together() -> None:
    builder = TraceBuilder()
    both = [([2, 3], "torch.float32"), ([3], "torch.float32")]
    plain_pair, with_gradient = builder.signature(*both), builder.signature(*both, device="cuda:0")
    for tensor in builder.tensors:
        tensor |= {"device": "cpu", "requires_grad": tensor["id"] == with_gradient}
    others = [builder.signature(([n], "torch.float32")) for n in range(1, 6)]
    for inputs in (plain_pair, *others, with_gradient):
        builder.calls(hop("aten::mul", "CPU", inputs=inputs))
    text = render(Reading(builder.trace(), "t"))
    four = "; ".join(f"`{n} f32` (1 call)" for n in range(1, 4))
    assert f"Inputs: `2x3 f32, 3 f32` (2 calls); {four}; 2 more inputs." in text


def test_other_inputs_of_a_line_need_not_differ_in_shape() -> None:
    builder = TraceBuilder()
    for dtype in ("float32", "float64"):
        builder.calls(hop("aten::neg", "CPU", inputs=builder.signature(([3], f"torch.{dtype}"))))
    report = Reading(builder.trace(), "t")
    (line,) = map(plain, tree_lines(hottest(report)[0].nodes, report.trace.signatures))
    assert line.endswith("2 x aten::neg [CPU] neg_CPU (3 f32) and 1 more input")


def test_inputs_of_a_line_that_read_the_same_are_not_counted() -> None:
    builder = TraceBuilder()
    for device in ("cpu", "cuda:0"):  # alone in a signature it is left out of the text
        inputs = builder.signature(([2, 3], "torch.float32"), device=device)
        builder.calls(hop("aten::neg", "CPU", inputs=inputs))
    report = Reading(builder.trace(), "t")
    (line,) = map(plain, tree_lines(hottest(report)[0].nodes, report.trace.signatures))
    assert line.endswith("2 x aten::neg [CPU] neg_CPU (2x3 f32)")


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200, None])
def test_tree_lines_fit(width: int | None) -> None:
    report = Reading(training(), "t")
    for path in hottest(report):
        for line in tree_lines(path.nodes, report.trace.signatures, width=width):
            assert width is None or len(plain(line)) <= width


def test_the_kernel_gives_way_before_op_key_and_time() -> None:
    report = Reading(training(), "t")
    matmul = next(path for path in hottest(report) if path.op == "aten::matmul")
    line = plain(next(iter(tree_lines(matmul.nodes, report.trace.signatures, width=60))))
    assert line.startswith(" 11.5 us    1.0 us  3 x aten::matmul [AutogradCPU] ")


def test_code_spans_hold_any_text() -> None:
    for text in ("a", "`", "``a`", "a|b", "x`y``z"):
        html = MarkdownIt("commonmark").render(code(text))
        assert html == f"<p><code>{text}</code></p>\n"
        html = MarkdownIt("commonmark").enable("table").render(table(["t"], [[code(text)]]))
        assert f"<td><code>{text}</code></td>" in html


def test_prose_holds_any_text() -> None:
    for text in ("a_b _c_", "*x*", "[a](b)", "<b>", "a\\b", "`x`"):
        shown = MarkdownIt("commonmark").render(prose(text))
        assert shown == f"<p>{text.replace('<', '&lt;').replace('>', '&gt;')}</p>\n"


def test_shorten_keeps_the_end() -> None:
    assert shorten("torch::autograd::mm", 10) == "...rad::mm"
    assert shorten("mm", 10) == "mm"
    assert shorten("abcdef", 3) == ""


def test_shorten_makes_paths_relative_to_their_package_first() -> None:
    text = "impl (/usr/lib/python3.12/site-packages/torch/_library/autograd.py:108)"
    assert package_relative(text) == "impl (torch/_library/autograd.py:108)"
    assert shorten(text, 56) == "impl (torch/_library/autograd.py:108)"
    assert shorten(text, 200) == text
    assert shorten(text, 30) == "...h/_library/autograd.py:108"
    assert shorten("(anonymous namespace)::conv(int)", 24) == "...::conv(int)"


def test_labels_and_lines_name_no_folder_of_the_packages() -> None:
    below = hop("aten::neg", "CPU")
    python = hop("my::op", "CPU", below, kernel="impl (/opt/x/site-packages/torch/_library/autograd.py:108)")
    report = Reading(TraceBuilder().calls(python).trace(), "t")
    assert '<br/>impl (torch/_library/autograd.py:108)"]' in flowchart(hottest(report)[0].nodes)
    text = render(report)
    assert "my::op [CPU] impl (torch/_library/autograd.py:108)\n" in text


def test_the_head_says_what_was_recorded_beside_what_ran_ops() -> None:
    trace = TraceBuilder().calls(hop("aten::mm", "CPU")).trace(processes=2, threads=2)
    assert "- 1 thread of 1 process has ops; 2 threads of 2 processes were recorded\n" in render(
        Reading(trace, "t")
    )
    alone = TraceBuilder().calls(hop("aten::mm", "CPU")).trace()
    assert "- 1 thread of 1 process\n" in render(Reading(alone, "t"))


def test_options_of_a_compile_worker_are_left_out() -> None:
    trace = TraceBuilder().calls(hop("aten::mm", "CPU")).calls(hop("aten::mm", "CPU"), process=1).trace()
    worker = "/x/site-packages/torch/_inductor/compile_worker/__main__.py"
    command = f"/x/python3 {worker} --kind=fork --parent=6038 --read-fd=48"
    trace.processes = trace.processes.with_columns(
        command=pl.when(pl.col("process") == 1).then(pl.lit(command)).otherwise("command")
    )
    text = render(Reading(trace, "t"))
    assert ": `/x/python3 torch/_inductor/compile_worker/__main__.py` (options left out)\n" in text
    assert ": `python train.py`\n" in text


def test_percentages_of_all_and_of_nothing() -> None:
    parts = [(0, 1000), (4, 1000), (420, 1000), (999, 1000), (1000, 1000)]
    assert [whole_percent(*part) for part in parts] == [
        "0 %",
        "less than 1 %",
        "42 %",
        "more than 99 %",
        "100 %",
    ]


def test_threads_of_the_environment_say_what_they_are_for() -> None:
    trace = TraceBuilder().calls(hop("aten::mm", "CPU")).trace()
    trace.environment["settings"] = {"threads": 1, "interop_threads": 2}
    rows = " ".join(render(Reading(trace, "t")).split())
    assert "| threads | 1 for each op, 2 to run ops in parallel |" in rows
