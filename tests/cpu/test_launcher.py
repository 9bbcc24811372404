"""A script under `tracer record` behaves as under `python`, and bad input is refused in one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from launching import TIMEOUT, Launcher, Run

import tracer

WITH_TORCH = "import torch\ntorch.add(torch.ones(4), 1)\n"


def assert_refused(run: Run, *parts: str) -> None:
    assert run.status == 2
    assert run.out == ""
    assert re.fullmatch(r"tracer: .*\n", run.err), run.err
    for part in parts:
        assert part in run.err


# ---- as under python -----------------------------------------------------------------------------


def test_arguments_and_main(launcher: Launcher) -> None:
    launcher.write(
        "import sys, __main__\n"
        "print(sys.argv, sys.path, sys.flags, __name__, __file__, __spec__, __main__.__dict__.keys())\n"
        + WITH_TORCH
        + "print(sys.argv, sys.path, __name__)\n",
        "folder/train.py",
    )
    arguments = ["--epochs", "1", "-o", "x", "--help", "--", "-m", "", "a b", "--force"]
    traced = launcher.same("folder/train.py", *arguments)
    assert "both.trace" in traced.said


def test_nothing_of_tracer_is_left_in_the_import(launcher: Launcher) -> None:
    launcher.write(
        "import sys, importlib.util, torch\n"
        "print(importlib.util.find_spec('torch').loader, [str(finder) for finder in sys.meta_path])\n"
        "print(vars(torch.__spec__.loader), torch.__loader__ is torch.__spec__.loader)\n"
    )
    plain, traced = launcher.both("script.py")
    hide = re.compile(r"0x[0-9a-f]+")
    assert hide.sub("", traced.out) == hide.sub("", plain.out)


def test_looking_for_torch_is_not_importing_it(launcher: Launcher) -> None:
    launcher.write(
        "import importlib.util, sys\n"
        "importlib.util.find_spec('torch')\n"
        "print('torch' in sys.modules)\n" + WITH_TORCH
    )
    traced = launcher.same("script.py")
    assert traced.out == "False\n"
    assert "hop" in traced.said


def test_torch_is_imported_when_the_script_does(launcher: Launcher) -> None:
    launcher.write(
        "import os, sys\n"
        "ours = {'__future__', *sys.builtin_module_names}\n"
        "print(sorted(name for name in sys.modules if 'tracer' not in name and name not in ours))\n"
        "print('TRACER_RECORD' in os.environ)\n"
        "os.environ['OMP_NUM_THREADS'] = '1'\n"
        "import torch\n"
        "print(torch.get_num_threads())\n"
    )
    traced = launcher.same("script.py")
    assert traced.out.endswith("False\n1\n")


@pytest.mark.parametrize("name", ["json.py", "types.py", "errno.py", "naming.py"])
def test_modules_beside_the_script_win(launcher: Launcher, name: str) -> None:
    launcher.write("print('imported', __name__)\n", name)
    launcher.write(f"import {name[:-3]}\n")
    launcher.same("script.py")


def test_standard_input(launcher: Launcher) -> None:
    launcher.write("import sys, torch\nprint(repr(sys.stdin.read()), input.__module__)\n")
    assert launcher.same("script.py", stdin="one\ntwo").out.startswith(r"'one\ntwo'")


def test_script_from_standard_input(launcher: Launcher) -> None:
    launcher.same("-", "argument", stdin="import sys, torch\nprint(sys.argv, __name__)\n")


def test_module(launcher: Launcher) -> None:
    launcher.write("", "package/__init__.py")
    launcher.write(
        "import sys, torch\nprint(sys.argv[1:], sys.path[0], __name__, __package__, __spec__.name)\n",
        "package/train.py",
    )
    plain = launcher.python("-m", "package.train", "--epochs", "1", "-o", "x")
    traced = launcher.record("-m", "package.train", "--epochs", "1", "-o", "x")
    assert (traced.status, traced.out, traced.own_err) == (plain.status, plain.out, plain.err)
    assert launcher.traces() == ["package.train.0001.trace"]


def test_missing_module(launcher: Launcher) -> None:
    assert launcher.same("-m", "no_such_module").status == 1
    assert launcher.traces() == []


def test_folder_with_main(launcher: Launcher) -> None:
    launcher.write("import sys, torch\nprint(sys.argv, sys.path[0])\n", "app/__main__.py")
    launcher.same("app", "argument")


def test_interpreter_flags(launcher: Launcher) -> None:
    launcher.write("import sys\nprint(sys.flags.optimize, sys.warnoptions, sys.flags.dev_mode)\n")
    flags = ["-O", "-W", "ignore", "-X", "dev"]
    plain = launcher.python(*flags, "script.py")
    traced = launcher.python(*flags, str(launcher.tracer), "record", "script.py")
    assert traced.out == plain.out


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("sys.exit(3)", 3),
        ("sys.exit()", 0),
        ("sys.exit('text')", 1),
        ("sys.exit(True)", 1),
        ("os._exit(7)", 7),
        ("def f():\n    1 / 0\nf()", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.abort()", -signal.SIGABRT),
        ("raise SystemExit(4) from ValueError('cause')", 4),
        ("sys.stderr.close(); sys.exit(5)", 5),
        ("sys.excepthook = lambda *a: print('hook', a[0].__name__); 1 / 0", 1),
    ],
)
def test_endings(launcher: Launcher, ending: str, status: int) -> None:
    launcher.write("import os, signal, sys\n" + WITH_TORCH + ending + "\n")
    assert launcher.same("script.py").status == status


def test_syntax_error(launcher: Launcher) -> None:
    launcher.write("import torch\nfor x in\n")
    traced = launcher.same("script.py")
    assert traced.status == 1
    assert traced.said == "tracer: nothing was recorded: the script did not import torch\n"
    assert launcher.traces() == []


def test_traceback_through_the_import_of_torch(launcher: Launcher) -> None:
    launcher.write("def f():\n    raise ImportError('broken torch')\nf()\n", "torch/__init__.py")
    launcher.write("try:\n    import torch\nexcept ImportError as e:\n    print(e)\nimport torch\n")
    traced = launcher.same("script.py")
    assert "ImportError: broken torch" in traced.err
    assert "import_hook" not in traced.err
    launcher.write("1 / 0\n", "torch/__init__.py")
    assert "import_hook" not in launcher.same("script.py").err


def test_atexit_order(launcher: Launcher) -> None:
    launcher.write(
        "import atexit, sys\n"
        "atexit.register(lambda: print('first registered', file=sys.stderr))\n"
        + WITH_TORCH
        + "atexit.register(lambda: print(torch.ones(2).sum().item(), file=sys.stderr))\n"
        "class Late:\n    def __del__(self): print('deleted')\n"
        "late = Late()\n"
    )
    traced = launcher.same("script.py")
    assert traced.err.index("first registered") < traced.err.index("tracer: ")


def test_interrupt(launcher: Launcher) -> None:
    launcher.write(
        "import time, torch\n"
        "print('ready', flush=True)\n"
        "while True:\n    torch.ones(4).add(1); time.sleep(0.001)\n"
    )
    process = launcher.start(str(launcher.tracer), "record", "-o", "run.trace", "script.py")
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    assert "tracer: run.trace\n" in err
    assert "tracer tree run.trace" in err


def test_working_folder_changed_before_torch(launcher: Launcher) -> None:
    (launcher.folder / "elsewhere").mkdir()
    launcher.write("import os\nos.chdir('elsewhere')\n" + WITH_TORCH + "print(os.getcwd())\n")
    launcher.same("script.py")
    assert launcher.traces() == ["both.trace"]
    assert list((launcher.folder / "elsewhere").iterdir()) == []


def test_environment_of_the_script(launcher: Launcher) -> None:
    launcher.write("import os\nprint({k: v for k, v in os.environ.items() if k != 'TRACER_JOIN'})\n")
    launcher.same("script.py", extra={"OWN": "value"})


def test_without_torch(launcher: Launcher) -> None:
    launcher.write("print('hello')\n")
    traced = launcher.same("script.py")
    assert traced.said == "tracer: nothing was recorded: the script did not import torch\n"
    assert launcher.traces() == []


def test_summary(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH)
    traced = launcher.record("-o", "a run.trace", "script.py")
    first, *rest = traced.err.splitlines()
    assert first == "tracer: a run.trace"
    assert re.search(r"[\d,]+ op calls?, [\d,]+ hops?, \d+ threads?, 1 process, ", traced.err)
    assert re.search(r"at least \d+ ns per hop", traced.err)
    assert "complete: nothing dropped" in traced.err
    assert "tracer tree 'a run.trace'" in rest[-1]
    assert "\x1b" not in traced.err
    assert max(map(len, rest)) <= 80


# ---- children ------------------------------------------------------------------------------------


def test_children_do_not_speak(launcher: Launcher) -> None:
    launcher.write(
        "import os, subprocess, sys, torch, multiprocessing as mp\n"
        "def work(x):\n    return torch.ones(x).sum().item()\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        with mp.get_context(method).Pool(1) as pool:\n"
        "            print(method, pool.map(work, [1, 2, 3])); pool.close(); pool.join()\n"
        "    print(subprocess.run([sys.executable, '-c', 'import torch; print(torch.ones(2))'],"
        " capture_output=True, text=True))\n"
        "    if (child := os.fork()) == 0:\n        torch.ones(2).mul(3); sys.exit(9)\n"
        "    print(os.waitpid(child, 0)[1])\n"
    )
    traced = launcher.same("script.py")
    assert traced.said.count("next: ") == 1


def test_the_line_that_calls_a_launcher_of_kernels(launcher: Launcher) -> None:
    """Of packages that call the user's kernels, the line in them says nothing; of others it does."""
    for package in ("numba", "other"):
        text = "import torch\ndef run():\n    torch.ones(2).neg()\n"
        launcher.write(text, f"packages/{package}/__init__.py")
    launcher.write("import other, numba\nother.run()\nnumba.run()\n")
    packages = {"PYTHONPATH": str(launcher.folder / "packages")}
    run = launcher.record("-o", "t.trace", "script.py", extra=packages)
    assert run.status == 0, run.err
    hops = tracer.load(launcher.folder / "t.trace").hops.filter(op="aten::neg")
    lines = {str(Path(source).relative_to(launcher.folder)) for source in hops["source"]}
    assert sorted(lines) == ["packages/other/__init__.py:3", "script.py:3"]


