"""Another process changes the trace while it is written, or writes to the same output."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from case import PATIENCE, Case, assert_honest, assert_undamaged, end_group
from rows import row

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from mutations import changed_field

CALLS = 60_000
SCRIPT = f"""
import sys, torch
x = torch.ones(2)
for _ in range({CALLS}): torch.neg(x)
print('ready', flush=True)
sys.stdin.readline()
for _ in range({CALLS}): torch.neg(x)
print('finished')
"""
CHANGES: dict[str, str | int] = {  # a command, or how many fields, lengths and events are written over
    "emptied": ": >run.trace",
    "cut": "truncate -s {size} run.trace",
    "another trace copied over it": "cp other.trace run.trace",
    "its begin overwritten": "head -c 200 /dev/urandom | dd of=run.trace conv=notrunc status=none",
    "a field overwritten": 1,
    "nine fields overwritten": 9,
    "moved": "mv run.trace moved.trace",
    "removed": "rm run.trace",
    "another trace moved over it": "cp other.trace new.trace && mv new.trace run.trace",
}
VARIANTS = {
    f"{name}{', a ring' if ring else ''}": (change, ring)
    for name, change in CHANGES.items()
    for ring in (False, True)
}


@row(
    "the trace changed by another process",
    "The script lives and its results stay; no line says complete.",
    VARIANTS,
)
def changed(case: Case, variant: tuple[str | int, bool]) -> None:
    change, ring = variant
    case.write("import torch\nfor _ in range(9): torch.neg(torch.ones(2))\n", "other.py")
    assert case.record("-o", "other.trace", "other.py").status == 0
    case.write(SCRIPT)
    process = case.begin("-o", "run.trace", *(["--max-size", "16M"] if ring else []), "script.py")
    try:
        assert process.stdout.readline() == "ready\n"
        if isinstance(change, int):
            overwrite_fields(case, change)
        else:
            command = change.format(size=case.draw.randrange(4096, 2 << 20))
            subprocess.run(["bash", "-c", command], cwd=case.folder, check=True)
        out, err = process.communicate("go\n", timeout=PATIENCE)
    finally:
        end_group(process)
    assert (process.returncode, out) == (0, "finished\n"), err
    if isinstance(change, str):  # a field may be one that nothing depends on
        assert "  complete" not in err, err
        if "moved.trace" in change:
            assert_honest(case.trace("moved.trace"), 2 * CALLS)


def overwrite_fields(case: Case, count: int) -> None:
    with (case.folder / "run.trace").open("r+b") as file:
        for _ in range(count):
            file.seek(0)
            at, other = changed_field(file.read(), case.draw)
            file.seek(at)
            file.write(other)


TOGETHER = """
import sys, torch
for _ in range({calls}): torch.neg(torch.ones(2))
print('ran')
"""


@row(
    "two recordings, one output",
    "Both scripts run. Each recording has a file of its own and all its calls.",
    ("without --force", "with --force"),
    times=2,
)
def two_recorders(case: Case, variant: str) -> None:
    ran = {}
    processes = []
    for number in range(2):
        calls = 20_000 + number
        name = f"script{number}.py"
        case.write(TOGETHER.format(calls=calls), name)
        force = ["--force"] if variant == "with --force" else []
        processes.append((name, calls, case.begin(*force, "-o", "run.trace", name)))
        time.sleep(case.draw.uniform(0, 1.5))
    refused = 0
    for name, calls, process in processes:
        out, err = process.communicate(timeout=PATIENCE)
        if process.returncode != 0:
            refused += 1
            assert variant == "without --force", err
            assert "run.trace" in err, err
            assert "Traceback" not in err, err
        else:
            assert out == "ran\n", err
            ran[name] = calls
    assert refused < 2
    seen = {}
    for path in sorted(Path(case.folder).glob("*.trace")):
        trace = case.trace(path.name)
        assert_undamaged(trace)
        assert trace.certificate["complete"] is True, f"{path.name}: {trace.certificate['verdict']}"
        name = next(name for name in ran if name in trace.processes["command"][0])
        assert_honest(trace, ran[name])
        seen[name] = path.name
    # With --force the second may replace the first's trace, once the first has ended.
    assert seen.keys() == ran.keys() or variant == "with --force", f"ran {ran}, traces {seen}"
    assert seen
