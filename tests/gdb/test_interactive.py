"""gdb's command line on the user's terminal, with the commands that know dispatch."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lazily import torch

pytestmark = pytest.mark.gdb

DRIVER = Path(__file__).parent / "interactive_driver.py"
PROMPT = "(tracer) "
LEFT, RIGHT = "shape [16, 64], stride [64, 1], float32, cpu", "shape [64, 32], stride [32, 1], float32, cpu"
MATMUL = """
import torch

def product(left, right):
    return torch.matmul(left, right)

product(torch.randn(16, 64), torch.randn(64, 32, requires_grad=True))
print("went on", flush=True)
"""
RAISES = """
import torch

try:
    torch.mm(torch.ones(2, 3), torch.ones(2, 3))
except RuntimeError:
    print("caught", flush=True)
"""
RECURSES = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Again(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return torch.mm(*args)

left, right = torch.ones(2, 3), torch.ones(3, 4)
with Again():
    torch.mm(left, right)
"""
TALKS = """
import sys
import time

import torch

torch.mm(torch.ones(2, 3), torch.ones(3, 4))
print("hello", input("name? "), flush=True)
for _ in range(100_000):
    time.sleep(0.02)
    if not sys.stdin.isatty():
        break
sys.exit(3)
"""


class Terminal:
    """A terminal with an interactive session on it, and what is typed and read there."""

    def __init__(self, script: Path, spec: str) -> None:
        self._ours, self._theirs = pty.openpty()
        self.settings = self.present_settings()
        self._text = ""
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), spec, str(script)],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={**os.environ, "TERM": "dumb", "TMPDIR": str(script.parent)},  # some sessions are killed
            cwd=script.parent,
            preexec_fn=_own_the_terminal,
        )

    def present_settings(self) -> list[Any]:
        return termios.tcgetattr(self._theirs)

    def until(self, text: str, seconds: float = 900) -> str:
        """What appears up to and with `text`."""
        end = time.monotonic() + seconds
        while text not in self._text:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} does not appear in {self._text!r}"
            if select.select([self._ours], [], [], left)[0]:
                self._text += os.read(self._ours, 65536).decode().replace("\r", "")
        seen, _, self._text = self._text.partition(text)
        return seen + text

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def ask(self, command: str) -> str:
        """What a command of gdb's answers, without its echo and the next prompt."""
        self.type(command + "\n")
        answer = self.until(PROMPT)
        return answer.removeprefix(f"{command}\n").removesuffix(PROMPT).strip()

    def wait(self) -> str:
        """Waits for the end; returns what the driver says of it."""
        said = self.until("exit status:") + self.until("\n")
        assert self.process.wait(900) == 0
        return said.splitlines()[-1]

    def processes(self) -> list[tuple[int, str]]:
        """What runs in the terminal's session: number and name."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                head, fields = path.read_text().rsplit(")", 1)
            except OSError:
                continue
            if int(fields.split()[3]) == self.process.pid and fields.split()[0] != "Z":
                found.append((int(path.parent.name), head.partition("(")[2]))
        return found

    def cpu_seconds(self) -> float:
        """What the session has used of the processor: on a busy machine the clock says nothing."""
        numbers = [number for number, _ in self.processes()]
        fields = [Path(f"/proc/{n}/stat").read_text().rpartition(")")[2].split() for n in numbers]
        return sum(int(of[11]) + int(of[12]) for of in fields) / os.sysconf("SC_CLK_TCK")

    def is_stopped(self, number: int) -> bool:
        """Whether gdb holds a process."""
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "t"

    def close(self) -> None:
        os.close(self._ours)  # hangs up
        os.close(self._theirs)
        try:
            self.process.wait(200)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _own_the_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


Opener = Callable[..., Terminal]


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Opener]:
    opened = []

    def start(text: str, spec: str) -> Terminal:
        script = tmp_path / "script.py"
        script.write_text(text)
        opened.append(Terminal(script, spec))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


@pytest.mark.promise("gdb", "docs/gdb.md#in-gdb-itself")
def test_from_the_first_stop_to_quit(open_terminal: Opener) -> None:
    """To start gdb takes eight seconds, so it shows several things."""
    terminal = open_terminal(MATMUL + "torch.mm(torch.ones(2, 3), torch.ones(3, 4))\n", "aten::mm")
    _shows_tensors_and_the_dispatch_path(terminal)
    _finish_op_does_not_leave_the_call(terminal)
    _quit_leaves_nothing(terminal)


def _shows_tensors_and_the_dispatch_path(terminal: Terminal) -> None:
    greeting = terminal.until(PROMPT)
    for name in ("tensor", "dispatch-bt", "next-hop", "finish-op", "break-op"):
        assert name in greeting
    assert f"call aten::mm\n  self: {LEFT}\n  mat2: {RIGHT}\n" in greeting
    # with gradients the result needs one, so CPU and AutogradCPU are among the keys of both
    assert re.fullmatch(
        re.escape(f"self: {LEFT}, keys ") + ".*AutogradCPU.* CPU", terminal.ask("tensor self")
    )
    assert terminal.ask("tensor 1").startswith(f"mat2: {RIGHT}, keys ")
    assert terminal.ask("tensor $rsi").startswith(f"$rsi: {LEFT}, keys ")
    assert terminal.ask("tensor $rdx").startswith(f"$rdx: {RIGHT}, keys ")
    result = terminal.ask("tensor $rdi")
    assert result.startswith("no at::Tensor at 0x")
    assert result.endswith(": the result will be there; it is empty until finish-op")
    assert terminal.ask("tensor 2") == "no argument 2 at this stop (self, mat2)"
    assert terminal.ask("tensor left").startswith("left is not an argument at this stop (self, mat2): ")
    assert terminal.ask("tensor 0x10").startswith("no at::Tensor at 0x10: ")
    assert terminal.ask("tensor").startswith("tensor needs ")
    path = terminal.ask("dispatch-bt")
    assert [line.split() for line in path.splitlines()[:5]] == [
        ["#0", "call", "at::_ops::mm::call"],
        ["#1", "native", "at::native::_matmul_impl"],
        ["#2", "native", "at::native::matmul"],
        ["#3", "kernel", "wrapper_CompositeImplicitAutograd__matmul"],
        ["#4", "call", "at::_ops::matmul::call"],
    ]
    assert re.fullmatch(
        r"python +\S+/script.py:5 product\n +python +\S+/script.py:7 <module>",
        "\n".join(path.splitlines()[5:]).strip(),
    )
    whole = terminal.ask("dispatch-bt all")
    assert whole.startswith("\n".join(line for line in path.splitlines()[:5]))
    numbers = re.findall(r"^#(\d+)", terminal.ask("bt"), re.MULTILINE)
    assert re.findall(r"^#(\d+)", whole, re.MULTILINE) == numbers
    assert terminal.ask("dispatch-bt some") == "dispatch-bt takes no argument, or all"
    for name in ("tensor", "dispatch-bt", "next-hop", "finish-op", "break-op"):
        assert f"{name}" in terminal.ask(f"help {name}")
    listed = terminal.ask("help tracer")
    assert listed.startswith("tracer's commands, which know PyTorch's dispatch:")
    assert "\ntensor       Show a tensor: tensor EXPR.\n" in listed
    assert "\nplumbing     " in listed


def _finish_op_does_not_leave_the_call(terminal: Terminal) -> None:
    result = "  result: shape [16, 32], stride [32, 1], float32, cpu"
    assert terminal.ask("finish-op") == f"aten::mm has returned to at::_ops::mm::call\n{result}"
    assert "in at::_ops::mm::call(" in terminal.ask("bt 1").splitlines()[0]
    assert terminal.ask("finish-op") == "aten::mm is at its end; type finish to leave it"
    assert "wrapper_CPU_mm" in terminal.ask("break-op mm CPU")
    reached = terminal.ask("continue")  # to the second call, and not before
    assert "went on" in reached
    assert "kernel aten::mm [CPU] wrapper_CPU_mm\n" in reached
    result = "  result: shape [2, 4], stride [4, 1], float32, cpu"
    assert terminal.ask("finish-op") == f"aten::mm has returned to at::_ops::mm::call\n{result}"
    assert "in at::_ops::mm::call(" in terminal.ask("bt 1").splitlines()[0]


def _quit_leaves_nothing(terminal: Terminal) -> None:
    terminal.type("print 1\x03")  # clears the line and ends nothing
    terminal.until(f"Quit\n{PROMPT}")
    assert terminal.ask("print 6 * 7") == "$1 = 42"
    terminal.type("quit\n")
    assert terminal.wait() == "foreground: True, exit status: None"
    assert terminal.processes() == []
    assert terminal.present_settings() == terminal.settings


def test_next_hop_and_nested_calls_until_gdb_is_killed(open_terminal: Opener) -> None:
    terminal = open_terminal(MATMUL + "product(torch.randn(16, 64), torch.randn(64, 32))\n", "aten::matmul")
    terminal.until(PROMPT)
    _next_hop_stops_at_the_next_operator(terminal)
    assert "at::_ops::matmul::call" in terminal.ask("break-op matmul")  # the first stop was for once
    reached = terminal.ask("continue")
    assert "went on" in reached  # hops stop only while next-hop runs
    assert "call aten::matmul\n" in reached
    _finish_op_ends_the_innermost_of_nested_calls(terminal)
    _a_killed_gdb_leaves_the_terminal_as_it_was(terminal)


def _next_hop_stops_at_the_next_operator(terminal: Terminal) -> None:
    arguments = f"  self: {LEFT}\n  mat2: {RIGHT}"
    assert terminal.ask("next-hop").endswith(f"call aten::mm\n{arguments}")
    began = terminal.cpu_seconds()
    assert terminal.ask("next-hop") == f"redispatch aten::mm [CPU]\n{arguments}"
    assert terminal.cpu_seconds() - began < 2


def _finish_op_ends_the_innermost_of_nested_calls(terminal: Terminal) -> None:
    assert "at::_ops::mm::call" in terminal.ask("break-op mm")
    assert "call aten::mm" in terminal.ask("continue")
    assert terminal.ask("finish-op").startswith("aten::mm has returned")
    terminal.ask("finish")  # into matmul, whose own call is now the innermost
    assert terminal.ask("finish-op").startswith("aten::matmul has returned to at::_ops::matmul::call")
    assert "in at::_ops::matmul::call(" in terminal.ask("bt 1").splitlines()[0]


def _a_killed_gdb_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    assert terminal.present_settings() != terminal.settings  # its prompt has others
    (gdb,) = (number for number, name in terminal.processes() if name == "gdb")
    os.kill(gdb, signal.SIGKILL)
    assert terminal.wait() == "foreground: True, exit status: None"
    assert terminal.processes() == []
    assert terminal.present_settings() == terminal.settings


def test_finish_op_passes_an_inner_call_and_tells_of_an_exception(open_terminal: Opener) -> None:
    """The inner call is one of the same operator."""
    terminal = open_terminal(RECURSES + RAISES, "aten::mm")
    terminal.until(PROMPT)
    assert terminal.ask("finish-op").startswith("aten::mm has returned to at::_ops::mm::call\n")
    assert terminal.ask("dispatch-bt").count("at::_ops::mm::call") == 1
    assert "at::_ops::mm::call" in terminal.ask("break-op mm")  # the first stop was for once
    assert "call aten::mm\n" in terminal.ask("continue")
    with pytest.raises(RuntimeError) as raised:  # torch 2.15 begins it with the name of the operator
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    message = f"c10::Error: {raised.value}"
    assert terminal.ask("finish-op") == f"aten::mm raised a C++ exception, caught outside of it: {message}"
    assert terminal.ask("finish-op") == "no op call on the stack of this thread"
    terminal.type("continue\n")
    assert "caught\n" in terminal.until("exit status:")


def test_break_op(open_terminal: Opener) -> None:
    terminal = open_terminal(MATMUL + "raise SystemExit(3)\n", "aten::matmul")
    terminal.until(PROMPT)
    assert terminal.ask("break-op mmm").startswith("no operator aten::mmm; near: aten::mm, ")
    assert terminal.ask("break-op mm Foo") == "this torch has no dispatch key Foo"
    answer = terminal.ask("break-op mm SparseHPU")
    assert answer.startswith("aten::mm has no kernel function at SparseHPU; there are: ")
    assert "wrapper_CPU_mm" in answer
    assert "\n" not in answer
    assert "mm_batch_rule" in terminal.ask("break-op mm FuncTorchBatched")
    assert terminal.ask("break-op mm CompositeExplicitAutogradNonFunctional").endswith(
        "Functional_mm of aten::mm"
    )
    assert terminal.ask("break-op").startswith("break-op needs an operator")
    began = terminal.cpu_seconds()
    assert terminal.ask("break-op mm CPU").endswith("wrapper_CPU_mm of aten::mm")
    assert terminal.cpu_seconds() - began < 2
    assert terminal.ask("break-op mm CPU") == "break-op mm CPU is already set; see info breakpoints"
    assert "where its key is AutogradCPU" in terminal.ask("break-op mm AutogradCPU")
    assert "kernel aten::mm [AutogradCPU] torch::autograd::VariableType::mm\n" in terminal.ask("continue")
    assert f"kernel aten::mm [CPU] wrapper_CPU_mm\n  self: {LEFT}\n  mat2: {RIGHT}" in terminal.ask(
        "continue"
    )
    terminal.type("continue\n")
    terminal.until("went on\n")
    assert terminal.wait() == "foreground: True, exit status: 3"
    assert terminal.processes() == []


def test_the_script_has_the_terminal_while_it_runs(open_terminal: Opener) -> None:
    terminal = open_terminal(TALKS, "aten::mm")
    terminal.until(PROMPT)
    terminal.type("continue\n")
    terminal.until("name? ")
    terminal.type("Ada\n")
    terminal.until("hello Ada\n")
    terminal.type("\x03")
    assert "received signal SIGINT" in terminal.until(PROMPT)
    assert terminal.ask("finish-op") == "no op call on the stack of this thread"
    assert "script.py:" in terminal.ask("dispatch-bt")
    (script,) = (number for number, _ in terminal.processes() if terminal.is_stopped(number))
    terminal.type("next-hop\n")
    while terminal.is_stopped(script):
        time.sleep(0.1)
    terminal.type("\x03")  # no operator runs any more
    assert "received signal SIGINT" in terminal.until(PROMPT)
    assert "KeyboardInterrupt" in terminal.ask("signal SIGINT")  # of which Python dies by the signal
    terminal.type("signal SIGINT\n")
    assert terminal.wait() == "foreground: True, exit status: -2"
    assert terminal.processes() == []
    assert terminal.present_settings() == terminal.settings


def test_needs_a_terminal(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MATMUL)
    done = subprocess.run(
        [sys.executable, str(DRIVER), "aten::mm", str(script)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.stderr.strip().endswith("DebuggerError: --interactive needs a terminal on standard input")