def test_a_stand_in_for_a_launcher_of_kernels(launcher: Launcher) -> None:
    """Scripts that cannot have Triton put an empty module in its place."""
    launcher.write(
        "import sys, types\nsys.modules['triton'] = types.ModuleType('triton')\n"
        "import torch\nprint(torch.ones(2).neg())\n"
    )
    launcher.same("script.py")
    assert "aten::neg" in set(tracer.load(launcher.folder / "both.trace").hops["op"])


def test_fork_before_torch(launcher: Launcher) -> None:
    launcher.write(
        "import os, sys\n"
        "child = os.fork()\n"
        "import torch\n"
        "torch.ones(2)\n"
        "if child: print(os.waitpid(child, 0)[1])\n"
    )
    traced = launcher.same("script.py")
    assert traced.said.count("next: ") == 1


# ---- inside a recording --------------------------------------------------------------------------


NESTED = """
import multiprocessing, os, torch, tracer
def with_block():
    with tracer.record('inner.trace', steps='0:1') as recording:
        torch.neg(torch.ones(2)); tracer.step(); recording.step()
    return recording
def start_and_stop():
    recording = tracer.start('inner.trace')
    torch.neg(torch.ones(2))
    assert tracer.stop() is recording.summary
    return recording
def unnamed():
    recording = tracer.start()
    recording.stop()
    return recording
def errors(*calls):
    for call in calls:
        try: call()
        except tracer.RecordingError as error: print(error)
def use():
    for run in (with_block, start_and_stop, unnamed):
        recording = run()
        print(os.path.basename(recording.path), type(recording.summary).__name__)
        recording.summary.text(), recording.summary.verdict
        for left in os.listdir(): left.startswith(('inner', 'script.0')) and os.unlink(left)
    recording = tracer.start('inner.trace')
    errors(recording.start, tracer.start)
    tracer.stop()
    errors(recording.start, tracer.stop, tracer.record('x.trace').stop)
    for left in os.listdir(): left.startswith('inner') and os.unlink(left)
if __name__ == '__main__':
    use()
    for method in ('fork', 'spawn'):
        child = multiprocessing.get_context(method).Process(target=use)
        child.start(); child.join(); print(child.exitcode)
    torch.abs(torch.ones(2))
"""


