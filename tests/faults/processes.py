"""Processes that outlive a recording, what it leaves in the environment, and recordings inside recordings."""

from __future__ import annotations

import os
import signal
import sys
import time

from case import PATIENCE, Case, assert_honest
from rows import row

LEAVES = """
import os, subprocess, sys, torch
torch.ones(2)
# A shell that lives on, with the environment of the recorded script.
later = 'until [ -e go ]; do sleep 0.05; done; ' + sys.argv[1] + '; echo "rc $?"; touch ended'
subprocess.Popen(['bash', '-c', later], stdin=subprocess.DEVNULL, stdout=open('later.log', 'w'),
                 stderr=subprocess.STDOUT, start_new_session=True)
if sys.argv[2] == 'killed': os.kill(os.getpid(), 9)
"""
LATER = "import torch\nfor _ in range(10): torch.neg(torch.ones(2))\nprint('ran')\n"


@row(
    "TRACER_JOIN left behind",
    "It counts while the recording that it names lives. Later Pythons run alone, a later recording records.",
    {f"{what}, {how}": (what, how) for what in ("python", "tracer record") for how in ("ended", "killed")},
)
def left_behind(case: Case, variant: tuple[str, str]) -> None:
    what, how = variant
    case.write(LEAVES)
    case.write(LATER, "later.py")
    command = (
        f"{sys.executable} later.py" if what == "python" else f"{case.tracer} record -o later.trace later.py"
    )
    first = case.record("-o", "run.trace", "script.py", command, how)
    assert first.status == (0 if how == "ended" else -signal.SIGKILL), first.err
    before = (case.folder / "run.trace").read_bytes()
    (case.folder / "go").touch()
    _wait_for(case.folder / "ended")
    said = (case.folder / "later.log").read_text()
    assert said.startswith("ran\n"), said
    assert said.endswith("rc 0\n"), said
    assert (case.folder / "run.trace").read_bytes() == before, (
        "a later Python wrote into a trace that had ended"
    )
    if what == "tracer record":
        assert_honest(case.trace("later.trace"), 10, said)
        assert case.trace("later.trace").certificate["complete"] is True


OUTLIVES = """
import os, subprocess, sys, time, torch
x = torch.ones(2)
torch.neg(x)
def work():
    for _ in range(20_000): torch.neg(x)
    open('began', 'w').close()
    while not os.path.exists('go'): time.sleep(0.05)
    torch.neg(x)
    open('ended', 'w').close()
    os._exit(0)
if sys.argv[1] == 'fork':
    if os.fork() == 0: work()
elif sys.argv[1] == 'work': work()
else: subprocess.Popen([sys.executable, __file__, 'work'], stdin=subprocess.DEVNULL)
while not os.path.exists('began'): time.sleep(0.05)
"""


@row(
    "children that outlive the recording",
    "Neither the summary nor the trace says complete, before they end and after.",
    ("fork", "a new process"),
)
def outliving(case: Case, how: str) -> None:
    case.write(OUTLIVES)
    errors = case.folder.parent / f"{case.folder.name}.err"
    command = f"exec {case.tracer} record -o run.trace script.py '{how}' >/dev/null 2>{errors}"
    root = case.run(["bash", "-c", command])
    said = errors.read_text()
    assert root.status == 0, said
    assert "  complete" not in said, said
    assert case.trace().certificate["complete"] is False, case.trace().certificate["verdict"]
    (case.folder / "go").touch()
    _wait_for(case.folder / "ended")
    assert_honest(case.trace(), 20_003)  # a new process runs the first one again
    assert case.trace().certificate["complete"] is False, case.trace().certificate["verdict"]


def _wait_for(path: os.PathLike) -> None:
    end = time.monotonic() + PATIENCE
    while not os.path.exists(path):
        assert time.monotonic() < end, f"{os.fspath(path)} does not come"
        time.sleep(0.05)


MALFORMED = (
    "",
    "{",
    "garbage",
    "[]",
    "null",
    "{}",
    '{"path": 3}',
    '{"path": "/"}',
    '{"path": "/dev/full"}',
    "\udc80",
)
VARIANTS = {
    f"{name}={text!r}": {name: text} for name in ("TRACER_RECORD", "TRACER_JOIN") for text in MALFORMED
}


@row("malformed variables of tracer's", "The script runs; tracer says one line or nothing.", VARIANTS)
def malformed(case: Case, extra: dict[str, str]) -> None:
    case.write(LATER)
    run = case.run([sys.executable, "script.py"], extra=extra)
    assert (run.status, run.out) == (0, "ran\n"), run.err
    assert run.own_err == "", run.err
    assert run.said.count("\n") <= 1, run.said


NESTED = {
    "record": "with tracer.record('inner.trace'): torch.neg(torch.ones(2))",
    "start and stop": "tracer.start('inner.trace'); torch.neg(torch.ones(2)); tracer.stop()",
    "in a child": (
        "import os\nif os.fork() == 0:\n"
        "    with tracer.record('inner.trace'): torch.neg(torch.ones(2))\n"
        "    os._exit(0)\nos.wait()"
    ),
}


@row("a script that records itself", "It runs as without `tracer record`.", NESTED)
def nested(case: Case, body: str) -> None:
    case.write(f"import torch, tracer\n{body}\nprint('ran')\n")
    traced = case.record("-o", "run.trace", "script.py")
    assert (traced.status, traced.out) == (0, "ran\n"), traced.err
    assert case.trace().certificate["damaged_chunks"] == 0


SOAK = """
import os, resource, torch, tracer
x = torch.ones(2)
def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096
def held(): return len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task'))
table = torch._C._dispatch_dump_table('aten::neg')
for turn in range(60):
    with tracer.record('soak.trace', **OPTIONS):
        for _ in range(20): torch.neg(x)
    os.unlink('soak.trace')
    if turn == 10: before, size = held(), resident()
assert held() == before, (held(), before)
assert resident() - size < 32 << 20, (resident(), size)
assert torch._C._dispatch_dump_table('aten::neg') == table
print('flat')
"""


@row(
    "many recordings in one process",
    "Memory, descriptors, threads and dispatch tables are as after the first ones.",
    {"whole": "{}", "rings": "{'max_size': '16M'}"},
)
def soak(case: Case, options: str) -> None:
    case.write(SOAK.replace("OPTIONS", options))
    run = case.run([sys.executable, "script.py"])
    assert (run.status, run.out) == (0, "flat\n"), run.err
    assert case.left_over("script.py") == []


CHURN = """
import sys, threading, time, torch
x = torch.ones(2)
end = time.monotonic() + 10
def resident(): return int(open('/proc/self/statm').read().split()[1]) >> 8
def long():
    while time.monotonic() < end: torch.neg(x)
threads = [threading.Thread(target=long) for _ in range(3)]
for thread in threads: thread.start()
turn = 0
while time.monotonic() < end:
    short = [threading.Thread(target=torch.neg, args=(x,)) for _ in range(10)]
    for thread in short: thread.start()
    for thread in short: thread.join()
    turn += 1
    if turn == 5: size = resident()
for thread in threads: thread.join()
assert turn < 5 or resident() - size < 64, (resident(), size)
print('flat')
"""


@row("short threads beside long ones, in a ring", "Memory and the file stay bounded.", ("64M",))
def churn(case: Case, size: str) -> None:
    case.write(CHURN)
    traced = case.record("-o", "run.trace", "--max-size", size, "script.py")
    assert (traced.status, traced.out) == (0, "flat\n"), traced.err
    assert (case.folder / "run.trace").stat().st_size <= (80 << 20)
