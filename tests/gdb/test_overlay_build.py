"""The overlay, built from the torchgen of the wheel, computes what the release does, with file and line."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracer.debugger import overlay, overlay_sources, target, trampolines
from tracer.debugger.errors import DebuggerError
from tracer.debugger.overlay import Overlay
from tracer.debugger.target import Target

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
BUILD = """
import sys
from pathlib import Path
from tracer.debugger import overlay, target
overlay.build(target.look(sys.executable), ["mm"], cache=Path(sys.argv[1]), compiler=sys.argv[2])
"""
# What the release computes, through a function that libtorch_cpu has and does not export.
OUTER = """\
#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/outer_native.h>

namespace torch::autograd::VariableType {
const at::Tensor& unpack(const at::Tensor& tensor, const char* name, int position);
}

namespace at::native {

Tensor outer(const Tensor& self, const Tensor& vec2) {
  const Tensor& column = torch::autograd::VariableType::unpack(self, "self", 0);
  TORCH_CHECK(column.dim() == 1 && vec2.dim() == 1, "outer: expected vectors");
  return column.reshape_symint({column.sym_size(0), 1}) * vec2;
}

} // namespace at::native
"""


@pytest.fixture(scope="session")
def here() -> Target:
    return target.look(sys.executable)


@pytest.fixture(scope="session")
def mm(here: Target) -> Overlay:
    """The overlay of mm, in the user's cache."""
    return overlay.build(here, ["mm"])


