"""The overlay, built from the torchgen of the wheel, computes what the release does, with file and line."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import overlays
import pytest

from tracer.debugger import overlay, overlay_sources
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.overlay import Overlay
from tracer.debugger.target import Target

here = overlays.here
mm = overlays.mm
checkout = overlays.checkout
outer = overlays.outer

pytestmark = [pytest.mark.gdb, pytest.mark.compiler]

COMPUTE = """
import hashlib, os, torch
torch.manual_seed(0)
def show(name, *tensors):
    for tensor in tensors:
        print(name, tuple(tensor.shape), hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest())
a, b = torch.randn(37, 53, requires_grad=True), torch.randn(53, 19, requires_grad=True)
product = torch.mm(a, b)
product.pow(2).sum().backward()
show("mm", product, a.grad, b.grad)
batch = torch.randn(3, 5, 37, requires_grad=True)
folded = batch @ a
folded.sum().backward()
show("matmul", folded, batch.grad, a.grad)
show("addmm", torch.addmm(torch.randn(19), a, b, beta=0.5))
show("outer", torch.outer(a[0], b[:, 0]))
gru = torch.nn.GRU(11, 7, num_layers=2)
sequence = torch.randn(6, 4, 11, requires_grad=True)
output, state = gru(sequence)
(output.sum() + state.pow(2).sum()).backward()
show("gru", output, state, sequence.grad, *(parameter.grad for parameter in gru.parameters()))
a.grad = None
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(a.detach(), torch.ones_like(a))
    show("forward mode", torch.autograd.forward_ad.unpack_dual(torch.mm(dual, b.detach())).tangent)
