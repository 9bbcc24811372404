"""`tracer gdb` as it is typed: breakpoints, conditions, outputs, wrong input."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from debugging import debug
from launching import TIMEOUT, Launcher
from lazily import torch

import tracer
from tracer.debugger.again import Site, site, stop_again

pytestmark = pytest.mark.gdb

PRODUCTS = """
import torch
def product(n):
    return torch.mm(torch.ones(n, 2), torch.ones(2, 3))
for n in (1, 200, 3, 400):
    product(n)
"""
PATH = [
    "at::_ops::mm::call",
    "torch::autograd::VariableType::mm",
    "at::_ops::mm::redispatch",
    "wrapper_CPU_mm",
]


def test_a_condition_chooses_whole_op_calls(launcher: Launcher) -> None:
    """And the report reads well."""
    launcher.write(PRODUCTS)
    chosen = debug(
        launcher, "script.py", "--break", "aten::mm", "--when", "shape(0)[0] > 128 and dim(1) == 2"
    )
    assert chosen.functions() == PATH * 2
    assert [stop["arguments"][0]["value"]["shape"] for stop in chosen.stops[::4]] == [[200, 2], [400, 2]]
    assert [stop["key"] for stop in chosen.stops[:4]] == [None, "AutogradCPU", "CPU", "CPU"]
    assert "# tracer gdb" not in chosen.run.out  # the report is in the file
    assert "- level: symbols: function names and tensor arguments, no file:line" in chosen.markdown
    assert (
        "| argument | `self` | `at::Tensor const&` | `200x2 float32 cpu, stride (2, 1), keys AutocastCPU"
        in chosen.markdown
    )
    assert "#0   wrapper_CPU_mm [wrapper]  libtorch_cpu.so\n" in chosen.markdown
    assert f"py   {launcher.folder / 'script.py'}:4  product\n" in chosen.markdown
    assert "wrap_kernel_functor_unboxed_" not in chosen.markdown
    assert max(len(frame["function"]) for stop in chosen.stops for frame in stop["frames"]) < 80
    # a pipe gets plain text
    assert "\x1b" not in chosen.run.out + chosen.run.err


def test_a_number_chooses_a_whole_op_call(launcher: Launcher) -> None:
    launcher.write(PRODUCTS)
    kernel = "at::native::structured_mm_out_cpu::impl"
    third = debug(launcher, "script.py", "--break", "aten::mm", "--at", "3", "-b", kernel)
    assert third.functions() == [*PATH, kernel]
    assert third.stops[0]["arguments"][0]["value"]["shape"] == [3, 2]
    assert third.stops[4]["hit"] == 3
    frames = [frame["function"] for frame in third.stops[4]["frames"]]
    assert frames[:6] == [
        kernel,
        "wrapper_CPU_mm",
        "at::_ops::mm::redispatch",
        "torch::autograd::VariableType::mm",
        "torch::autograd::VariableType::mm",
        "at::_ops::mm::call",
    ]
    assert third.stops[0]["python"] == [
        [str(launcher.folder / "script.py"), "product", 4],
        [str(launcher.folder / "script.py"), "<module>", 6],
    ]


OVERLOADS = """
x = torch.ones(3, 3)
torch.mm(x, x, out=torch.empty(3, 3))
x.sum(0)
"""


def test_keys_limits_overloads_and_what_was_never_reached(launcher: Launcher) -> None:
    launcher.write(PRODUCTS + OVERLOADS)
    found = debug(
        launcher, "script.py", "--limit", "1", "-b", "aten::mm [CPU]", "-b", "aten::bmm",
        "-b", "aten::mm.out", "-b", "aten::mm [Foo]", "-b", "aten::sum", "-b", "at::native::no_such",
        "-b", "at::native::structured_mm_out_cuda::impl", "-b", "at::native::structured_mm_out_mps::impl",
        "-b", "wrapper_SparseCPU__mm",
    )  # fmt: skip
    kernels = [stop for stop in found.stops if stop["kind"] == "kernel"]
    assert [(stop["key"], stop["function"]) for stop in kernels] == [
        ("CPU", "wrapper_CPU_mm"),
        ("AutogradCPU", "torch::autograd::VariableType::mm_out_out"),
        ("ADInplaceOrView", "torch::ADInplaceOrView::mm_out_out"),
        ("CPU", "wrapper_CPU_mm_out_out"),
    ]
    assert {stop["op"] for stop in found.stops[1:]} == {"aten::mm.out"}
    said = found.run.err
    assert "aten::mm [CPU]: 3 more op calls were not recorded; --limit 0 records all" in said
    assert "aten::bmm was never reached" in said
    assert "aten::sum was never reached; aten::sum.dim_IntList called 1 x" in said
    assert "at::native::no_such is not in any loaded library" in said
    path = "aten::mm called 4 x, torch::autograd::VariableType::mm 4 x, wrapper_CPU_mm 4 x"
    assert f"wrapper_SparseCPU__mm was never reached; {path}" in said
    # mps is Apple's; torch's library for CUDA is loaded if there is one, whether or not there is a GPU
    assert f"structured_mm_out_mps::impl is not in any loaded library; {path}" in said
    unused = "is not in any loaded library" if torch.version.cuda is None else "was never reached"
    assert f"structured_mm_out_cuda::impl {unused}; {path}" in said
    assert "aten::mm [Foo]: this torch has no dispatch key Foo" in said


def test_a_condition_that_fails(launcher: Launcher) -> None:
    """And a script that reaches nothing."""
    launcher.write("import torch\ntorch.mm(torch.ones(1, 2), torch.ones(2, 3))\n")
    never = ("-b", "aten::bmm")
    wrong = debug(launcher, "script.py", "-b", "aten::mm", *never, "--when", "shape(7) == 1", "--at", "1")
    assert (wrong.run.status, wrong.stops) == (0, [])
    assert "the condition failed: IndexError: the arguments hold 2 tensors, none is number 7" in wrong.run.err
    assert "aten::bmm was never reached" in wrong.run.err


def test_a_report_that_cannot_be_written(launcher: Launcher) -> None:
    """Its notes are said nevertheless. Without torch the script takes less time."""
    launcher.write("import os, shutil\nshutil.rmtree(os.getcwd())\n", "in/s.py")
    command = f"cd in && {launcher.tracer} gdb s.py -b 'aten::neg [CPU]' -o s.md > /dev/full"
    run = launcher.run(["/bin/sh", "-c", command])
    assert run.status == 1
    assert run.err.splitlines() == [
        f"tracer: cannot write {launcher.folder / 'in' / 's.md'}: No such file or directory",
        "tracer: cannot write to stdout: No space left on device",
        "tracer: the script ended without importing torch, so there was nothing to examine",
    ]


def test_a_report_on_stdout(launcher: Launcher) -> None:
    launcher.write("print('no torch')\n")
    printed = launcher.run([str(launcher.tracer), "gdb", "script.py", "-b", "aten::mm [CPU]", "--at", "2"])
    assert printed.out.startswith("no torch\n# tracer gdb script.py\n")
    assert "- command: `" in printed.out
    assert "\x1b" not in printed.out + printed.err


WRONG = [
    ((), "give a script to run"),
    (("script.py",), "no breakpoint; give one, e.g. --break aten::mm"),
    (("script.py", "-b", "aten::mmx"), "no operator aten::mmx; near: aten::mm"),
    (("script.py", "-b", "script.py:3"), "script.py:3 is a line of Python"),
    (("script.py", "-b", "at::native::matmul [CPU]"), "only an operator has dispatch keys"),
    (("script.py", "-b", "aten::mm", "--when", "shape(0)[0] >"), "--when: invalid syntax"),
    (
        ("script.py", "-b", "aten::mm", "--when", "open('x')"),
        "--when does not know open; use shape stride",
    ),
    (("script.py", "-b", "aten::mm", "--gdb", "no-such-gdb"), "no-such-gdb is missing: apt-get install gdb"),
    (("script.py", "-b", "aten::mm", "--gdb", "cat"), "does not answer like gdb"),
    (("script.py", "-b", "aten::mm", "--python", "no-such-python"), "no-such-python does not exist"),
    (("script.py", "-b", "aten::mm", "--python", "cat"), "does not run as Python"),
    (("script.py", "-b", "aten::mm", "-o", "stops.txt"), "ends in .md (markdown) or .jsonl"),
    (("script.py", "-b", "aten::mm", "-o", "there.md"), "there.md already exists"),
    (("no_such.py", "-b", "aten::mm"), "no_such.py is neither a script here nor a session; sessions: "),
    (("script.py", "-i", "-b", "aten::mm"), "--interactive needs a terminal"),
    (("script.py", "--hop", "3"), "--from TRACE and --hop ID need each other; give both"),
    (("--from", "no.trace", "--hop", "3"), "no.trace does not exist"),
    (("script.py", "-b", "aten::mm", "--source", "."), "--source needs an overlay; give its operators"),
]


@pytest.mark.parametrize(
    ("arguments", "said"), WRONG, ids=[" ".join(arguments) or "nothing" for arguments, _ in WRONG]
)
def test_wrong_input_is_one_line(launcher: Launcher, arguments: tuple[str, ...], said: str) -> None:
    launcher.write(PRODUCTS)
    launcher.write("kept", "there.md")
    run = launcher.run([str(launcher.tracer), "gdb", *arguments])
    assert run.status in (1, 2), run
    assert said in run.err
    assert run.err.startswith("tracer: ")
    assert run.err.count("\n") == 1, run.err
    assert run.out == ""
    assert (launcher.folder / "there.md").read_text() == "kept"
    assert sorted(path.name for path in launcher.folder.iterdir()) == ["script.py", "there.md"]


def test_gdb_that_is_missing(launcher: Launcher) -> None:
    launcher.write(PRODUCTS)
    launcher.environment["PATH"] = str(launcher.tracer.parent)
    run = launcher.run([str(launcher.tracer), "gdb", "script.py", "-b", "aten::mm"])
    assert (run.status, run.err.count("\n")) == (1, 1)
    assert "gdb and cuda-gdb are missing: apt-get install gdb" in run.err


def test_gdb_that_is_too_old_or_without_python(launcher: Launcher) -> None:
    launcher.write(PRODUCTS)
    for version, python, said in [
        ("GNU gdb (GDB) 8.2", "python 3 6", "is version 8.2, but tracer needs 12 or newer: apt-get"),
        (
            "GNU gdb (GDB) 13.1",
            'Scripting in the "Python" language is not supported',
            "was built without Python",
        ),
    ]:
        program = launcher.write(f"#!/bin/sh\necho '{version}'\necho '{python}'\n", "own-gdb")
        program.chmod(0o755)
        run = launcher.run(
            [str(launcher.tracer), "gdb", "script.py", "-b", "aten::mm", "--gdb", str(program)]
        )
        assert (run.status, run.err.count("\n")) == (1, 1)
        assert said in run.err


def test_a_link_that_is_planted_meanwhile_is_not_followed(launcher: Launcher) -> None:
    """The script stands for the owner of the folder, who sees the names of the reports taken."""
    theirs = launcher.write("theirs", "theirs")
    plant = "for name in ('stops.md', 'stops.jsonl'): os.remove(name); os.symlink('theirs', name)\n"
    launcher.write(f"import os, torch\n{plant}torch.neg(torch.ones(1))\n")
    outputs = ("-o", "stops.md", "-o", "stops.jsonl")
    run = launcher.run([str(launcher.tracer), "gdb", "-b", "aten::neg", *outputs, "script.py"])
    assert run.status == 0, run.err
    assert theirs.read_text() == "theirs"
    assert "aten::neg" in (launcher.folder / "stops.md").read_text()
    assert "aten::neg" in (launcher.folder / "stops.jsonl").read_text()


FORBID_PTRACE = """
import ctypes, os, struct, sys
# seccomp: ptrace (system call 101) fails with EPERM, everything else is allowed
program = b"".join(struct.pack("HBBI", *each) for each in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 101), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Filter(4, program)), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_ptrace_that_is_not_permitted(launcher: Launcher) -> None:
    launcher.write(PRODUCTS)
    launcher.write(FORBID_PTRACE, "forbid.py")
    run = launcher.python("forbid.py", str(launcher.tracer), "gdb", "script.py", "-b", "aten::mm")
    assert run.status == 1
    assert "gdb needs ptrace, which is not permitted here" in run.err
    assert run.err.count("\n") == 1, run.err


