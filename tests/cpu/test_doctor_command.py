"""`tracer doctor` on this machine, as it is and with something broken."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from launching import Launcher, Run
from lazily import torch

from tracer.recording.invitation import this_process

CHECKS = {
    "Python",
    "torch",
    "tracer",
    "layout",
    "recording",
    "symbols",
    "CUDA",
    "overrides",
    "driver",
    "GPU",
    "gdb",
}
CHECKS |= {"compiler", "disk", "environment"}
LINE = re.compile(r"^(ok|note|problem) +(\S+(?: user)?) +(.*)$", re.MULTILINE)


def doctor(launcher: Launcher, *arguments: str, **extra: str) -> Run:
    return launcher.run([str(launcher.tracer), "doctor", *arguments], extra=extra)


def states(run: Run) -> dict[str, str]:
    """The worst state of each check."""
    found: dict[str, str] = {}
    for state, name, _ in LINE.findall(run.out):
        order = ["ok", "note", "problem"]
        found[name] = max(found.get(name, "ok"), state, key=order.index)
    return found


def fake_torch(folder: Path, version: str) -> str:
    """A folder for PYTHONPATH with a torch that says it is of this version, and is nothing else."""
    package = folder / "elsewhere" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"__version__ = '{version}'\n")
    if version:
        (package / "version.py").write_text(f"__version__ = '{version}'\ncuda = None\ndebug = False\n")
    return str(package.parent)


@pytest.mark.promise("doctor", "docs/install.md#does-it-work-here-tracer-doctor")
def test_recording_works_here(launcher: Launcher) -> None:
    run = doctor(launcher)
    found = states(run)
    assert run.status == 0, run.out
    assert found.keys() >= CHECKS
    for name in ("torch", "tracer", "layout", "recording", "symbols", "disk"):
        assert found[name] == "ok", run.out
    assert str(torch.__version__) in run.out
    assert re.search(r"works: \d+ op calls, \d+ hops", run.out)
    hooked, entries = re.search(r"supported: ([\d,]+) of ([\d,]+)\s+entries", run.out).groups()
    assert hooked == entries
    assert run.out.splitlines()[-1].startswith("Recording works here")
    assert "\x1b" not in run.out
    assert run.err == ""
    assert os.listdir(launcher.folder) == []


def test_a_reader_that_goes_away(launcher: Launcher) -> None:
    run = launcher.run(["bash", "-c", f"set -o pipefail; {launcher.tracer} doctor | head -1"])
    assert (run.status, run.err, run.out.count("\n")) == (0, "", 1)


def test_another_torch_is_a_problem(launcher: Launcher) -> None:
    run = doctor(launcher, PYTHONPATH=fake_torch(launcher.folder, "2.99.0"))
    found = states(run)
    assert run.status == 1
    assert found["tracer"] == "problem"
    assert "recording" not in found
    assert "-> rebuild it" in run.out
    assert "-m pip install --no-build-isolation --force-reinstall" in " ".join(run.out.split())
    assert "1 problem stops recording" in run.out


def test_an_old_torch_is_a_problem(launcher: Launcher) -> None:
    run = doctor(launcher, PYTHONPATH=fake_torch(launcher.folder, "2.9.1"))
    assert run.status == 1
    assert "torch 2.9.1 is too old" in " ".join(run.out.split())


def test_findings_as_json(launcher: Launcher) -> None:
    run = doctor(launcher, "--json")
    document = json.loads(run.out)
    assert (run.status, document["works"]) == (0, True), run.out
    assert {finding["name"] for finding in document["findings"]} >= {"torch", "recording", "gdb"}
    bad = doctor(launcher, "--json", PYTHONPATH=fake_torch(launcher.folder, ""))
    assert (bad.status, json.loads(bad.out)["works"]) == (1, False)


def test_no_torch_is_a_problem(launcher: Launcher) -> None:
    run = doctor(launcher, PYTHONPATH=fake_torch(launcher.folder, ""))
    assert run.status == 1
    assert states(run)["torch"] == "problem"
    assert "-> install it: " in run.out
    assert "-m pip install torch" in " ".join(run.out.split())


def test_a_recording_around_it_is_a_problem(launcher: Launcher) -> None:
    other = launcher.write("", "other.trace")  # of a recording that waits for torch to be imported
    around = {"path": str(other), "process": this_process()}
    run = doctor(launcher, TRACER_JOIN=json.dumps(around))
    found = states(run)
    assert run.status == 1
    assert (found["environment"], found["recording"]) == ("problem", "problem")
    assert f"this process is already being recorded, to {other}" in " ".join(run.out.split())


def test_a_preloaded_library_that_is_missing_is_noted(launcher: Launcher) -> None:
    run = doctor(launcher, LD_PRELOAD="/nowhere/lib.so")
    assert run.status == 0
    assert states(run)["environment"] == "note"
    assert "/nowhere/lib.so does not exist" in " ".join(run.out.split())


def test_a_failing_recording_is_a_problem(launcher: Launcher) -> None:
    (launcher.folder / "sitecustomize.py").write_text(
        "import builtins, sys\nbefore = builtins.__import__\n"
        "def fails(name, *rest, **options):\n"
        "    if name == 'torch' and 'doctor.py' in sys.argv[0]:\n"
        "        raise ImportError('libbroken.so is missing')\n"
        "    return before(name, *rest, **options)\n"
        "builtins.__import__ = fails\n"
    )
    run = doctor(launcher, PYTHONPATH=str(launcher.folder))
    assert run.status == 1
    assert states(run)["recording"] == "problem"
    assert "ImportError: libbroken.so is missing" in run.out
