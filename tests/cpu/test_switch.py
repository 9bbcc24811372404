"""`TRACER=run.trace python script.py`."""

from __future__ import annotations

import pytest
from launching import Launcher

import tracer

SCRIPT = "import os, torch\ntorch.ones(3).neg()\nprint(os.environ.get('TRACER'), len(os.listdir()))\n"
SWITCH = {"TRACER": "run.trace"}


def ops(launcher: Launcher, name: str = "run.trace") -> set[str]:
    return set(tracer.load(launcher.folder / name).hops["op"])


@pytest.mark.fresh
@pytest.mark.promise("TRACER=run.trace", "docs/record.md")
def test_it_records(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    run = launcher.python("script.py", extra=SWITCH)
    assert (run.status, run.out, run.own_err) == (0, "None 2\n", "")
    assert run.said.startswith("tracer: run.trace\n")
    assert "complete: nothing dropped" in run.said
    assert "aten::neg" in ops(launcher)


def test_the_exit_status_is_the_scripts(launcher: Launcher) -> None:
    launcher.write("import torch\ntorch.ones(3)\nraise SystemExit(7)\n")
    assert launcher.python("script.py", extra=SWITCH).status == 7
    assert "aten::ones" in ops(launcher)


def test_the_file_is_where_the_process_began(launcher: Launcher) -> None:
    (launcher.folder / "other").mkdir()
    launcher.write("import os\nos.chdir('other')\nimport torch\ntorch.ones(3)\n")
    launcher.python("script.py", extra=SWITCH)
    assert launcher.traces() == ["run.trace"]


def test_an_existing_file_stays(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    (launcher.folder / "run.trace").write_bytes(b"mine")
    for _ in range(2):
        run = launcher.python("script.py", extra=SWITCH)
    assert (launcher.folder / "run.trace").read_bytes() == b"mine"
    assert launcher.traces() == ["run.0002.trace", "run.0003.trace", "run.trace"]
    assert "tracer: run.trace exists; this recording goes to run.0003.trace\n" in run.said
    assert "aten::neg" in ops(launcher, "run.0003.trace")


@pytest.mark.parametrize("value", ["", "1", "/usr/bin/tracer", "run.trace.xz"])
def test_another_value_is_left_alone(launcher: Launcher, value: str) -> None:
    launcher.write(SCRIPT)
    run = launcher.python("script.py", extra={"TRACER": value})
    assert (run.status, run.out, run.err) == (0, f"{value} 1\n", "")


@pytest.mark.fresh
def test_without_torch_nothing_happens(launcher: Launcher) -> None:
    launcher.write("import os\nprint(os.environ['TRACER'])\n")
    run = launcher.python("script.py", extra=SWITCH)
    assert (run.out, run.err, launcher.traces()) == ("run.trace\n", "", [])


def test_a_folder_that_is_not_there(launcher: Launcher) -> None:
    launcher.write("import torch\nprint(torch.ones(1).item())\n")
    run = launcher.python("script.py", extra={"TRACER": "none/run.trace"})
    assert (run.status, run.out, run.own_err) == (0, "1.0\n", "")
    assert run.said == (
        "tracer: nothing is recorded: cannot write "
        f"{launcher.folder}/none/run.trace: folder {launcher.folder}/none does not exist; create it first\n"
    )


@pytest.mark.fresh
def test_children_join_it(launcher: Launcher) -> None:
    launcher.write("import torch\ntorch.ones(2).cos()\n", "child.py")
    launcher.write(
        "import os, subprocess, sys, torch\ntorch.ones(2).neg()\n"
        "subprocess.run([sys.executable, 'child.py'], check=True)\n"
        "if os.fork() == 0:\n    torch.ones(2).sin()\n    raise SystemExit\nos.wait()\n"
    )
    assert launcher.python("script.py", extra=SWITCH).status == 0
    assert launcher.traces() == ["run.trace"]
    assert {"aten::neg", "aten::cos", "aten::sin"} <= ops(launcher)


@pytest.mark.fresh
def test_a_program_that_starts_the_python(launcher: Launcher) -> None:
    launcher.write("import torch\ntorch.ones(2).neg()\n", "child.py")
    launcher.write("import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], check=True)\n")
    assert launcher.python("script.py", extra=SWITCH).status == 0
    assert "aten::neg" in ops(launcher)


@pytest.mark.fresh
def test_commands_of_tracer_are_not_recorded(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    run = launcher.run([str(launcher.tracer), "record", "-o", "own.trace", "script.py"], extra=SWITCH)
    assert (run.status, launcher.traces()) == (0, ["own.trace"])
    launcher.run([str(launcher.tracer), "doctor"], extra=SWITCH)
    assert launcher.traces() == ["own.trace"]


def test_a_script_that_records_itself(launcher: Launcher) -> None:
    launcher.write("import torch, tracer\nwith tracer.record('own.trace'):\n    torch.ones(2)\n")
    run = launcher.python("script.py", extra=SWITCH)
    assert launcher.traces() == ["run.trace"]
    assert "own.trace will not be written" in run.said