def test_a_script_that_records_itself_runs_as_it_does_alone(launcher: Launcher) -> None:
    launcher.write(NESTED)
    plain, traced = launcher.both("script.py")
    assert (plain.status, plain.err) == (0, "")
    numbered = re.compile(r"script\.\d+\.trace")  # there is nothing that could be numbered
    assert numbered.sub("script.trace", plain.out) == traced.out
    assert (traced.status, traced.own_err) == (0, "")
    said = "tracer: inner.trace will not be written: this process is already being recorded, to "
    assert [line.startswith(said) for line in traced.said.splitlines()].count(True) == 2, traced.said
    hops = tracer.load(launcher.folder / "both.trace").hops
    assert len(hops.filter((hops["op"] == "aten::neg") & (hops["kind"] == "call"))) == 3 * 2
    assert "aten::abs" in set(hops["op"]), "the recording around it goes on"


def test_what_a_recording_inside_a_recording_says(launcher: Launcher) -> None:
    launcher.write(
        "import torch, tracer\n"
        "with tracer.record('inner.trace') as recording: torch.ones(2)\n"
        "print(recording.summary.verdict)\n"
    )
    traced = launcher.record("-o", "run.trace", "script.py")
    path = launcher.folder / "run.trace"
    assert traced.out == f"incomplete: empty: this process was recorded to {path}\n"
    assert launcher.traces() == ["run.trace"]