@pytest.fixture(scope="session")
def checkout(here: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PyTorch checkout of the installed version, as far as `outer` needs one."""
    folder = tmp_path_factory.mktemp("checkout")
    native = folder / "aten/src/ATen/native"
    native.mkdir(parents=True)
    (folder / "version.txt").write_text(here.torch_version.partition("+")[0] + "a0\n")
    (native / "Products.cpp").write_text(OUTER)
    return folder


def seeded(cache: Path, built: Overlay) -> Path:
    """A cache that holds the generated code and no overlay."""
    base = cache / "tracer/overlay" / built.sources.parent.name
    base.mkdir(parents=True)
    (base / "generated").symlink_to(built.sources)
    return cache


@pytest.fixture(scope="session")
def outer(here: Target, mm: Overlay, checkout: Path) -> Overlay:
    cache = seeded(checkout / "cache", mm)
    return overlay.build(here, ["aten::outer"], source=checkout, cache=cache)


@pytest.fixture
def quick(here: Target, mm: Overlay, tmp_path: Path) -> tuple[Path, Path]:
    """A compiler that makes empty libraries in no time, and a cache that holds the generated code."""
    compiler = tmp_path / "quick-g++"
    compiler.write_text(
        textwrap.dedent("""\
            #!/bin/sh
            for last; do :; done
            case "$*" in
              --version) echo quick; exit;;
              *-shared*) kind=-shared; output=$(echo "$*" | sed 's/.*-o \\([^ ]*\\).*/\\1/')
                sleep 1; while [ -e "$0.hold" ]; do sleep 0.1; done;;
              *) kind=-c; output=$last; echo "$*" >> "$0.log";;
            esac
            exec g++ $kind -x c++ /dev/null -o "$output"
        """)
    )
    compiler.chmod(0o755)
    return compiler, seeded(tmp_path / "cache", mm)


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


def wait_for(condition: Callable[[], object]) -> None:
    """Returns once `condition` holds; fails after ten minutes."""
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


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


def test_the_results_are_bitwise_those_of_the_release(mm: Overlay) -> None:
    release, overlaid = run(COMPUTE), run(COMPUTE, mm.libraries)
    assert release.returncode == 0, release.stderr
    assert (overlaid.stdout, overlaid.stderr) == (release.stdout, release.stderr)
    assert len(release.stdout.splitlines()) > 20


def test_a_script_that_overrides_a_kernel_is_warned_as_ever(mm: Overlay) -> None:
    overlaid = run(OVERRIDE, mm.libraries)
    assert overlaid.stdout == run(OVERRIDE).stdout
    assert "Overriding a previously registered kernel" in overlaid.stderr


def test_other_preloaded_libraries_stay_in_the_environment(mm: Overlay, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", str(other)], check=True)
    overlaid = run("import os; print(os.environ['LD_PRELOAD'])", [*mm.libraries, other])
    assert overlaid.stdout.strip() == str(other)


def test_one_backtrace_shows_file_and_line_of_the_whole_dispatch_path(mm: Overlay, tmp_path: Path) -> None:
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


def test_the_generated_files_are_line_for_line_those_of_the_wheel(mm: Overlay) -> None:
    dump = run("import torch; print(torch._C._dispatch_dump('aten::mm'))").stdout
    registered = re.findall(r"^(CPU|Autograd)\b.*/(\w+\.cpp):(\d+) ::", dump, re.M)
    assert [key for key, _, _ in registered] == ["CPU", "Autograd"], dump
    for key, name, number in registered:
        line = (mm.sources / name).read_text().splitlines()[int(number) - 1]
        assert line.startswith(f"TORCH_LIBRARY_IMPL(aten, {key}, m)")


def test_the_named_files_exist_and_hold_the_named_lines(mm: Overlay, tmp_path: Path) -> None:
    text = gdb(mm, "mm(a, b)", "at::_ops::mm::redispatch", tmp_path)
    named = re.findall(rf"{re.escape(str(mm.sources))}/(\w+\.cpp):(\d+)", text)
    assert {name.partition("_")[0] for name, _ in named} == {"Operators", "VariableType"}, text
    lines = {(mm.sources / name).read_text().splitlines()[int(number) - 1].strip() for name, number in named}
    assert "return op.call(self, mat2);" in lines, text
    assert "return at::redispatch::mm(ks & c10::after_autograd_keyset, self_, mat2_);" in lines, text


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
    outer: Overlay, checkout: Path, tmp_path: Path
) -> None:
    release, overlaid = run(COMPUTE), run(COMPUTE, outer.libraries)
    assert (overlaid.stdout, overlaid.stderr) == (release.stdout, release.stderr)
    text = gdb(outer, "outer(vector, vector)", "at::_ops::mul_Tensor::call", tmp_path)
    found = places(
        frames(text),
        [
            ("at::native::outer", r"aten/src/ATen/native/Products\.cpp:14"),
            ("wrapper_CompositeImplicitAutograd__outer", r"RegisterCompositeImplicitAutograd_\d+\.cpp:\d+"),
            ("at::_ops::outer::call", r"Operators_\d+\.cpp:\d+"),
        ],
    )
    assert -1 not in found, text
    assert found == sorted(set(found)), text


def test_a_hidden_function_is_reached_through_a_trampoline(outer: Overlay, tmp_path: Path) -> None:
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


def test_no_compiler(here: Target) -> None:
    with pytest.raises(DebuggerError, match=r"no C\+\+ compiler g\+\+-0; install the package g\+\+"):
        overlay.build(here, ["mm"], compiler="g++-0")


def test_a_wheel_without_torchgen(here: Target, tmp_path: Path) -> None:
    with pytest.raises(DebuggerError, match="has no torchgen"):
        overlay.build(dataclasses.replace(here, torchgen=None), ["mm"], cache=tmp_path)


def test_a_cache_that_cannot_be_preloaded_or_written(here: Target, tmp_path: Path) -> None:
    with pytest.raises(DebuggerError, match="set XDG_CACHE_HOME to a path without spaces"):
        overlay.build(here, ["mm"], cache=tmp_path / "a b")
    (tmp_path / "file").write_text("")
    with pytest.raises(DebuggerError, match="cannot build the overlay in"):
        overlay.build(here, ["mm"], cache=tmp_path / "file")


def test_a_checkout_of_another_version(here: Target, checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(DebuggerError, match=r"not a PyTorch checkout: it has no version\.txt"):
        overlay.build(here, ["outer"], source=tmp_path)
    (tmp_path / "version.txt").write_text("2.6.0a0\n")
    with pytest.raises(DebuggerError, match="not a PyTorch checkout: it has no aten"):
        overlay.build(here, ["outer"], source=tmp_path)
    native = tmp_path / "aten/src/ATen/native"
    native.mkdir(parents=True)
    with pytest.raises(DebuggerError, match=r"is PyTorch 2\.6\.0a0, the installed torch is .*; check out v"):
        overlay.build(here, ["outer"], source=tmp_path)
    shutil.copy(checkout / "version.txt", tmp_path)
    (native / "native_functions.yaml").write_text("- func: other() -> Tensor\n")
    with pytest.raises(DebuggerError, match=r"differs from the source of torch .*; check out"):
        overlay.build(here, ["outer"], source=tmp_path)


def test_a_checkout_without_the_native_function(here: Target, mm: Overlay, checkout: Path) -> None:
    with pytest.raises(DebuggerError, match="defines the native function mm_out_cpu; build without --source"):
        overlay.build(here, ["mm"], source=checkout)


def test_a_compiler_that_fails(here: Target, quick: tuple[Path, Path]) -> None:
    compiler, cache = quick
    compiler.write_text("#!/bin/sh\necho context\necho 'x.cpp:1:2: error: no such thing'\nexit 1\n")
    with pytest.raises(DebuggerError, match=r"cannot build .*: x\.cpp:1:2: error: no such thing") as raised:
        overlay.build(here, ["mm"], cache=cache, compiler=str(compiler))
    log = Path(re.search(r"full log: (.*)\)$", str(raised.value))[1])
    assert log.read_text().startswith("context\n")


def test_two_builds_at_once_share_one(here: Target, quick: tuple[Path, Path]) -> None:
    compiler, cache = quick
    with ThreadPoolExecutor(2) as pool:
        pending = [
            pool.submit(overlay.build, here, ["mm"], cache=cache, compiler=str(compiler)) for _ in range(2)
        ]
        built = [one.result() for one in pending]
    assert sorted(one.cached for one in built) == [False, True]
    assert built[0].libraries == built[1].libraries
    compiled = Path(f"{compiler}.log").read_text().splitlines()
    assert len(compiled) == 5


def test_a_killed_build_leaves_nothing_that_is_taken_for_whole(
    here: Target, quick: tuple[Path, Path]
) -> None:
    compiler, cache = quick
    hold = Path(f"{compiler}.hold")  # it is killed while it links
    hold.touch()
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(cache), str(compiler)], start_new_session=True
    )
    base = next((cache / "tracer/overlay").iterdir())
    wait_for(lambda: list(base.glob(".building-*/*.o")))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(base.glob(".building-*"))
    assert not list(base.glob("*/overlay.so"))
    hold.unlink()
    built = overlay.build(here, ["mm"], cache=cache, compiler=str(compiler))
    assert not built.cached
    assert not list(base.glob(".building-*"))


def test_an_interrupted_build_leaves_no_compiler_behind(
    here: Target, quick: tuple[Path, Path], tmp_path: Path
) -> None:
    compiler, cache = quick
    compiler.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && exit\nsleep 3600 &\ntouch {tmp_path}/$!.pid\nwait\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(cache), str(compiler)], stderr=subprocess.PIPE
    )
    wait_for(lambda: list(tmp_path.glob("*.pid")))
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=600)[1]
    children = [int(path.stem) for path in tmp_path.glob("*.pid")]
    wait_for(lambda: not any(is_running(child) for child in children))


@pytest.fixture
def small(here: Target, tmp_path: Path) -> Target:
    """A torch of one library: it exports `shown` and hides `kept`, `counter` and two functions `twice`."""
    lib = tmp_path / "torch/lib"
    lib.mkdir(parents=True)
    (tmp_path / "one.c").write_text(
        '#define HIDDEN __attribute__((visibility("hidden")))\n'
        "static int twice(void) { return 1; }\n"
        "HIDDEN int counter = 3; HIDDEN int kept(int x) { return x + counter++; }\n"
        "int other(void); int shown(void) { return twice() + other() + kept(0); }\n"
    )
    (tmp_path / "two.c").write_text(
        "static int twice(void) { return 2; } int other(void) { return twice(); }\n"
    )
    library = lib / "libtorch_cpu.so"
    command = ["gcc", "-O0", "-shared", "-fPIC", "one.c", "two.c", "-o", str(library)]
    subprocess.run(command, cwd=tmp_path, check=True)
    return dataclasses.replace(here, torch=tmp_path / "torch")


def test_trampolines_run_the_hidden_function_itself(small: Target, tmp_path: Path) -> None:
    (tmp_path / "trampolines.s").write_text(trampolines.assembly(small, ["kept"], frozenset(["other"])))
    (tmp_path / "main.c").write_text(
        "#include <stdio.h>\nint kept(int); int shown(void);\n"
        'int main(void) { printf("%d ", kept(10)); printf("%d", shown()); return 0; }\n'
    )
    program = tmp_path / "main"
    inputs = ["main.c", "trampolines.s", str(small.libtorch_cpu)]
    subprocess.run(
        ["gcc", *inputs, f"-Wl,-rpath,{small.libraries}", "-o", str(program)], cwd=tmp_path, check=True
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "13 7"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("counter", "needs the variable counter, which libtorch_cpu.so does not export"),
        ("twice", "has 2 hidden functions twice"),
        ("absent", "needs absent, which is not in libtorch_cpu.so"),
    ],
)
def test_names_without_a_trampoline(small: Target, name: str, message: str) -> None:
    with pytest.raises(DebuggerError, match=message):
        trampolines.assembly(small, [name], frozenset())


def test_a_stripped_library_and_another_machine_have_no_trampolines(small: Target) -> None:
    with pytest.raises(DebuggerError, match="on x86-64 only, not on aarch64"):
        trampolines.assembly(dataclasses.replace(small, machine="aarch64"), ["kept"], frozenset())
    subprocess.run(["strip", str(small.libtorch_cpu)], check=True)
    with pytest.raises(DebuggerError, match="is stripped, and the overlay needs kept"):
        trampolines.assembly(small, ["kept"], frozenset())
