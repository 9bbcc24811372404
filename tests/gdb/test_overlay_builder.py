"""The builder of the overlay: what it refuses, builds at once and leaves behind."""

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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import overlays
import pytest
from overlays import seeded

from tracer.debugger import overlay, trampolines
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.overlay import Overlay
from tracer.debugger.target import Target

pytestmark = [pytest.mark.gdb, pytest.mark.compiler]
here = overlays.here
mm = overlays.mm
checkout = overlays.checkout
outer = overlays.outer

BUILD = """
import sys
from pathlib import Path
from tracer.debugger import overlay, target
overlay.build(target.look(sys.executable), ["mm"], cache=Path(sys.argv[1]), compiler=sys.argv[2])
"""


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
