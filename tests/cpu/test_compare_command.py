"""`tracer compare` as a user runs it, with real overrides on the CPU."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from launching import Launcher, Run

NUMPY_MM = Path(__file__).parents[2] / "examples" / "overrides" / "cpu_mm.py"
OVERRIDES = """
import torch
from tracer import overrides

@overrides.register("aten::mm", "CPU", name="wrong")
def wrong(self, mat2):
    result = torch.mm(self, mat2)
    result[-1, 0] += 1
    return result

@overrides.register("aten::mm", "CPU", name="raising")
def raising(self, mat2):
    raise ValueError("no product today")

@overrides.register("aten::cat", "CPU", name="slow_cat")
def slow_cat(tensors, dim=0):
    if len(tensors) > 2:
        raise overrides.HandOver("more than two tensors")
    result = torch.empty_strided(*strided(tensors, dim), dtype=tensors[0].dtype)
    size = tensors[0].shape[dim]
    result.narrow(dim, 0, size).copy_(tensors[0])
    result.narrow(dim, size, tensors[1].shape[dim]).copy_(tensors[1])
    return result

def strided(tensors, dim):
    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return shape, torch.empty(shape, device="meta").stride()

def loose(self, mat2):
    return self

def product(self, mat2):
    return (self.double() @ mat2.double()).to(self.dtype)

@overrides.register("aten::mm", "CPU", name="fine")
def fine(self, mat2):
    return product(self, mat2)

buffers = {}

@overrides.register("aten::mm", "CPU", name="one_buffer")
def one_buffer(self, mat2):
    return buffers.setdefault(len(self), torch.empty(len(self), mat2.shape[1])).copy_(product(self, mat2))

@overrides.register("aten::mm", "CPU", name="other_strides")
def other_strides(self, mat2):
    return product(self, mat2).t().contiguous().t()

@overrides.register("aten::mm", "CPU", name="writing")
def writing(self, mat2):
    result = product(self, mat2)
    self.add_(1)
    return result

@overrides.register("aten::mm", "CPU", name="writing_the_same")
def writing_the_same(self, mat2):
    torch.autograd.graph.increment_version(self)
    return product(self, mat2)

@overrides.register("aten::mm", "CPU", name="not_a_number")
def not_a_number(self, mat2):
    return product(self, mat2).fill_(float("nan"))

@overrides.register("aten::mm", "CPU", name="ending")
def ending(self, mat2):
    raise SystemExit(3)
"""
SCRIPT = """
import sys
import torch

torch.manual_seed(0)
weight = torch.randn(16, 4, requires_grad=True)
for _ in range(3):
    loss = (torch.randn(8, 16) @ weight).square().mean()
    loss.backward()
print("rows", *sys.argv[1:])
if "exactly" in sys.argv:
    print(weight.grad.sum().item().hex())
"""


def compare(launcher: Launcher, *arguments: str, **options: object) -> Run:
    return launcher.run([str(launcher.tracer), "compare", *arguments], **options)


def cells(text: str, name: str) -> list[str]:
    """Of the first row of a table that has `name`."""
    line = next(line for line in text.splitlines() if line.startswith("|") and name in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """Three cases of mm with numpy's product: fp32, fp64 and bf16."""
    launcher = Launcher(tmp_path_factory.mktemp("compared"))
    launcher.write("precious", "report.md")
    run = compare(
        launcher,
        *("mm", "--override", f"{NUMPY_MM}:numpy_mm", "--case", "64x64 64x64", "--pairs", "10"),
        *("-o", "report.md", "--force"),
    )
    assert sorted(path.name for path in launcher.folder.iterdir()) == ["report.md", "report.ratios.svg"]
    return run, (launcher.folder / "report.md").read_text()


@pytest.mark.promise("compare", "docs/compare.md")
def test_numpy_in_the_place_of_stock(compared: tuple[Run, str]) -> None:
    run, text = compared
    assert run.status == 0
    assert run.out == ""
    assert run.err == (
        "tracer: override numpy_mm handed aten::mm over to stock: numpy has no bfloat16\n"
        "tracer: pictures beside it: report.ratios.svg\n"
    )
    assert "**no difference found in 3 cases; the override ran in 2 cases; " in text
    assert cells(text, "mm fp32")[-1] == "no difference"
    assert cells(text, "mm fp64")[-1] == "no difference"
    assert cells(text, "mm bf16")[-1] == "stock ran, handed over"
    assert "\x1b" not in text