def test_ctrl_c_leaves_nothing_behind(launcher: Launcher) -> None:
    launcher.write(
        "import os, time, torch\ntorch.neg(torch.ones(1))\nopen('pid', 'w').write(str(os.getpid()))\n"
        "while True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n"
        "        open('seen', 'w').close()\n"
    )
    running = launcher.start(
        str(launcher.tracer), "gdb", "script.py", "-b", "aten::neg [CPU]", "-o", "stops.jsonl"
    )
    _wait_for(launcher.folder / "pid")
    script = int((launcher.folder / "pid").read_text())
    gdb = _parent(script)
    running.send_signal(signal.SIGINT)  # the first is the script's
    _wait_for(launcher.folder / "seen")
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=TIMEOUT)
    assert running.returncode == 130, err
    assert "interrupted by Ctrl-C" in err
    assert len((launcher.folder / "stops.jsonl").read_text().splitlines()) == 1
    assert not [pid for pid in (script, gdb) if _runs(pid)]


def test_a_killed_session_leaves_nothing_behind(launcher: Launcher) -> None:
    launcher.write("import os, time, torch\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(3600)\n")
    launcher.environment["TMPDIR"] = str(launcher.folder)  # the folder of a killed session stays
    running = launcher.start(str(launcher.tracer), "gdb", "script.py", "-b", "aten::neg")
    _wait_for(launcher.folder / "pid")
    script = int((launcher.folder / "pid").read_text())
    gdb = _parent(script)
    running.kill()
    running.wait(TIMEOUT)
    deadline = time.monotonic() + TIMEOUT  # less than the script sleeps
    while [pid for pid in (script, gdb) if _runs(pid)]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def noted(recorded: Site, stop: dict[str, Any]) -> list[str]:
    """What a session says of a recorded hop, when gdb stops like this. To run gdb again takes ten seconds."""
    notes: list[str] = []
    surroundings = SimpleNamespace(target=SimpleNamespace(torch_version=recorded.torch))
    walk = SimpleNamespace(
        surroundings=surroundings, note=notes.append, stop_at=lambda *_, **__: None, go=lambda: stop
    )
    assert stop_again(walk, recorded) is stop  # type: ignore[arg-type]
    return notes


