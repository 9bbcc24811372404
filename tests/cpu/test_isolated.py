"""Pythons that ignore the environment (-I, -E) or get none: what runs in them, and what is said of them."""

from __future__ import annotations

import json
import os

import polars as pl
import pytest
from launching import Launcher

import tracer

pytestmark = pytest.mark.fresh

OPS = "import sys, torch\nprint(torch.ones(2).neg().tolist(), sys.orig_argv[1:], sys._xoptions)\n"
NOT_JOINED = "a child Python was started with -I, -E or -S, or without its TRACER_JOIN, and is not recorded"
OF_A_STRANGER = """\
import json, os, sys
from tracer.recording import invitation
request = {"path": os.path.abspath("of.trace"), "shown": "of.trace", "session": 5, "reserved": False,
           "force": True, "cupti_unusable": "", "process": invitation.this_process(),
           "override": [os.path.abspath("stranger.py") + ":f"]}
os.execve(sys.executable, [sys.executable, sys.argv[2], "script.py"],
          {**os.environ, sys.argv[1]: "of.trace" if sys.argv[1] == "TRACER" else json.dumps(request)})
"""


@pytest.mark.parametrize("name", ["TRACER", "TRACER_RECORD", "TRACER_JOIN"])
@pytest.mark.parametrize("flag", ["-I", "-E"])
def test_no_variable_runs_code(launcher: Launcher, flag: str, name: str) -> None:
    launcher.write("open('ran', 'w')\n", "stranger.py")
    launcher.write(OF_A_STRANGER, "launch.py")
    launcher.write(OPS)
    run = launcher.python("launch.py", name, flag)
    assert (run.status, run.err) == (0, "")
    assert sorted(path.name for path in launcher.folder.iterdir()) == [
        "launch.py",
        "script.py",
        "stranger.py",
    ]


@pytest.mark.parametrize("flags", [["-I"], ["-B", "-E"]])
def test_the_command_records_with_these_options(launcher: Launcher, flags: list[str]) -> None:
    """The script finds the options of its interpreter as they were given; another recording is not joined."""
    launcher.write(OPS)
    plain = launcher.python(*flags, "script.py")
    with tracer.record(launcher.folder / "other.trace"):
        launcher.environment["TRACER_JOIN"] = os.environ["TRACER_JOIN"]
        run = launcher.python(*flags, "-m", "tracer", "record", "-o", "run.trace", "script.py")
    assert (run.status, run.out, run.own_err) == (plain.status, plain.out, plain.err)
    assert run.said.startswith("tracer: run.trace\n")
    assert "complete: nothing dropped" in run.said
    assert "aten::neg" in set(tracer.load(launcher.folder / "run.trace").hops["op"].cast(pl.String))


CHILD = "[sys.executable, '-B', '-W', 'ignore', {flag}'-c', 'pass']"
STARTS = (
    "subprocess.run(%s)",
    "subprocess.run(%s, preexec_fn=int)",
    "os.waitpid(os.posix_spawn(sys.executable, %s, os.environ), 0)",
    "os.spawnv(os.P_WAIT, sys.executable, %s)",
)
FORKED_BY_DESCRIPTOR = (
    "python = os.open(sys.executable, os.O_RDONLY)\n"
    "os.fork() or os.execve(python, [sys.executable, '-c', 'pass'], %s)\n"
    "os.wait()"
)
CANNOT_JOIN = (
    *(start % CHILD.format(flag="'-I', ") for start in STARTS),
    f"subprocess.run({CHILD.format(flag='')}, env={{}})",
    f"subprocess.run({CHILD.format(flag='')}, env={{**os.environ, 'TRACER_JOIN': 'garbage'}})",
    f"subprocess.run({CHILD.format(flag='')}, env={{**os.environ, 'TRACER_JOIN': OTHER}})",
    FORKED_BY_DESCRIPTOR % "{}",
    "subprocess.run([sys.executable, '-E', 'x.py'])",
    "subprocess.run([sys.executable, '-sS', 'x.py'])",
    "subprocess.run([sys.executable, '-Xutf8', '-bI', '-c', 'pass'])",
)
LOSES_NOTHING = (
    *(start % CHILD.format(flag="") for start in STARTS),
    FORKED_BY_DESCRIPTOR % "os.environ",
    "subprocess.run([sys.executable, '-c', '1', '-I'])",
    "subprocess.run([sys.executable, 'x.py', '-E'])",
    "subprocess.run([sys.executable, '-X', 'I', '-W', 'ignore', 'x.py'])",
    "subprocess.run(['true', '-I'])",
    "try: subprocess.run(['/nowhere/python', '-I'])\nexcept OSError: pass",
    "try: os.execv('/nowhere/python', ['python', '-I'])\nexcept OSError: pass",
    "try: os.posix_spawn('/nowhere/python', ['python', '-I'], {})\nexcept OSError: pass",
)
RECORDS_EACH = """\
import json, os, subprocess, sys, torch, tracer
with tracer.record("other.trace"):
    OTHER = os.environ["TRACER_JOIN"]
for number, line in enumerate(json.load(open("lines.json"))):
    with tracer.record(f"{number}.trace") as recording:
        torch.ones(2)
        exec(line)
    print(recording.summary.verdict)
"""


def test_children_that_cannot_join_are_noticed(launcher: Launcher) -> None:
    """Each line is a recording of its own; the trace says what the summary says."""
    lines = (*CANNOT_JOIN, *LOSES_NOTHING)
    launcher.write("", "x.py")
    launcher.write(json.dumps(lines), "lines.json")
    launcher.write(RECORDS_EACH)
    run = launcher.python("script.py")
    assert (run.status, run.err) == (0, "")
    for number, (line, verdict) in enumerate(zip(lines, run.out.splitlines(), strict=True)):
        certificate = tracer.load(launcher.folder / f"{number}.trace").certificate
        expected = f"incomplete: {NOT_JOINED}" if line in CANNOT_JOIN else "complete: nothing dropped"
        assert verdict == expected, line
        assert certificate["complete"] == (line in LOSES_NOTHING) != certificate["not_joined"], line


def test_children_of_multiprocessing_get_the_options_of_their_parent(launcher: Launcher) -> None:
    launcher.write(
        "import multiprocessing, torch\n"
        "if __name__ == '__main__':\n"
        "    torch.ones(2)\n"
        "    child = multiprocessing.get_context('spawn').Process(target=int)\n"
        "    child.start()\n    child.join()\n"
    )
    for flag, complete in (("-E", False), ("-B", True)):
        run = launcher.python(flag, "-m", "tracer", "record", "--force", "-o", "run.trace", "script.py")
        assert run.status == 0, run.err
        assert ("complete: nothing dropped" in run.said) == complete, run.said