def test_the_times_have_their_spread_and_an_interval(compared: tuple[Run, str]) -> None:
    _, text = compared
    assert "medians of 10 pairs" in text
    ratio = re.fullmatch(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)", cells(text, "mm fp32")[2])
    assert ratio is not None
    assert float(ratio[2]) <= float(ratio[1]) <= float(ratio[3])
    for cell in cells(text, "wall time")[1:3]:
        assert re.fullmatch(r"[\d.]+\s[um]s \([\d.]+\s[um]s to [\d.]+\s[um]s\)", cell)


def test_the_chains_part_at_the_override(compared: tuple[Run, str]) -> None:
    _, text = compared
    first = [line for line in text.splitlines() if line.startswith("=> ")]
    assert re.fullmatch(r"=> +[\d.]+ .s +-   -> aten::mm \[CPU\] wrapper_CPU_mm", first[0])
    assert re.search(r"^ +[\d.]+ .s \+   -> aten::mm \[CPU\] cpu_mm\.mm \(.*cpu_mm\.py:\d+\)", text, re.M)
    assert re.search(r" \+ +aten::new_empty \[CPU\]", text)


def test_folders_of_the_machine_are_not_shown(compared: tuple[Run, str]) -> None:
    _, text = compared
    assert "--override cpu_mm.py:numpy_mm --case '64x64 64x64'" in cells(text, "command")[1]
    assert str(NUMPY_MM.parent) not in text


def test_memory_limit_and_certificate_are_there(compared: tuple[Run, str]) -> None:
    _, text = compared
    assert cells(text, "allocated")[1:3] == ["16.0\xa0KiB in 1"] * 2
    assert re.search(
        r"At the best that stock reached here, [\d.]+ [MG]FLOP/s, its float32 operations take", text
    )
    assert "## Certificate of the chains\n\n- complete: " in text


def test_cat_is_compared_byte_by_byte(launcher: Launcher) -> None:
    launcher.write(OVERRIDES, "kernels.py")
    run = compare(launcher, "cat", "--override", "kernels:slow_cat", "--case", "512", "--pairs", "2")
    assert run.status == 0
    assert {"same bytes", "no difference"} <= {*cells(run.out, "2 x 64x512")}
    assert cells(run.out, "4 x 64x512")[-1] == "stock ran, handed over"
    assert "1 call handed over to stock: more than two tensors" in run.out


def test_a_wrong_result_fails_and_shows_the_worst_element(launcher: Launcher) -> None:
    launcher.write(OVERRIDES, "kernels.py")
    run = compare(launcher, "mm", "--override", "kernels.py:wrong", "--case", "fp32 64x64", "--pairs", "2")
    assert run.status == 1
    assert re.fullmatch(
        r"tracer: wrong in 1 of 1 case; mm fp32 64x64 64x64: result: relative error [\d.e-]+, above the "
        r"bound of 2e-06\. The worst element is \[63, 0\]: stock (\S+), override (\S+), float64 (\S+)\.\n",
        run.err,
    )
    assert "**Wrong**, `result`" in run.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("one_buffer", "two calls return the same memory"),
        ("other_strides", "strides (1, 64), but stock has (64, 1)"),
        ("writing", "it changes input 0"),
        ("writing_the_same", "it writes to input 0: its version counter rose"),
        ("ending", "it raised SystemExit: 3"),
    ],
)
def test_a_case_alone_shows_what_is_wrong_beside_values(launcher: Launcher, name: str, said: str) -> None:
    launcher.write(OVERRIDES, "kernels.py")
    only = ("--case", "fp32 64x64", "--pairs", "2", "--seconds", "0.1")
    run = compare(launcher, "mm", "--override", f"kernels.py:{name}", *only)
    assert run.status == 1
    assert run.err == f"tracer: wrong in 1 of 1 case; mm fp32 64x64 64x64: {said}\n"
    if name != "ending":
        assert f"**Wrong**: {said}." in " ".join(run.out.split())
        assert cells(run.out, "mm fp32")[-1] == "**WRONG**"


def test_calls_of_the_override_itself_are_not_handed_over(launcher: Launcher) -> None:
    launcher.write(OVERRIDES, "kernels.py")
    only = ("--case", "fp32 64x64", "--pairs", "2", "--seconds", "0.1")
    run = compare(launcher, "mm", "--override", "kernels.py:fine", *only)
    assert (run.status, run.err) == (0, "")
    assert cells(run.out, "mm fp32")[-1] == "no difference"


def test_cases_and_trials_that_are_wrong_are_both_said(launcher: Launcher) -> None:
    launcher.write(OVERRIDES, "kernels.py")
    few = ("--pairs", "2", "--seconds", "0.01", "--details", "0")
    run = compare(launcher, "mm", "--override", "kernels.py:not_a_number", *few)
    assert run.status == 1
    assert re.search(
        r"wrong in \d of 9 cases; mm fp32 64x64 64x64: .*; wrong in \d+ of \d+ trials; mm, ", run.err
    )
    assert {"not finite", "**WRONG**"} <= {*cells(run.out, "mm fp32 64x64")}