def test_launcher_inside_a_recording(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH, "inner.py")
    traced = launcher.record("-o", "outer.trace", str(launcher.tracer), "record", "inner.py")
    assert traced.status == 0, traced.err
    path = launcher.folder / "outer.trace"
    assert (
        f"tracer: inner.trace will not be written: this process is already being recorded, to {path}\n"
        in traced.err
    )
    assert launcher.traces() == ["outer.trace"]
    assert len(tracer.load(path).hops) > 0


def test_a_script_that_becomes_another_before_torch(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH, "inner.py")
    launcher.write("import os, sys\nos.execv(sys.executable, [sys.executable, 'inner.py'])\n")
    traced = launcher.record("-o", "run.trace", "script.py")
    assert traced.status == 0, traced.err
    assert traced.said.startswith("tracer: run.trace\n"), traced.err
    trace = tracer.load(launcher.folder / "run.trace")
    assert len(trace.hops) > 0
    assert trace.certificate["complete"], trace.certificate["verdict"]


def test_a_script_that_becomes_another_replaces_an_older_trace(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH, "older.py")
    launcher.record("-o", "run.trace", "older.py")
    launcher.write("import torch\ntorch.neg(torch.ones(2))\n", "inner.py")
    launcher.write("import os, sys\nos.execv(sys.executable, [sys.executable, 'inner.py'])\n")
    traced = launcher.record("--force", "-o", "run.trace", "script.py")
    assert traced.status == 0, traced.err
    assert traced.said.startswith("tracer: run.trace\n"), traced.err
    assert "aten::neg" in set(tracer.load(launcher.folder / "run.trace").hops["op"].cast(pl.String))


