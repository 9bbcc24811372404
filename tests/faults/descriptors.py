"""The script closes, replaces or lacks descriptors."""

from __future__ import annotations

from case import Case, assert_honest, assert_whole
from rows import row

CALLS = 20_000
SIZE = 3 << 20
HEAD = f"""
import os, resource, torch
torch.ones(2)
def ours():
    for name in os.listdir('/proc/self/fd'):
        try:
            if os.readlink(f'/proc/self/fd/{{name}}').endswith('.trace'): return int(name)
        except OSError: pass
    return 3
with open('data.bin', 'wb') as file: file.write(b'D' * {SIZE})
"""
TAIL = f"""
for _ in range({CALLS}): torch.neg(torch.ones(2))
print('done')
"""
TAKEN = {
    "all closed, a file opened": "os.closerange(3, 4096); store = open('data.bin', 'r+b')\n",
    "all closed, many files opened": (
        "os.closerange(3, 4096); files = [os.open('data.bin', os.O_RDWR) for _ in range(50)]\n"
    ),
    "all closed, a log opened": "os.closerange(3, 4096); log = open('data.bin', 'ab')\n",
    "dup2 onto ours": "os.dup2(os.open('data.bin', os.O_RDWR), ours())\n",
    "closed, then our number again": (
        "number = ours()\nos.closerange(3, 65536)\nwhile os.open('data.bin', os.O_RDWR) < number: pass\n"
    ),
    "daemon: two forks, all closed": (
        "import sys\nsys.stdout.flush()\nif os.fork():\n    os.wait(); os._exit(0)\n"
        "os.setsid()\nos.closerange(3, 4096)\nstore = open('data.bin', 'r+b')\n"
    ),
}
LACKING = {
    "12 descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))\n",
    "stderr closed": "os.close(2)\n",
    "stdin closed": "os.close(0)\n",
    "each number in use": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nnumbers = []\n"
        "try:\n    while True: numbers.append(os.open('/dev/null', os.O_RDONLY))\nexcept OSError: pass\n"
    ),
}


@row(
    "descriptors closed or taken over",
    "No file of the script's is read, written or cut; the trace is whole.",
    TAKEN,
)
def taken(case: Case, take: str) -> None:
    case.write(HEAD + take + TAIL)
    traced = case.record("-o", "run.trace", "script.py")
    data = (case.folder / "data.bin").read_bytes()
    assert data == b"D" * SIZE, f"the script's file was changed: {len(data)} bytes"
    assert traced.status == 0, traced.err
    if "os._exit" in take:
        assert_honest(case.trace(), CALLS, traced.said)
    else:
        assert traced.out == "done\n", traced.err
        assert_whole(case.trace(), CALLS)


@row(
    "descriptors closed, and the file removed",
    "The script runs on; one line says that the trace is gone.",
    TAKEN,
)
def taken_and_removed(case: Case, take: str) -> None:
    case.write(HEAD + "os.unlink('run.trace')\n" + take + TAIL)
    traced = case.record("-o", "run.trace", "script.py")
    assert (case.folder / "data.bin").read_bytes() == b"D" * SIZE, "the script's file was changed"
    assert traced.status == 0, traced.err
    assert "  complete" not in traced.said, traced.said


@row(
    "no descriptor left",
    "The script runs as without tracer, and the trace is whole or says what it lacks.",
    LACKING,
)
def lacking(case: Case, lack: str) -> None:
    case.write(HEAD + lack + TAIL)
    plain = case.python("script.py")
    traced = case.record("-o", "run.trace", "script.py")
    assert (traced.status, traced.out) == (plain.status, plain.out), traced.err
    assert_honest(case.trace(), CALLS, traced.said)