def test_an_override_that_raises_fails_with_its_traceback_in_the_report(launcher: Launcher) -> None:
    launcher.write(OVERRIDES, "kernels.py")
    run = compare(launcher, "mm", "--override", "kernels.py:raising", "--case", "fp32 64x64", "--pairs", "2")
    assert run.status == 1
    assert run.err.count("\n") == 1
    assert run.err.endswith("it raised ValueError: no product today\n")
    assert "ValueError: no product today" in run.out
    assert 'in raising\n    raise ValueError("no product today")' in run.out


def test_an_override_that_no_case_calls_is_said_aloud(launcher: Launcher) -> None:
    run = compare(
        launcher, "cat", "--override", f"{NUMPY_MM}:numpy_mm", "--case", "2 x 64x512", "--pairs", "2"
    )
    assert run.status == 0
    assert run.err == "tracer: numpy_mm never ran, so stock was compared with itself\n"
    assert "the override never ran" in run.out


@pytest.mark.promise("compare", "docs/compare.md#a-script")
def test_a_script_with_stock_and_with_the_override(launcher: Launcher) -> None:
    launcher.write(SCRIPT, "train.py")
    launcher.write("raise ImportError('another tracer')", "tracer/__init__.py")
    run = compare(
        launcher,
        *(
            "--override",
            f"{NUMPY_MM}:numpy_mm",
            "--repeats",
            "2",
            "train.py",
            "--rows",
            "8",
            "-o",
            "report.md",
        ),
    )
    assert run.status == 0, run.err
    assert run.out == ""
    text = (launcher.folder / "report.md").read_text()
    assert text.startswith("# `train.py --rows 8`: stock beside `numpy_mm`")
    assert re.search(
        r"\*\*the overrides computed 6 calls; its calls are [\d.]+ x \(95 %: [\d.]+ to [\d.]+\) as fast as "
        r"stock's; no difference found in \d+ trials of \d+ kinds; stdout is the same(; WARNING.*)?\*\*",
        text,
    )
    assert "Both sides wrote the same to stdout: 1 line." in text
    assert cells(text, "8x16 f32, 16x4 f32")[5:7] == ["3", "3"]
    assert re.fullmatch(r"[\d.]+ \([\d.]+ to [\d.]+\)", cells(text, "in ops")[3])
    assert re.search(r"^=> .* -   -> aten::mm \[CPU\] wrapper_CPU_mm", text, re.M)
    assert text.count("- complete: ") == 2
    assert cells(text, "`aten::mm [CPU]`")[3:5] == ["`numpy_mm`", "force"]
    assert "`aten::addmm` never ran" in text
    alone = text[text.index("## Errors, memory and the limit") :]
    for error in cells(alone, "8x16 f32, 16x4 f32")[1:3]:
        assert 0 < float(error) < 1e-6
    assert cells(alone, "8x16 f32, 16x4 f32")[3:7] == ["128\xa0B"] * 4
    assert re.fullmatch(r"\d+\s% -> \d+\s%", cells(alone, "8x16 f32, 16x4 f32")[0])
    assert [path.name for path in launcher.folder.glob("*.trace")] == []


def test_a_script_whose_output_differs(launcher: Launcher) -> None:
    launcher.write(OVERRIDES, "kernels.py")
    launcher.write(SCRIPT, "train.py")
    run = compare(launcher, "--override", "kernels:wrong", "--repeats", "1", "train.py", "exactly")
    assert run.status == 1
    assert re.match(
        r"tracer: aten::mm 8x16 f32, 16x4 f32, called again alone: relative error [\d.]+, but stock has "
        r"[\de.-]+; wrong in \d+ of \d+ trials; .*; stdout differs from stock's: ",
        run.err,
    )
    assert "; WRONG in aten::mm: relative error " in run.out
    assert "stdout differs**" in run.out
    assert re.search(r"```diff\n--- stock\n\+\+\+ override\n", run.out)
    assert "rows exactly" in run.out