def test_a_script_that_becomes_one_without_torch(launcher: Launcher) -> None:
    launcher.write("print('no torch')\n", "inner.py")
    launcher.write("import os, sys\nos.execv(sys.executable, [sys.executable, 'inner.py'])\n")
    traced = launcher.record("script.py")
    assert (traced.status, traced.out) == (0, "no torch\n")
    assert "nothing was recorded: the script did not import torch" in traced.said
    assert launcher.traces() == []


def test_a_script_that_starts_the_launcher(launcher: Launcher) -> None:
    launcher.write("import sys, torch\nprint(torch.neg(torch.ones(2)).tolist())\nsys.exit(3)\n", "inner.py")
    launcher.write(
        "import subprocess, sys, torch\ntorch.abs(torch.ones(2))\n"
        f"print(subprocess.run([{str(launcher.tracer)!r}, 'record', *sys.argv[1:], 'inner.py']).returncode)\n"
    )
    traced = launcher.record("-o", "run.trace", "script.py", "-o", "made.trace")
    assert traced.status == 0, traced.err
    assert traced.out.splitlines() == ["[-1.0, -1.0]", "3"]
    assert launcher.traces() == ["run.trace"]
    trace = tracer.load(launcher.folder / "run.trace")
    assert {"aten::abs", "aten::neg"} <= set(trace.hops["op"].cast(pl.String))
    assert trace.certificate["complete"], trace.certificate["verdict"]
    refused = launcher.record("-o", "again.trace", "script.py", "--override", "mm")
    assert refused.out == "2\n"
    assert "enable overrides in the command that began that recording" in refused.err


ENDINGS = {"in order": "", "killed": "os.kill(os.getpid(), 9)\n", "without a stop": "os._exit(0)\n"}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_shell_that_outlives_the_recording(launcher: Launcher, ending: str) -> None:
    """What a recorded script left in the environment of a shell or a service counts as long as it records."""
    launcher.write("import torch\nprint(torch.ones(2).neg().sum().item())\n", "later.py")
    later = (
        "cat gate; cp outer.trace before.trace; "
        f"{sys.executable} later.py; {launcher.tracer} record -o later.trace later.py; echo $?; : > done"
    )
    os.mkfifo(launcher.folder / "gate")
    launcher.write(
        "import os, subprocess, torch\ntorch.ones(2)\n"
        "with open('log', 'w') as log:\n"
        f"    subprocess.Popen(['bash', '-c', {later!r}], stdout=log, stderr=log, start_new_session=True)\n"
        + ending
    )
    launcher.record("-o", "outer.trace", "script.py")
    (launcher.folder / "gate").write_text("")
    end = time.monotonic() + TIMEOUT
    while not (launcher.folder / "done").exists() and time.monotonic() < end:
        time.sleep(0.05)
    first, second, *said, status = (launcher.folder / "log").read_text().splitlines()
    assert (first, second, status) == ("-2.0", "-2.0", "0")
    assert said[0] == "tracer: later.trace"
    before, after = (tracer.load(launcher.folder / name) for name in ("before.trace", "outer.trace"))
    assert len(after.processes) == len(before.processes) == 1
    assert "aten::neg" in set(tracer.load(launcher.folder / "later.trace").hops["op"])


REQUEST = {"path": "PATH", "shown": "x", "session": 1, "process": [1, 1, 1], "cupti_unusable": ""}
REQUEST |= {"reserved": True, "force": True, "override": ["none:such"]}
STALE = {
    "garbage": "garbage",
    "a list": "[1]",
    "no fields": "{}",
    "a descriptor as path": '{"path": 0, "reserved": true}',
    "of another process": json.dumps(REQUEST),
}