def test_a_hop_of_a_trace_again(launcher: Launcher) -> None:
    launcher.write(PRODUCTS)
    assert launcher.record("-o", "run.trace", "script.py").status == 0
    hops = tracer.load(launcher.folder / "run.trace").hops
    at_cpu = [
        row for row in hops.iter_rows(named=True) if (row["op"], row["key"]) == ("aten::mm", "CPU")
    ]  # fmt: skip
    third = at_cpu[2]["id"]
    again = debug(launcher, "--from", "run.trace", "--hop", str(third))
    assert again.run.status == 0, again.run.err
    assert "the same op call as hop" in again.run.err
    (stop,) = again.stops
    assert (stop["function"], stop["arguments"][0]["value"]["shape"]) == ("wrapper_CPU_mm", [3, 2])
    assert f"`{third}: aten::mm [CPU]`" in again.markdown
    recorded = site(launcher.folder / "run.trace", third)
    agree = f"the same op call as hop {third}: kernel function, inputs and source line agree"
    assert noted(recorded, stop) == [agree]
    stop["arguments"][0]["value"]["shape"] = [5, 2]
    (diverged,) = noted(recorded, stop)
    assert diverged.startswith("run diverged: inputs [((3, 2), ")
    assert " now" in diverged
    launcher.write("")
    never = debug(launcher, "--from", "run.trace", "--hop", str(third))
    assert "run diverged: aten::mm [CPU] did not run 3 times" in never.run.err
    wrong = debug(launcher, "--from", "run.trace", "--hop", "123456")
    assert (wrong.run.status, wrong.run.err.count("\n")) == (1, 1)
    assert "has no hop 123456" in wrong.run.err


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not (path.exists() and (path.stat().st_size or path.name == "seen")):
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