@pytest.mark.promise("compare", "docs/compare.md#json")
def test_documents(launcher: Launcher) -> None:
    """The result differs, so both say what is wrong and have the exit status of the report."""
    launcher.write(OVERRIDES + "print('loud')\n", "kernels.py")
    launcher.write(SCRIPT, "train.py")
    run = compare(
        launcher,
        *("mm", "--override", "kernels.py:wrong", "--override", "kernels.py:fine"),
        *("--case", "fp32 64x64", "--pairs", "2", "--json"),
    )
    document = json.loads(run.out)
    assert run.status == 1
    assert "loud\n" in run.err
    assert run.err.endswith(f"tracer: {document['wrong']}\n")
    wrong, fine = document["comparisons"]
    assert (wrong["overrides"], fine["overrides"]) == (["wrong"], ["fine"])
    assert (wrong["cases"][0]["passed"], fine["cases"][0]["passed"]) == (False, True)
    assert fine["cases"][0]["wall"]["stock"]["samples"] == 2
    run = compare(
        launcher, *("--override", "kernels.py:wrong", "--repeats", "1", "--json", "train.py", "exactly")
    )
    document = json.loads(run.out)
    assert run.status == 1
    assert run.err.endswith(f"tracer: {document['wrong']}\n")
    assert document["ops"][0]["op"] == "aten::mm"
    assert document["output"]


def test_a_script_that_fails(launcher: Launcher) -> None:
    launcher.write("import torch\nraise SystemExit('no data here')\n", "train.py")
    run = compare(launcher, "--override", f"{NUMPY_MM}:numpy_mm", "--repeats", "1", "train.py")
    assert run.status == 1
    assert "no data here" in run.err
    assert run.err.endswith("tracer: train.py ended with status 1 (stock); see its output above\n")
    assert run.out == ""
    assert "tracer tree" not in run.err, "the trace is deleted"
    assert len(run.err.splitlines()) == 2


NEEDS_GPU = "to compare your own: --override FILE.py:FUNCTION"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to compare; give tracer compare mm|gru|cat"),
        (["mm"], NEEDS_GPU),
        (["mm", "--override", "gru"], NEEDS_GPU),
        (
            ["mm", "--override", "kernels.py:loose"],
            'for; write above it: @tracer.overrides.register("aten::mm", ',
        ),
        (["gru", "--override", "kernels.py:loose"], '@tracer.overrides.register("aten::gru.input", "CPU", '),
        (["mm", "--override", "nothing"], "unknown override nothing; choose mm, gru, cat"),
        (["mm", "--override", "nothing.py:mm"], "no file nothing.py"),
        (
            ["mm", "--override", "kernels:wrong", "--case", "fp8"],
            "no mm case has fp8 in its name; the cases are: mm",
        ),
        (["mm", "kernels.py", "--override", "kernels:wrong"], "mm takes no arguments"),
        (["train.py"], "no overrides given; give some"),
        (["--override", "kernels:wrong", "nothing.py"], "no script nothing.py here; give a script"),
        (["--override", "nothing", "train.py"], "unknown override nothing"),
        (["--override", "mm", "train.py"], NEEDS_GPU),
        (["--override", "kernels:wrong", "train.py", "--case", "fp32"], "--case"),
        (
            ["mm", "--override", "kernels:wrong", "-o", "train.py"],
            "train.py exists; overwrite it with --force",
        ),
        (["mm", "--override", "kernels:wrong", "-o", "nowhere/report.md"], "folder nowhere does not exist"),
        (["--tune"], "cannot tune: the built-in overrides (mm, gru, cat) need a GPU"),
        (["--tune", "mm", "train.py"], "--tune takes mm, gru, cat, not train.py"),
        (["--tune", "--override", "kernels:wrong"], "remove --override"),
        (["--tune", "gru", "--case", "fp8"], "no case has fp8 in its name; a case is: gru T32 B64 I256 H512"),
        (["--tune", "-o", "train.py"], "train.py exists; overwrite it with --force"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_compared_is_said_in_one_line(
    launcher: Launcher, arguments: list[str], said: str
) -> None:
    launcher.write(OVERRIDES, "kernels.py")
    launcher.write(SCRIPT, "train.py")
    run = compare(launcher, *arguments)
    assert run.status == 2, run
    assert run.out == ""
    assert run.err.startswith("tracer: ")
    assert run.err.count("\n") == 1
    assert said in run.err
    assert (launcher.folder / "train.py").read_text() == SCRIPT


def test_a_module_that_cannot_be_imported_has_its_own_traceback(launcher: Launcher) -> None:
    launcher.write("import torch\n1 / 0\n", "kernels.py")
    run = compare(launcher, "mm", "--override", "kernels.py:mine")
    assert run.status == 1
    assert "ZeroDivisionError: division by zero\n" in run.err
    assert run.err.endswith("tracer: cannot import kernels.py:mine: ZeroDivisionError, see above\n")


def test_help_has_examples() -> None:
    launcher = Launcher(Path.cwd())
    run = compare(launcher, "--help")
    assert run.status == 0
    assert "tracer compare mm --override my_kernels.py:my_mm" in run.out