@pytest.mark.parametrize("request_", STALE.values(), ids=STALE)
@pytest.mark.parametrize("variable", ["TRACER_RECORD", "TRACER_JOIN"])
def test_variables_that_nobody_set_for_this_process(launcher: Launcher, request_: str, variable: str) -> None:
    empty = launcher.write("", "empty.trace")
    extra = {variable: request_.replace("PATH", str(empty))}
    for script in ("import torch\nprint(torch.ones(2))\n", "print(1)\n"):
        launcher.write(script)
        plain, run = launcher.python("script.py"), launcher.python("script.py", extra=extra)
        assert (run.status, run.out, run.own_err) == (plain.status, plain.out, plain.err)
        assert run.said.count("\n") <= ("torch" in script)
        assert empty.exists()
        assert empty.stat().st_size == 0
    assert launcher.record("-o", "t.trace", "script.py", extra=extra).status == 0


def test_api(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch, tracer\n"
        "with tracer.record('run.trace') as recording:\n    torch.ones(4)\n"
        "print(recording.summary.verdict, 'TRACER_JOIN' in os.environ)\n"
        "try:\n    tracer.start('run.trace')\nexcept tracer.RecordingError as error:\n    print(error)\n"
        "print(os.path.basename(tracer.start('run.trace', force=True).path)); tracer.stop()\n"
        "try:\n    tracer.stop()\nexcept tracer.RecordingError as error:\n    print(error)\n"
        "print(os.path.basename(tracer.start().path))\n"
    )
    run = launcher.python("script.py")
    assert run.err == ""
    assert run.out.splitlines() == [
        "complete: nothing dropped False",
        "run.trace already exists; give another file or overwrite it (--force)",
        "run.trace",
        "no recording is running; begin one with tracer.start()",
        "script.0001.trace",
    ]
    assert launcher.traces() == ["run.trace", "script.0001.trace"]
    assert sorted(p.name for p in launcher.folder.iterdir() if "replaced" in p.name) == []


# ---- output and bad input ------------------------------------------------------------------------


def test_numbering(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH, "train.py")
    (launcher.folder / "train.0041.trace").write_text("kept")
    launcher.record("train.py")
    launcher.record("train.py")
    assert launcher.traces() == ["train.0041.trace", "train.0042.trace", "train.0043.trace"]
    assert (launcher.folder / "train.0041.trace").read_text() == "kept"