print(os.environ.get("LD_PRELOAD"), torch.is_warn_always_enabled())
"""
OVERRIDE = """
import torch
library = torch.library.Library("aten", "IMPL", "CPU")
library.impl("mm", lambda self, mat2: self.new_zeros(1))
print(torch.mm(torch.ones(2, 2), torch.ones(2, 2)))
"""
STOP = """
import os, signal, torch
a, b, vector = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4), torch.randn(4)
os.kill(os.getpid(), signal.SIGTRAP)
torch.OPERATOR
"""


def run(code: str, preloaded: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if preloaded:
        environment["LD_PRELOAD"] = ":".join(map(str, preloaded))
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def gdb(built: Overlay, operator: str, breakpoint: str, folder: Path, *commands: str) -> str:
    """What gdb prints for `bt` and further commands where the operator reaches the breakpoint."""
    script, orders = folder / "script.py", folder / "orders.gdb"
    script.write_text(STOP.replace("OPERATOR", operator))
    orders.write_text("\n".join(["run", f"break {breakpoint}", "continue", "bt 40", *commands, "kill"]))
    settings = [
        "startup-with-shell off",
        "debuginfod enabled off",
        "width 0",
        "confirm off",
        "pagination off",
    ]
    arguments = [word for setting in settings for word in ("-iex", f"set {setting}")]
    preload = f"set environment LD_PRELOAD {' '.join(map(str, built.libraries))}"
    command = ["gdb", "-nx", "-q", *arguments, "-ex", preload, "-batch", "-x", str(orders)]
    command += ["--args", sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout


def frames(text: str) -> list[str]:
    return re.findall(r"^#\d+ .*$", text, re.M)


def places(lines: list[str], wanted: Sequence[tuple[str, str]]) -> list[int]:
    """The first frame for each (function, "file:line" expression), -1 where there is none."""
    return [
        next(
            (
                number
                for number, line in enumerate(lines)
                if f"{function} (" in line.replace(">(", " (").replace("<at::Tensor,", " (")
                and re.search(rf"/{place}$", line)
            ),
            -1,
        )
        for function, place in wanted
    ]


@pytest.fixture(scope="module")
def release() -> subprocess.CompletedProcess[str]:
    """What the release computes, without an overlay."""
    return run(COMPUTE)


def test_the_results_are_bitwise_those_of_the_release(
    mm: Overlay, release: subprocess.CompletedProcess[str]
) -> None:
    overlaid = run(COMPUTE, mm.libraries)
    assert release.returncode == 0, release.stderr
    assert (overlaid.stdout, overlaid.stderr) == (release.stdout, release.stderr)
    assert len(release.stdout.splitlines()) > 20


def test_a_script_that_overrides_a_kernel_is_warned_as_ever(mm: Overlay) -> None:
    """As the release does: torch 2.13 warns, 2.15 does not."""
    overlaid, plain = run(OVERRIDE, mm.libraries), run(OVERRIDE)
    assert overlaid.stdout == plain.stdout
    warning = "Overriding a previously registered kernel"
    assert (warning in overlaid.stderr) == (warning in plain.stderr)


def test_other_preloaded_libraries_stay_in_the_environment(mm: Overlay, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", str(other)], check=True)
    overlaid = run("import os; print(os.environ['LD_PRELOAD'])", [*mm.libraries, other])
    assert overlaid.stdout.strip() == str(other)


def test_one_backtrace_shows_file_and_line_of_the_whole_dispatch_path(mm: Overlay, tmp_path: Path) -> None:
    """And the named files hold the named lines."""
    text = gdb(mm, "mm(a, b)", "at::native::structured_mm_out_cpu::impl", tmp_path)
    found = places(
        frames(text),
        [
            ("wrapper_CPU_mm", r"RegisterCPU_\d+\.cpp:\d+"),
            ("c10::Dispatcher::redispatch", r"Dispatcher\.h:\d+"),
            ("at::_ops::mm::redispatch", r"Operators_\d+\.cpp:\d+"),
            ("torch::autograd::VariableType::(anonymous namespace)::mm", r"VariableType_\d+\.cpp:\d+"),
            ("c10::Dispatcher::call", r"Dispatcher\.h:\d+"),
            ("at::_ops::mm::call", r"Operators_\d+\.cpp:\d+"),
        ],
    )
    assert -1 not in found, text
    assert found == sorted(set(found)), text
    named = re.findall(rf"{re.escape(str(mm.sources))}/(\w+\.cpp):(\d+)", text)
    assert {name.partition("_")[0] for name, _ in named} == {"Operators", "RegisterCPU", "VariableType"}, text
    lines = {(mm.sources / name).read_text().splitlines()[int(number) - 1].strip() for name, number in named}
    assert "return op.call(self, mat2);" in lines, text
    assert "return at::redispatch::mm(ks & c10::after_autograd_keyset, self_, mat2_);" in lines, text


def test_the_generated_files_are_line_for_line_those_of_the_wheel(mm: Overlay) -> None:
    dump = run("import torch; print(torch._C._dispatch_dump('aten::mm'))").stdout
    registered = re.findall(r"^(CPU|Autograd)\b.*/(\w+\.cpp):(\d+) ::", dump, re.M)
    assert [key for key, _, _ in registered] == ["CPU", "Autograd"], dump
    for key, name, number in registered:
        line = (mm.sources / name).read_text().splitlines()[int(number) - 1]
        assert line.startswith(f"TORCH_LIBRARY_IMPL(aten, {key}, m)")


def test_the_second_build_comes_from_the_cache(here: Target, mm: Overlay) -> None:
    said: list[str] = []
    again = overlay.build(here, ["aten::mm"], say=said.append)
    assert again == dataclasses.replace(mm, cached=True, seconds=again.seconds)
    assert again.cached
    assert again.seconds < 10
    assert said == []


def test_the_same_torch_at_another_place_has_an_overlay_of_its_own(here: Target, tmp_path: Path) -> None:
    """One names the folder of its libraries: two copies of them in one process fail to load."""
    moved = dataclasses.replace(here, torch=tmp_path)
    assert overlay._key(here, ["mm"], [], None, "g++") != overlay._key(moved, ["mm"], [], None, "g++")


def test_a_native_function_of_a_checkout_is_interposed(
    outer: Overlay, release: subprocess.CompletedProcess[str]
) -> None:
    overlaid = run(COMPUTE, outer.libraries)
    assert (overlaid.stdout, overlaid.stderr) == (release.stdout, release.stderr)


def test_it_reaches_a_hidden_function_through_a_trampoline(outer: Overlay, tmp_path: Path) -> None:
    """From a frame with file and line, as all those of the path to it have."""
    text = gdb(
        outer, "outer(vector, vector)", "torch::autograd::VariableType::unpack", tmp_path, "continue", "bt 2"
    )
    lines = frames(text)
    tops = [number for number, line in enumerate(lines) if line.startswith("#0 ")]
    libraries = [Path(lines[number].rpartition(" from ")[2]).name for number in tops]
    assert libraries == ["overlay.so", "libtorch_cpu.so"], text
    assert all(re.search(r"at::native::outer .*Products\.cpp:12$", lines[number + 1]) for number in tops), (
        text
    )
    found = places(
        lines,
        [
            ("at::native::outer", r"aten/src/ATen/native/Products\.cpp:12"),
            ("wrapper_CompositeImplicitAutograd__outer", r"RegisterCompositeImplicitAutograd_\d+\.cpp:\d+"),
            ("at::_ops::outer::call", r"Operators_\d+\.cpp:\d+"),
        ],
    )
    assert -1 not in found, text
    assert found == sorted(set(found)), text


def test_blanked_files_keep_the_lines_of_the_wanted_operators_only(here: Target, mm: Overlay) -> None:
    sources = overlay_sources.select(here, mm.sources, ["mm"])
    kinds = [source.path.name.partition("_")[0] for source in sources]
    assert kinds == ["Operators", "RegisterCPU", "VariableType"]
    for source in sources:
        full = source.path.read_text().split("\n")
        blanked = source.text.split("\n")
        assert len(blanked) == len(full)
        assert all(ours in ("", line) for ours, line in zip(blanked, full, strict=True))
        assert set(re.findall(r'm\.impl\("([\w.]+)"', source.text)) <= {"mm"}
        assert set(re.findall(r"^\S.*?(\w+)::(?:call|redispatch)\(", source.text, re.M)) <= {"mm"}


@pytest.mark.parametrize(
    ("operators", "kinds"),
    [
        (["outer"], {"Operators", "RegisterCompositeImplicitAutograd"}),
        (["t"], {"Operators", "RegisterCompositeExplicitAutograd", "VariableType", "ADInplaceOrViewType"}),
        (["add_.Tensor"], {"Operators", "RegisterCPU", "VariableType", "ADInplaceOrViewType"}),
    ],
)
def test_the_files_of_composites_views_and_in_place_operators(
    here: Target, mm: Overlay, operators: list[str], kinds: set[str]
) -> None:
    sources = overlay_sources.select(here, mm.sources, operators)
    assert kinds <= {source.path.name.partition("_")[0] for source in sources} <= {*kinds, "ViewFuncs.cpp"}


def test_names_of_operators(mm: Overlay) -> None:
    resolve = overlay_sources.resolve
    assert resolve(["aten::mm", "mm"], mm.sources) == ("mm",)
    assert resolve(["add.Tensor"], mm.sources) == ("add.Tensor",)
    assert {"add.Tensor", "add.Scalar", "add.out"} <= set(resolve(["add"], mm.sources))
    with pytest.raises(DebuggerError, match=r"no operator matmull; near names: .*matmul"):
        resolve(["matmull"], mm.sources)
    with pytest.raises(DebuggerError, match="needs an operator"):
        resolve([], mm.sources)
