"""The reading verbs: `tracer tree` and `tracer report` as a user types them."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from frames import TraceBuilder, hop
from typer.testing import CliRunner, Result

import tracer as tracer_package
from tracer.report.github import joined
from tracer.report.tree import id_texts

SOURCE = "/home/user/project/train.py"


def small_trace():
    builder = TraceBuilder()
    shape = builder.signature(([64, 64], "torch.float32"), ([64, 64], "torch.float32"))
    kernel = hop("aten::mm", "CPU", hop("aten::empty.memory_format", "CPU"))
    matmul = hop("aten::matmul", "AutogradCPU", hop("aten::mm", "AutogradCPU", kernel), inputs=shape)
    matmul.columns |= {"source": f"{SOURCE}:41", "called_from": f"{SOURCE}:41"}
    matmul.columns["kernel"] = "torch::autograd::VariableType::a_kernel_with_quite_a_long_name"
    builder.calls(matmul, times=3)
    builder.calls(hop("aten::add.Tensor", "CPU", source=f"{SOURCE}:42", called_from=f"{SOURCE}:42"))
    node = {"backward_node": "MmBackward0", "source": f"{SOURCE}:41", "called_from": f"{SOURCE}:45"}
    node["forward_hop"] = 0
    builder.calls(hop("aten::mm", "CPU", **node), thread=101)
    builder.calls(hop("my::op", "CPU", hop("aten::neg", "CPU", raised=True), open=True), thread=101)
    return builder.trace()


def load(path: Path):
    text = Path(path).read_text()
    if text.startswith("not"):
        raise sys.modules["tracer.trace"].TraceError(f"{path} is not a trace")
    trace = small_trace()
    if text.startswith("dropped"):
        trace.certificate |= {"complete": False, "verdict": "incomplete: 11 hops; no space"}
    return trace


def put_fake_reader(modules: dict[str, ModuleType]) -> None:
    fake = ModuleType("tracer.trace")
    fake.__path__ = [str(Path(tracer_package.__file__).parent / "trace")]
    fake.TraceError = type("TraceError", (Exception,), {})
    fake.load = load
    modules["tracer.trace"] = fake


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    modules: dict[str, ModuleType] = {}
    put_fake_reader(modules)
    monkeypatch.setitem(sys.modules, "tracer.trace", modules["tracer.trace"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.trace").write_text("whole")
    return tmp_path


def tracer(*arguments: str) -> Result:
    from tracer.cli.app import app

    return CliRunner().invoke(app, list(arguments))


def test_tree_when_piped(folder: Path) -> None:
    assert tracer("tree", "run.trace").stdout == (
        "   total      self  op [key] kernel (inputs)\n"
        "process 0 (pid 4000), thread 100 worker100\n"
        "train.py:41  3 op calls, 12.0 us\n"
        "  4.0 us    1.0 us  3 x aten::matmul [AutogradCPU] "
        "torch::autograd::VariableType::a_kernel_with_quite_a_long_name "
        "(64x64 f32, 64x64 f32)\n"
        "  3.0 us    1.0 us    aten::mm [AutogradCPU] mm_AutogradCPU\n"
        "  2.0 us    1.0 us      -> aten::mm [CPU] mm_CPU\n"
        "  1.0 us    1.0 us        aten::empty.memory_format [CPU] empty.memory_format_CPU\n"
        "train.py:42  1 op call, 1.0 us\n"
        "  1.0 us    1.0 us  aten::add.Tensor [CPU] add.Tensor_CPU\n"
        "process 0 (pid 4000), thread 101 worker101\n"
        "train.py:41 backward: MmBackward0 (run from train.py:45)  1 op call, 1.0 us\n"
        "  1.0 us    1.0 us  aten::mm [CPU] mm_CPU\n"
        "no Python line  1 op call, 2.0 us\n"
        "  2.0 us    1.0 us  my::op [CPU] op_CPU open\n"
        "  1.0 us    1.0 us    aten::neg [CPU] neg_CPU raised\n"
    )


def ops(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return re.findall(r"^ .*? us +(?:\d+ x )?(?:-> )?(\S+) \[", result.stdout, flags=re.M)


MATMUL = ["aten::matmul", "aten::mm", "aten::mm", "aten::empty.memory_format"]


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        (["--op", "aten::*mm"], [*MATMUL, "aten::mm"]),
        (["--op", "mm"], [*MATMUL, "aten::mm"]),
        (["--op", "empty"], MATMUL),
        (["--op", "add.Tensor"], ["aten::add.Tensor"]),
        (["--op", "my::*"], ["my::op", "aten::neg"]),
        (["--key", "Autograd*"], MATMUL),
        (["--key", "Autograd*", "--op", "matmul"], MATMUL),
        (["--source", "train.py:42"], ["aten::add.Tensor"]),
        (["--source", "project/train.py"], [*MATMUL, "aten::add.Tensor", "aten::mm"]),
        (["--source", "train.py:45"], ["aten::mm"]),
        (["--thread", "101"], ["aten::mm", "my::op", "aten::neg"]),
        (["--thread", "worker100"], [*MATMUL, "aten::add.Tensor"]),
        (["--depth", "1", "--thread", "100"], ["aten::matmul", "aten::add.Tensor"]),
        (["--limit", "2"], ["aten::matmul", "aten::mm"]),
        (["--no-fold", "--thread", "100"], [*MATMUL * 3, "aten::add.Tensor"]),
    ],
)
def test_filters(folder: Path, filters: list[str], shown: list[str]) -> None:
    assert ops(tracer("tree", "run.trace", *filters)) == shown


def test_ids_stand_first(folder: Path) -> None:
    lines = tracer("tree", "run.trace", "--ids", "--thread", "100").stdout.splitlines()
    assert lines[1] == "train.py:41  3 op calls, 12.0 us"
    assert [line.split()[0] for line in lines[2:6]] == ["0", "1", "2", "3"]
    assert lines[6].startswith("train.py:42")
    assert re.match(r"12 +1.0 us +1.0 us  aten::add.Tensor \[CPU\]", lines[7])
    assert lines[0].startswith("       total      self  op")
    shown = [line[4:] for line in lines if line[:2].strip().isdecimal()]
    assert all(line[2:4] == "  " for line in lines[2:6])
    without = tracer("tree", "run.trace", "--thread", "100").stdout.splitlines()
    assert shown == [line for line in without[1:] if line.startswith(" ")]


def test_long_times_do_not_touch_the_ids() -> None:
    nodes = pl.DataFrame({"table": ["hops", "hops", "api_calls"], "id": [10, 7, 3]})
    assert id_texts(nodes) == ["   10  ", "    7  ", "api 3  "]


def test_a_tree_as_json(folder: Path) -> None:
    document = json.loads(tracer("tree", "run.trace", "--json", "--limit", "4").stdout)
    assert (document["trace"], document["complete"]) == (small_trace().path, True)
    assert [group["op_calls"] for group in document["groups"]] == [3, 1, 1, 1]
    lines = document["lines"]
    assert [line["op"] for line in lines] == MATMUL
    assert [line["id"] for line in lines] == [0, 1, 2, 3]
    assert [line["parent"] for line in lines] == [None, 0, 1, 2]
    assert {line["table"] for line in lines} == {"hops"}
    assert (lines[0]["count"], lines[0]["median_ns"], lines[0]["total_ns"]) == (3, 4000, 12000)
    assert lines[0]["inputs"] == "64x64 f32, 64x64 f32"
    assert (document["lines_left_out"], document["deeper_hops_left_out"]) == (4, 0)


def test_a_table_as_json(folder: Path) -> None:
    document = json.loads(tracer("top", "run.trace", "--by", "op", "--json").stdout)
    assert document["by"] == "op"
    assert [row["op"] for row in document["rows"]][:1] == ["aten::mm"]
    assert sum(row["hops"] for row in document["rows"]) == len(small_trace().hops)
    assert document["rows_left_out"] == 0


def test_ids_and_json_exclude_each_other(folder: Path) -> None:
    result = tracer("tree", "run.trace", "--json", "--ids")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("state", "status"), [("whole", 0), ("dropped", 1)])
def test_the_certificate_decides_the_exit_status(folder: Path, state: str, status: int) -> None:
    (folder / "run.trace").write_text(state)
    shown = tracer("certificate", "run.trace")
    assert shown.exit_code == status, shown.output
    verdict = "incomplete: 11 hops; no space" if status else "complete: "
    assert verdict in shown.stdout.splitlines()[0]
    document = tracer("certificate", "run.trace", "--json")
    assert document.exit_code == status
    assert json.loads(document.stdout)["complete"] is (status == 0)


def test_what_is_left_out_is_said(folder: Path) -> None:
    assert (
        "Shown: 2 of 8 lines. More: --limit 0. Less: --op, --source.\n"
        in tracer("tree", "run.trace", "--limit", "2").stdout
    )
    assert "Shown:" not in tracer("tree", "run.trace", "--limit", "0").stdout
    deep = tracer("tree", "run.trace", "--depth", "2", "--thread", "100").stdout
    assert deep.endswith("Shown: 2 of 4 levels (6 deeper hops hidden). More: --depth 3.\n")


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        (["--op", "aten::mn"], "no op matches 'aten::mn'; did you mean aten::mm"),
        (["--op", "zzzz"], "no op matches 'zzzz'; this trace has aten::"),
        (["--key", "CUDA"], "no key matches 'CUDA'; did you mean CPU?"),
        (["--source", "trian.py"], "no source matches 'trian.py'; did you mean train.py?"),
        (["--source", "train.py:43"], "no op is at train.py:43; the nearest lines of train.py: 41, 42"),
        (["--source", "xyz.c:3"], "no source matches 'xyz.c:3'; this trace has train.py\n"),
        (["--thread", "7"], "no thread matches '7'; this trace has 100, 101"),
        (["--op", "neg", "--key", "AutogradCPU"], "no hop meets all of these conditions"),
    ],
)
def test_nothing_found_says_what_there_is(folder: Path, filters: list[str], words: str) -> None:
    result = tracer("tree", "run.trace", *filters)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_most_frequent_are_named_first(folder: Path) -> None:
    said = tracer("tree", "run.trace", "--op", "zzzz").stderr
    assert "this trace has aten::mm, aten::empty.memory_format, aten::matmul, aten::add.Tensor, " in said


def test_sql_without_a_file_asks_the_newest_trace(folder: Path) -> None:
    query = "select count(*) as n from hops"
    assert tracer("sql", query).stdout == tracer("sql", "run.trace", query).stdout
    assert tracer("sql", query).stderr == "tracer: reading run.trace, the newest trace here\n"
    for words, said in (
        (["run.trace"], 'give a query for run.trace, e.g. tracer sql run.trace ".schema"'),
        (["gone.trace"], 'give a query for gone.trace, e.g. tracer sql gone.trace ".schema"'),
        (["run.trace", "select", "1"], "1: give one query, in quotation marks, after the trace"),
    ):
        result = tracer("sql", *words)
        assert (result.exit_code, result.stderr) == (2, f"tracer: {said}\n")


def test_without_file_the_newest_trace_is_taken_and_named(folder: Path) -> None:
    (folder / "new.trace").write_text("whole")
    os.utime(folder / "run.trace", (1, 1))
    (folder / "newer.trace").mkdir()
    result = tracer("tree")
    assert result.stderr == "tracer: reading new.trace, the newest trace here\n"
    assert "aten::matmul" in result.stdout


def test_a_trace_that_is_not_whole_says_so(folder: Path) -> None:
    (folder / "run.trace").write_text("dropped")
    assert tracer("tree", "run.trace").stderr == "tracer: incomplete: 11 hops; no space\n"


@pytest.mark.parametrize("verb", ["tree", "report"])
@pytest.mark.parametrize(
    ("file", "code", "words"),
    [
        ("none.trace", 2, "none.trace does not exist"),
        ("folder", 2, r"folder has no \*\.trace; record one a rank into it"),
        ("not.trace", 2, "not.trace is not a trace"),
        (None, 2, r"no \*.trace file in this folder"),
    ],
)
def test_bad_input_is_one_line(folder: Path, verb: str, file: str | None, code: int, words: str) -> None:
    (folder / "folder").mkdir()
    (folder / "not.trace").write_text("not a trace")
    if file is None:
        for trace in folder.glob("*.trace"):
            trace.unlink()
    result = tracer(verb, *([file] if file else []))
    assert result.exit_code == code
    assert re.fullmatch(rf"tracer: .*{words}.*\n", result.stderr)
    assert result.stdout == ""


@pytest.mark.parametrize("verb", ["tree", "report", "record", "certificate"])
def test_help_has_examples(folder: Path, verb: str) -> None:
    result = tracer(verb, "--help")
    assert result.exit_code == 0
    assert re.search(rf"Examples:\n\n?    ?tracer {verb}", result.stdout)
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_usage_errors_end_with_2(folder: Path) -> None:
    assert tracer("tree", "--bogus").exit_code == 2
    assert tracer("tree", "run.trace", "--depth", "0").exit_code == 2


def test_report_to_stdout_and_to_a_file(folder: Path) -> None:
    shown = tracer("report", "run.trace")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("# Dispatch report of `run.trace`\n")
    written = tracer("report", "run.trace", "-o", "out.md")
    assert written.exit_code == 0
    assert written.stdout == ""
    assert joined((folder / "out.md").read_text()) == shown.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["out.md", "run.trace"]


def test_report_overwrites_only_when_forced(folder: Path) -> None:
    (folder / "out.md").write_text("mine")
    refused = tracer("report", "run.trace", "-o", "out.md")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert (folder / "out.md").read_text() == "mine"
    assert tracer("report", "run.trace", "-o", "out.md", "--force").exit_code == 0
    assert (folder / "out.md").read_text().startswith("# Dispatch report")


@pytest.mark.parametrize("output", ["nowhere/out.md", "nowhere/out.html", ".", "out.pdf"])
def test_report_to_an_impossible_place(folder: Path, output: str) -> None:
    result = tracer("report", "run.trace", "-o", output)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    pdf = "tracer: out.pdf: a report is markdown or HTML; give a file that ends in .md or .html\n"
    assert (result.stderr == pdf) == (output == "out.pdf")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_shows_only_on_a_terminal_and_only_when_it_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tracer.base import progress
    from tracer.cli import common

    def shown(stream: io.StringIO, patience: float, seconds: float) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(common, "_PATIENCE_SECONDS", patience)
        monkeypatch.setenv("TERM", "xterm-256color")
        with common.progress("reading run.trace"):
            until = time.monotonic() + seconds
            progress.done(42, 100)
            while "reading run.trace: 42%" not in stream.getvalue() and time.monotonic() < until:
                time.sleep(0.01)
        return stream.getvalue()

    assert "reading run.trace: 42%" in shown(Terminal(), 0.01, 60)
    assert shown(Terminal(), 60, 0.2) == ""
    assert shown(io.StringIO(), 0.01, 0.2) == ""


@pytest.fixture
def cuda_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from cuda_training import training

    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: training())
    return folder


def test_tree_shows_calls_and_what_the_gpu_did(cuda_folder: Path) -> None:
    shown = tracer("tree", "run.trace", "--op", "cublas*").stdout
    assert re.search(r"  7.0 us    2.0 us    3.3 us +cublasSgemm_v2\(N, N, m=64, n=64, k=64\)", shown)
    assert "cudaGetDevice" not in shown
    assert ", 3 queries" in shown
    every = tracer("tree", "run.trace", "--api").stdout
    assert re.search(r" 0.05 us   0.05 us +3 x cudaGetDevice\n", every)
    assert "queries" not in every
    source = tracer("tree", "run.trace", "--source", "train.py:44").stdout
    assert re.search(
        r"^train.py:44  4 calls outside ops, 12.0 us, GPU 8.0 us\n.* cuLaunchKernelEx\(", source, re.M
    )


@pytest.mark.parametrize(("part", "title"), [("cuda", "CUDA runtime survey"), ("kernels", "Kernel survey")])
def test_report_of_one_part(cuda_folder: Path, part: str, title: str) -> None:
    shown = tracer("report", "run.trace", "--only", part).stdout
    assert shown.startswith(f"# {title} of `run.trace`\n")
    assert "## Hottest paths" not in shown


def test_report_with_measured_peaks(cuda_folder: Path) -> None:
    options = ["--only", "kernels", "--peak-bandwidth", "4300", "--peak-flops", "700"]
    shown = tracer("report", "run.trace", *options).stdout
    assert "4.3 TB/s" in shown
    assert "16-bit tensor 700 TFLOP/s" in shown


def test_a_part_that_there_is_not(folder: Path) -> None:
    result = tracer("report", "run.trace", "--only", "gpu")
    assert result.exit_code == 2
    assert result.stderr == "tracer: --only gpu: choose cuda or kernels\n"


def test_the_ops_of_ranges_are_torchs_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter = hop("profiler::_record_function_enter_new", "Undefined")
    both = TraceBuilder().calls(enter, hop("aten::add.Tensor", "CPU")).trace()
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: both)
    assert ops(tracer("tree", "run.trace")) == ["aten::add.Tensor"]
    rows = json.loads(tracer("top", "run.trace", "--json").stdout)["rows"]
    assert [row["op"] for row in rows] == [enter.op, "aten::add.Tensor"], "as in the report's tables"
    assert ops(tracer("tree", "run.trace", "--op", "profiler::*")) == [enter.op]
    alone = TraceBuilder().calls(enter).trace()
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: alone)
    assert ops(tracer("tree", "run.trace")) == [enter.op], "a step of compiled code has nothing else"
