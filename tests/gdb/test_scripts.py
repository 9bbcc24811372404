"""What a script does under gdb is what it does without; what it does to gdb is reported."""

from __future__ import annotations

import os
import signal

import pytest
from debugging import debug
from launching import Launcher

pytestmark = pytest.mark.gdb

BEHAVIOUR = """
import os, sys
assert sys.argv == ["script.py", "a b", "", "--flag", "x\\ny"], sys.argv
assert __name__ == "__main__" and sys.path[0] == os.getcwd(), sys.path[0]
assert not [name for name in os.environ if name.startswith("TRACER")]
print(sorted(os.environ.items()))
print(sys.sitecustomize_of_the_user)
import torch
print(sys.stdin.read(), torch.mm(torch.ones(2, 3), torch.ones(3, 2)).sum().item())
sys.stderr.write("to stderr\\n")
child = os.fork()
if child == 0:
    torch.mm(torch.ones(1, 1), torch.ones(1, 1))
    os._exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(os.popen("echo from a shell").read(), torch.neg(torch.ones(1)))
raise SystemExit(5)
"""


def test_the_script_cannot_tell(launcher: Launcher) -> None:
    launcher.write(BEHAVIOUR)
    launcher.write("import sys; sys.sitecustomize_of_the_user = 'ran'", "own/sitecustomize.py")
    before = launcher.environment.get("PYTHONPATH", "")
    launcher.environment["PYTHONPATH"] = os.pathsep.join(
        [str(launcher.folder / "own"), *before.split(os.pathsep)]
    )
    # names that no shell would export, and what shells and gdb set themselves
    launcher.environment |= {
        "LINES": "33",
        "a.b": "1",
        "PYTHON.X": "x y",
        "PWD": "/elsewhere",
        "SHELL": "none",
    }
    arguments = ["script.py", "a b", "", "--flag", "x\ny"]
    plain = launcher.python(*arguments, stdin="given")
    assert plain.status == 5, plain.err
    debugged = debug(launcher, "--break", "aten::mm", "--", *arguments, stdin="given")
    report = debugged.markdown
    assert (debugged.run.status, debugged.run.out, debugged.run.own_err) == (
        plain.status,
        plain.out,
        plain.err,
    )
    assert "the script ended with status 5" in report
    # the forked child is not examined, and not disturbed
    assert debugged.functions().count("at::_ops::mm::call") == 1


def test_a_traceback_is_pythons_own(launcher: Launcher) -> None:
    launcher.write("import torch\ndef f():\n    torch.mm(torch.ones(2, 3), torch.ones(2, 3))\nf()\n")
    plain = launcher.python("script.py")
    debugged = debug(launcher, "script.py", "--break", "aten::mm")
    assert (debugged.run.status, debugged.run.own_err) == (1, plain.err)
    assert debugged.stops[0]["python"][0][1:] == ["f", 3]


SIGTRAPS = """
import os, signal
os.kill(os.getpid(), signal.SIGTRAP)  # nothing can be seen yet, and nothing is lost
signal.signal(signal.SIGTRAP, lambda *_: print("handled early", flush=True))
os.kill(os.getpid(), signal.SIGTRAP)
signal.signal(signal.SIGTRAP, signal.SIG_DFL)
import torch
def here():
    os.kill(os.getpid(), signal.SIGTRAP)
here()
print("went on", flush=True)
signal.signal(signal.SIGTRAP, lambda *_: print("handled", flush=True))
os.kill(os.getpid(), signal.SIGTRAP)
torch.neg(torch.ones(1))
import ctypes
def crash():
    ctypes.string_at(0)
crash()
"""


def test_sigtrap_is_a_stop_or_the_scripts_own(launcher: Launcher) -> None:
    """And a crash is a stop and stays a crash."""
    launcher.write(SIGTRAPS)
    debugged = debug(launcher, "script.py", "--break", "aten::neg [CPU]")
    assert debugged.run.out.startswith("handled early\nwent on\nhandled\n"), debugged.run
    assert [(stop["kind"], stop["spec"]) for stop in debugged.stops] == [
        ("signal", "SIGTRAP"),
        ("kernel", "aten::neg [CPU]"),
        ("signal", "SIGSEGV"),
    ]
    assert debugged.stops[0]["python"] == [
        [str(launcher.folder / "script.py"), "here", 9],
        [str(launcher.folder / "script.py"), "<module>", 10],
    ]
    assert debugged.run.status == 128 + signal.SIGSEGV
    assert debugged.stops[2]["python"][-2][1] == "crash"
    assert f"killed by signal {int(signal.SIGSEGV)}" in debugged.markdown


def test_exec_is_said(launcher: Launcher) -> None:
    launcher.write("import os, torch\ntorch.neg(torch.ones(1))\nos.execvp('echo', ['echo', 'replaced'])\n")
    debugged = debug(launcher, "script.py", "--break", "aten::neg [CPU]")
    assert (debugged.run.status, debugged.run.out.splitlines()[0]) == (0, "replaced"), debugged.run
    assert "the process became another program (exec)" in debugged.run.err
    assert len(debugged.stops) == 1


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("print('no torch')", 0, "the script ended without importing torch"),
        ("raise SystemExit(3)", 3, "the script ended with status 3 without importing torch"),
    ],
)
def test_scripts_that_reach_nothing(launcher: Launcher, text: str, status: int, said: str) -> None:
    launcher.write(text)
    debugged = debug(launcher, "script.py", "--break", "aten::mm")
    assert debugged.run.status == status
    assert said in debugged.run.err
    assert debugged.stops == []
