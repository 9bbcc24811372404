"""How a comparison reads."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from frames import TraceBuilder, hop

from tracer.cli.documents import print_json
from tracer.compare.accuracy import Check, Deviation, Element
from tracer.compare.bounds import Bound
from tracer.compare.call_memory import Memory
from tracer.compare.cases import CPU, CUDA
from tracer.compare.chains import ChainTables
from tracer.compare.document import comparisons_document, program_document
from tracer.compare.markdown import command_line, render
from tracer.compare.model import CaseResult, Chains, Comparison, Timing
from tracer.compare.program import Alone, OpComparison, ProgramComparison
from tracer.compare.program_markdown import render as render_program
from tracer.compare.roof import BYTES, Limit
from tracer.compare.timing import Samples
from tracer.compare.trial_runs import TrialResult
from tracer.compare.trials import Trials

BOUND = Bound(relative=2e-6, largest=1e-6, scaled=True)
FACTS = {"argv": ["/usr/bin/tracer", "compare", "mm"], "torch": "2.13.0+cpu", "device": "CPU, 2 threads"}


def timing(stock: float, override: float, pairs: int = 50) -> Timing:
    found = Timing.of(Samples([stock] * pairs, [override] * pairs))
    assert found is not None
    return found


def chains() -> Chains:
    def one(kernel: str, *inside: object) -> TraceBuilder:
        mine = hop("aten::mm", "CPU", *inside, kernel=kernel, step=1)
        return TraceBuilder().calls(hop("aten::mm", "AutogradCPU", mine, step=1))

    sides = [one("wrapper_CPU_mm"), one("mine.mm", hop("aten::empty", "CPU", step=1))]
    return Chains.of(*(ChainTables(side.trace()).of_step(1) for side in sides))


def right() -> CaseResult:
    return CaseResult(
        "mm fp32 8x8 8x8",
        wall=timing(20_000, 10_000),
        host=timing(9_000, 8_000),
        gpu=timing(5_000, 4_000),
        calls=10,
        memory=(Memory(1, 256, 256), Memory(2, 2048, 1024)),
        checks=[Check("result", BOUND, Deviation(1e-7, 1e-7, 1.0), Deviation(2e-7, 3e-7, 1.0), "", None)],
        limit=Limit(2_000, BYTES, 4.8e12),
        ran={"aten::mm": 1},
        chains=chains(),
    )


def wrong() -> CaseResult:
    worst = Element((3, 7), 1.5, 2.5, 1.5)
    found = Check("result", BOUND, Deviation(1e-7, 1e-7, 1.0), Deviation(0.5, 1.0, 0.9), "far off", worst)
    return CaseResult("mm bf16 8x8 8x8", checks=[found], ran={"aten::mm": 1}, wall=timing(1000, 1000))


def handed_over() -> CaseResult:
    return CaseResult("mm fp64 8x8 8x8", handed_over={"aten::mm": {"float64": 1}}, wall=timing(1000, 1100))


def failed() -> CaseResult:
    return CaseResult("mm fp16 8x8 8x8", failed="Traceback (most recent call last):\nValueError: no `fp16`\n")


def comparison(*cases: CaseResult, device: str = CPU) -> Comparison:
    return Comparison(
        title="tracer compare mm",
        overrides=("mine",),
        device=device,
        facts=FACTS,
        roof="NVIDIA H200: 4.8 TB/s",
        cases=list(cases),
        certificate={
            "verdict": "complete: 7 hops, nothing dropped",
            "why": [],
            "cuda": {"state": "recorded"},
        },
        remarks=[],
    )


def row(text: str, name: str) -> list[str]:
    """The cells of the first row of a table that has `name`."""
    line = next(line for line in text.splitlines() if line.startswith("|") and name in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_case_on_the_cpu() -> None:
    text = render(comparison(right()))
    assert text.startswith(
        "# tracer compare mm: stock beside `mine`\n\n"
        "**no difference found in 1 case; 1.25 times as fast as stock**"
    )
    assert row(text, "command")[1] == "`tracer compare mm`"
    assert row(text, "mm fp32 8x8") == [
        *("20.0 us", "10.0 us", "2.00 (2.00 to 2.00)", "40 % -> 50 %", "2.00"),
        *("1", "mm fp32 8x8 8x8", "no difference"),
    ]
    assert row(text, "wall time")[1:] == [
        "20.0 us (20.0 us to 20.0 us)",
        "10.0 us (10.0 us to 10.0 us)",
        "2.00 (2.00 to 2.00)",
    ]
    assert row(text, "allocated") == ["allocated", "256 B in 1", "2.0 KiB in 2", ""]
    assert row(text, "`result`") == [
        "1e-07",
        "2e-07",
        "1e-07",
        "3e-07",
        "`result`",
        "relative 2e-06, largest 1e-06",
    ]
    assert "=>    1.0 us           -   -> aten::mm [CPU] wrapper_CPU_mm" in text
    sentence = "Of the 1 case in which the override ran, it is faster in 1 and slower in 0 by wall time. ##"
    assert sentence in " ".join(text.split())
    assert "CUDA" not in text
    assert not text.endswith("\n\n")


def test_a_case_on_the_gpu_has_host_wall_and_gpu_time() -> None:
    case = right()
    case.limit = Limit(2_000, BYTES, 4.8e12, in_cache=True)
    case.cold = Timing.of(Samples([6_000.0] * 3, [8_000.0] * 3))
    text = render(comparison(case, device=CUDA))
    assert row(text, "mm fp32 8x8")[:-3] == [
        *("20.0 us", "10.0 us", "2.00 (2.00 to 2.00)"),
        *("5.0 us", "4.0 us", "1.25 (1.25 to 1.25)"),
        *("6.0 us", "8.0 us", "0.75 (0.75 to 0.75)"),
        *("in L2", "2.00"),
    ]
    assert "limit, of" not in text
    assert row(text, "host time")[1].startswith("9.0 us")
    assert row(text, "launches") == ["library calls, API calls, launches", "0, 0, 0", "0, 0, 0", ""]
    assert "CUDA, state: recorded" in text
    said = " ".join(text.split())
    assert "No limit is known: the memory moves its bytes in 2.0 us" in said
    assert "In L2: its bytes fit into the L2 cache" in said


def test_bytes_beyond_the_cache_are_a_limit() -> None:
    text = render(comparison(right(), device=CUDA))
    assert row(text, "mm fp32 8x8")[9:11] == ["40 % -> 50 %", "2.00"]
    assert row(text, "limit, of the GPU time")[1:] == ["40 %", "50 %", ""]
    said = " ".join(text.split())
    assert (
        "The least time that the device allows is 2.0 us, by the bytes that must be moved, at 4.8 TB/s"
        in said
    )


def test_a_limit_without_gpu_time_is_that_of_the_wall_time() -> None:
    case = right()
    case.gpu = None
    text = render(comparison(right(), case, handed_over(), device=CUDA))
    assert "| 10 % -> 20 %, wall |" in text
    said = " ".join(text.split())
    assert 'by NVIDIA H200: 4.8 TB/s. "Of the limit" is that time divided by its GPU time (wall time' in said
    assert (
        "Of the 2 cases in which the override ran, it is faster in 2 and slower in 0 by wall time, "
        "faster in 1 and slower in 0 by GPU time, which 1 have." in said
    )


def test_where_no_ratio_is_sure_it_is_said() -> None:
    case = right()
    case.wall = Timing.of(Samples([1000.0, 2000.0] * 5, [2000.0, 1000.0] * 5))
    text = " ".join(render(comparison(case)).split())
    assert (
        "faster in 0 and slower in 0 by wall time. In the rest the interval of the ratio reaches 1." in text
    )


def test_chains_that_an_earlier_case_has_are_not_shown_again() -> None:
    text = render(comparison(right(), wrong(), right()))
    assert text.count("-   -> aten::mm") == 1
    assert "The dispatch chains are those of case 1, with other times." in text


def test_notes_stand_below_the_table_and_in_their_cases() -> None:
    noted = right()
    noted.note = "stock copies its bf16 weights together in each call"
    text = render(comparison(noted, right(), noted))
    assert "In cases 1, 3 stock copies its bf16 weights together in each call." in text
    assert text.count("- stock copies its bf16 weights together in each call\n") == 2


def test_a_command_is_shown_without_the_folders_of_the_machine() -> None:
    assert command_line(["/home/user/v/bin/tracer", "compare", "mm", "-o", "/tmp/r/mm.md"]) == (
        "tracer compare mm -o mm.md"
    )
    assert command_line(["bin/tracer", "--override", "/home/user/own.py:mm", "--case", "fp32 8x8"]) == (
        "tracer --override own.py:mm --case 'fp32 8x8'"
    )
    assert command_line(["tracer", "--output=/tmp/r/mm.md", "r/mm.md"]) == "tracer --output=mm.md r/mm.md"
    assert command_line([]) == ""


def test_a_wrong_result_shows_the_worst_element() -> None:
    text = render(comparison(right(), wrong()))
    assert "**WRONG in 1 of 2 cases; 1.25 times as fast as stock (1.00 to 1.25)**" in text
    assert row(text, "mm bf16")[-1] == "**WRONG**"
    assert (
        "**Wrong**, `result`: far off. The worst element is [3, 7]: stock 1.5, override 2.5, float64 1.5."
        in " ".join(text.split())
    )


def test_what_was_handed_over_and_what_raised() -> None:
    text = render(comparison(handed_over(), failed()))
    assert "`aten::mm`: 1 call handed over to stock: float64" in text
    assert row(text, "mm fp64")[-1] == "stock ran, handed over"
    assert row(text, "mm fp16")[-1] == "**raised**"
    assert "```text\nTraceback (most recent call last):\nValueError: no `fp16`\n```" in text
    assert "WRONG in 1 of 2 cases; the override ran in 0 cases" in text
    assert "In which the override ran" not in text


def test_bits_that_differ_from_call_to_call_are_said() -> None:
    case = right()
    case.repeats = False
    text = render(comparison(case))
    assert row(text, "mm fp32 8x8")[-1] == "no difference, not the same bits twice"
    assert "- two calls of the override gave different bits" in text


def program(**changes: object) -> ProgramComparison:
    alone = Alone(
        (Deviation(1e-7, 1e-7, 1.0), Deviation(3e-7, 3e-7, 1.0)),
        (Memory(1, 256, 256), Memory(2, 2048, 1024)),
        Limit(500, BYTES, 1e9),
    )
    times = timing(1000, 2000, 3), timing(3500, 9000, 3)
    op = OpComparison("aten::mm", "8x8 f32", (3, 3), *times, (0, 0), chains(), (0, 2), alone)
    state = {"name": "mine", "mode": "force", "operator": "aten::mm", "key": "CPU", "kernel": "mine.mm"}
    state |= {"registered_at": None, "from_ns": 0, "to_ns": None, "times": 1, "processes": 1, "ran": 3}
    state |= {"hops": 3, "handed_over": {"float64": 2}, "never_ran": None}
    certificate = {"verdict": "complete: 7 hops, nothing dropped", "why": []}
    given = {
        "command": ["train.py", "--epochs", "1"],
        "overrides": ("mine",),
        "runs": 3,
        "process": timing(3e9, 3e9, 3),
        "elapsed": timing(1e9, 2e9, 3),
        "in_ops": timing(5e8, 1e9, 3),
        "in_calls": timing(3000, 6000, 3),
        "in_calls_gpu": None,
        "gpu": None,
        "ops": [op],
        "hops": (556, 811),
        "output": [],
        "output_lines": 2,
        "steady_output": True,
        "states": [state],
        "facts": FACTS,
        "certificates": (certificate, certificate),
    }
    return ProgramComparison(**(given | changes))  # type: ignore[arg-type]


def test_a_script() -> None:
    text = render_program(program())
    assert text.startswith("# `train.py --epochs 1`: stock beside `mine`")
    assert (
        "**the overrides computed 3 calls; 2 calls handed over to stock; its calls are 0.50 x (95 %: 0.50 to "
        "0.50) as fast as stock's; stdout is the same**"
    ) in text
    assert row(text, "in ops") == [
        *("in ops", "500.0 ms (500.0 ms to 500.0 ms)", "1.0 s (1.0 s to 1.0 s)", "0.50 (0.50 to 0.50)")
    ]
    assert row(text, "8x8 f32") == [
        *("1.0 us", "2.0 us", "0.50 (0.50 to 0.50)", "3.5 us", "9.0 us", "3", "3", "`aten::mm`", "8x8 f32")
    ]
    alone = text[text.index("## Errors, memory and the limit") :]
    assert row(alone, "8x8 f32")[:-2] == [
        *("50 % -> 25 %", "1e-07", "3e-07", "256 B", "2.0 KiB", "256 B", "1.0 KiB")
    ]
    assert "handed 2 calls over to stock: float64" in text
    assert "2 calls of the override became another chain" in " ".join(text.split())
    assert "-   -> aten::mm [CPU] wrapper_CPU_mm" in text


def test_a_script_whose_output_differs_and_whose_override_never_ran() -> None:
    difference = ["--- stock", "+++ override", "@@ -1 +1 @@", "-loss 1", "+loss 2"]
    text = render_program(program(output=difference, steady_output=False, states=[], ops=[]))
    assert "**NO OVERRIDE RAN; stdout differs**" in text
    assert "```diff\n--- stock\n+++ override\n@@ -1 +1 @@\n-loss 1\n+loss 2\n```" in text
    assert "It differs between runs of stock, too." in text


def test_what_a_script_s_override_computes_wrong_or_not_at_all_is_in_the_verdict() -> None:
    (op,) = program().ops
    assert op.alone is not None
    far = replace(op, alone=replace(op.alone, wrong="relative error 0.1, but stock has 1e-07"))
    assert "; WRONG in aten::mm: relative error 0.1, but stock has 1e-07; " in render_program(
        program(ops=[far])
    )
    fast = replace(op, call=timing(1000, 100, 3))
    text = render_program(program(ops=[fast]))
    warning = "WARNING: the override of aten::mm reached 500 % of the device's limit"
    assert f"; {warning}: does it compute each call?**" in text
    unknown = replace(op, alone=Alone(why="argument 1 'dim' was not recorded"))
    assert "- `aten::mm` 8x8 f32: not called again: argument 1 'dim' was not recorded" in render_program(
        program(ops=[unknown])
    )


def test_of_a_gpu_the_verdict_has_the_speed_there_and_the_limit_is_held_against_it() -> None:
    (op,) = program().ops
    on_gpu = replace(op, gpu_ns=(3000, 1500))
    text = render_program(program(ops=[on_gpu], in_calls_gpu=timing(3000, 1500, 3)))
    assert (
        "0.50 x (95 %: 0.50 to 0.50) as fast as stock's by host time, 2.00 x (95 %: 2.00 to 2.00) by GPU"
        in text
    )
    assert row(text[text.index("## Errors") :], "8x8 f32")[0] == "50 % -> 100 %"


def test_one_run_has_no_interval() -> None:
    once = program(runs=1, in_ops=timing(5e8, 1e9, 1))
    assert row(render_program(once), "in ops")[1:] == ["500.0 ms", "1.0 s", "0.50"]
    assert "its calls are 0.50 x as fast as stock's;" in render_program(once)


def test_cases_one_by_one_are_those_that_are_wrong_and_those_that_change_the_most() -> None:
    slower, same = right(), right()
    slower.name, same.name = "slower", "same"
    slower.gpu, same.gpu = timing(1000, 9000), timing(1000, 1001)
    cases = comparison(same, slower, right(), failed())
    text = render(cases, 2)
    assert re.findall(r"^## \d.*$", text, flags=re.M) == ["## 2. slower", "## 4. mm fp16 8x8 8x8"]
    assert "2 of 4 cases follow one by one" in text
    assert len(re.findall(r"^## \d", render(cases), flags=re.M)) == 4
    assert "one by one" not in render(cases)


SPREAD = {"median", "lower", "upper", "samples"}
CHAIN = {
    *("op_calls", "hops", "library_calls", "api_calls", "launches", "allocations"),
    *("gpu_ns", "lines"),
}
CASE = {
    *("name", "passed", "broken", "failed", "raised", "note", "repeats", "ran", "handed_over"),
    *("wall", "host", "gpu", "cold", "why_no_gpu", "calls", "memory", "checks", "limit", "chains"),
}
COMPARISON = {
    *("title", "overrides", "device", "facts", "certificate", "remarks", "roof", "cases", "trials"),
}
PROGRAM = {
    *("wrong", "command", "overrides", "runs", "facts", "hops", "process", "elapsed", "in_ops", "gpu"),
    *("in_calls", "in_calls_gpu", "output", "output_lines", "steady_output", "states", "ops", "certificates"),
    "trials",
}
OP = {"op", "inputs", "calls", "gpu_ns", "call", "total", "chains", "other_chains", "alone"}


def printed(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    print_json(document)
    return dict(json.loads(capsys.readouterr().out, parse_constant=refused))


def check_time(time: dict[str, Any]) -> None:
    assert time.keys() == {"stock", "override", "ratio"}
    assert time["stock"].keys() == time["override"].keys() == SPREAD
    assert time["ratio"].keys() == {"value", "low", "high"}


def check_chains(chains: dict[str, Any]) -> None:
    assert chains.keys() == {"stock", "override"}
    for side in chains.values():
        assert side.keys() == CHAIN
        assert side["hops"] == sum(line["members"] for line in side["lines"])
    assert [line["kernel"] for line in chains["override"]["lines"]][1] == "mine.mm"
    assert [line["level"] for line in chains["override"]["lines"]] == [0, 1, 2]


def test_the_document_of_cases(capsys: pytest.CaptureFixture[str]) -> None:
    compared = comparison(right(), wrong(), failed(), device=CUDA)
    document = printed(comparisons_document([compared], "wrong in 1 of 3 cases"), capsys)
    assert document.keys() == {"wrong", "comparisons"}
    assert document["wrong"] == "wrong in 1 of 3 cases"
    (found,) = document["comparisons"]
    assert found.keys() == COMPARISON
    assert [case.keys() for case in found["cases"]] == [CASE] * 3
    first, second, third = found["cases"]
    check_time(first["gpu"])
    assert first["gpu"]["ratio"]["value"] == 1.25
    assert first["cold"] is None
    assert first["memory"][1] == {"allocations": 2, "allocated": 2048, "peak": 1024}
    assert first["checks"][0]["wrong"] == ""
    check_chains(first["chains"])
    assert second["checks"][0]["worst"] == {"index": [3, 7], "stock": 1.5, "override": 2.5, "exact": 1.5}
    assert [case["passed"] for case in found["cases"]] == [True, False, False]
    assert third["memory"] == [None, None]
    assert (third["wall"], third["chains"], third["limit"]) == (None, None, None)


def test_a_number_that_is_not_finite_is_null_in_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    far = Deviation(float("inf"), float("nan"), 0.0)
    case = CaseResult("mm", checks=[Check("NaN", Bound(relative=1.0), far, far, "not finite", None)])
    document = printed(comparisons_document([comparison(case)], ""), capsys)
    (check,) = document["comparisons"][0]["cases"][0]["checks"]
    assert check["output"] == "NaN"
    assert check["bound"] == {"relative": 1.0, "largest": None, "scaled": False, "cosine": None}
    assert check["stock"] == check["override"] == {"relative": None, "largest": None, "cosine": 0.0}
    assert document["wrong"] is None


def test_trials_of_a_script_are_in_its_headline_and_in_a_table() -> None:
    wrong = TrialResult("layouts", "mm, transposed", "other values than stock's", ran=True)
    fine = TrialResult("calls of the script", "mm, 8x8, 8x8", ran=True)
    trials = Trials((fine, wrong), (("another stream", "the override is for the CPU"),))
    text = render_program(replace(program(), trials=trials))
    assert "; WRONG in 1 of 2 trials of 2 kinds (calls of the script: 0 of 1); stdout" in text
    assert row(text, "mm, transposed") == ["layouts", "mm, transposed", "other values than stock's"]
    assert "not tried, the override is for the CPU" in text
    text = render_program(replace(program(), trials=Trials((fine,))))
    assert "; no difference found in 1 trial of 1 kind; stdout" in text


def test_trials_that_are_wrong_in_the_same_words_are_one_row() -> None:
    """40 rows of one exception hid that values were wrong, too."""
    names = [f"gelu, approximate = {name}" for name in ("floor", "sum", "mean")]
    raised = [TrialResult("other arguments", name, "it returned a result") for name in names]
    values = TrialResult("other arguments", "gelu, tanh", "other values than stock's")
    text = render_program(replace(program(), trials=Trials((*raised[:2], values, *raised[2:]))))
    assert row(text, "approximate")[1:] == [f"{names[0]} and 2 more trials", "it returned a result"]
    assert row(text, "gelu, tanh")[1:] == ["gelu, tanh", "other values than stock's"]
    assert text.count("it returned a result") == 1


def test_the_document_of_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(program_document(program(), ""), capsys)
    assert document.keys() == PROGRAM
    assert document["hops"] == [556, 811]
    check_time(document["in_ops"])
    assert document["gpu"] is None
    (op,) = document["ops"]
    assert op.keys() == OP
    assert (op["op"], op["calls"]) == ("aten::mm", [3, 3])
    assert op["other_chains"] == [0, 2]
    check_time(op["call"])
    check_time(op["total"])
    check_chains(op["chains"])


def test_a_document_of_one_run_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    once = program(runs=1, in_ops=timing(5e8, 1e9, 1))
    ratio = printed(program_document(once, ""), capsys)["in_ops"]["ratio"]
    assert ratio == {"value": 0.5, "low": None, "high": None}