def test_two_at_once(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH, "train.py")
    both = [launcher.start(str(launcher.tracer), "record", "train.py") for _ in range(2)]
    said = [process.communicate(timeout=TIMEOUT)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert launcher.traces() == ["train.0001.trace", "train.0002.trace"]
    assert {text.splitlines()[0] for text in said} == {
        "tracer: train.0001.trace",
        "tracer: train.0002.trace",
    }


def test_existing_output(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH)
    trace = launcher.folder / "run.trace"
    trace.write_text("precious")
    assert_refused(launcher.record("-o", "run.trace", "script.py"), "run.trace already exists", "--force")
    assert trace.read_text() == "precious"
    launcher.write("import sys; sys.exit(1)\n")
    launcher.record("--force", "-o", "run.trace", "script.py")
    assert trace.read_text() == "precious", "a recording that never began must not overwrite"
    launcher.write(WITH_TORCH)
    assert "complete" in launcher.record("--force", "-o", "run.trace", "script.py").err
    assert trace.read_bytes() != b"precious"
    assert launcher.traces() == ["run.trace"]


def test_refused_scripts(launcher: Launcher) -> None:
    (launcher.folder / "folder").mkdir()
    assert_refused(launcher.record("missing.py"), "no script missing.py here; check its name")
    assert_refused(launcher.record("folder"), "folder is a folder without __main__.py")
    assert_refused(launcher.record(), "give a script to run")
    assert_refused(launcher.record("-m"), "give a module to run")
    assert launcher.traces() == []


def test_refused_outputs(launcher: Launcher) -> None:
    launcher.write("print('must not run')\n")
    assert_refused(
        launcher.record("-o", "no/where/run.trace", "script.py"),
        "folder no/where does not exist; create it first",
    )
    assert_refused(
        launcher.record("-o", "script.py/run.trace", "script.py"),
        "folder script.py does not exist; create it first",
    )
    assert_refused(launcher.record("-o", "/proc/run.trace", "script.py"), "cannot write /proc/run.trace")
    assert_refused(launcher.record("-o", ".", "script.py"), "is a folder")
    assert_refused(launcher.record("--force", "-o", "/dev/null", "script.py"), "not a regular file")
    assert_refused(launcher.record("-o", "", "script.py"), "is not a file name")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(launcher: Launcher) -> None:
    launcher.write("print('must not run')\n")
    launcher.folder.chmod(0o555)
    try:
        assert_refused(launcher.record("script.py"), "Permission denied")
    finally:
        launcher.folder.chmod(0o755)


# ---- installation --------------------------------------------------------------------------------


def fake_torch(launcher: Launcher, version: str) -> dict[str, str]:
    launcher.write(f"__version__ = {version!r}\n", "other/torch/version.py")
    launcher.write("from .version import __version__\n", "other/torch/__init__.py")
    return {"PYTHONPATH": str(launcher.folder / "other")}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.99.0+cpu", "this is torch 2.99.0+cpu; rebuild it"),
        ("2.9.1", "torch 2.9.1 is too old; install torch 2.10 or newer"),
    ],
)
def test_another_torch(launcher: Launcher, version: str, expected: str) -> None:
    launcher.write("print('must not run')\n")
    elsewhere = fake_torch(launcher, version)
    assert_refused(launcher.record("script.py", extra=elsewhere), expected)
    assert launcher.traces() == []


def test_a_free_threaded_python(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher.write("print('must not run')\n")
    made_up = "import sys, sysconfig\nsysconfig.get_config_vars()\nsys.abiflags += 't'\n"
    launcher.write(made_up, "other/sitecustomize.py")
    run = launcher.record("script.py", extra={"PYTHONPATH": str(launcher.folder / "other")})
    expected = "is a free-threaded build, where tracer only reads traces; to record, use"
    assert_refused(run, expected)
    monkeypatch.setattr(sys, "abiflags", "t")
    with pytest.raises(tracer.RecordingError, match=expected):
        tracer.start(launcher.folder / "x.trace")
    assert launcher.traces() == []


def test_another_torch_found_by_the_script(launcher: Launcher) -> None:
    fake_torch(launcher, "2.99.0")
    launcher.write("import sys\nsys.path.insert(0, 'other')\nimport torch\nprint(torch.__version__)\n")
    traced = launcher.same("script.py")
    assert traced.out == "2.99.0\n"
    assert "nothing is recorded: tracer was built with torch" in traced.said
    assert traced.said.count("\n") == 1
    assert launcher.traces() == []


def test_source_folder_is_no_installation(launcher: Launcher) -> None:
    shutil.copytree(Path(tracer.__file__).parent, launcher.folder / "tracer")
    launcher.write("print('must not run')\n")
    run = launcher.python(
        "-m", "tracer.cli.app", "record", "script.py", extra={"PYTHONPATH": str(launcher.folder)}
    )
    assert_refused(
        run, "tracer_startup.pth is missing, so tracer cannot record; rebuild it", "-m pip install"
    )


def test_heavy_modules_stay_out(launcher: Launcher) -> None:
    launcher.write(
        WITH_TORCH
        + "import atexit, sys, json\n"
        + "heavy = {'polars', 'rich', 'typer', 'jinja2', 'elftools'}\n"
        + "print(json.dumps(sorted(heavy & set(sys.modules))))\n"
    )
    assert json.loads(launcher.same("script.py").out) == []
