"""A script under `tracer record` behaves as under `python`, and bad input is refused in one line."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from launching import TIMEOUT, Launcher, Run

import tracer
from tracer.trace.bytes.format import MAGIC

pytestmark = pytest.mark.fresh

WITHOUT_TORCH = (
    "tracer: nothing was recorded: the script did not import torch; "
    "if its child processes do, run it with TRACER=run.trace instead of tracer record\n"
)
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
    traced = launcher.same("folder/train.py", *arguments, fresh=True)
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
    traced = launcher.same("script.py", fresh=True)
    assert traced.out.endswith("False\n1\n")


@pytest.mark.parametrize("name", ["json.py", "types.py", "errno.py", "naming.py"])
def test_modules_beside_the_script_win(launcher: Launcher, name: str) -> None:
    launcher.write("print('imported', __name__)\n", name)
    launcher.write(f"import {name[:-3]}\n")
    launcher.same("script.py", fresh=True)


def test_standard_input(launcher: Launcher) -> None:
    launcher.write("import sys, torch\nprint(repr(sys.stdin.read()), input.__module__)\n")
    assert launcher.same("script.py", stdin="one\ntwo").out.startswith(r"'one\ntwo'")


def test_script_from_standard_input(launcher: Launcher) -> None:
    script = "import sys, torch\nprint(sys.argv, __name__)\n"
    launcher.says("['-', 'argument'] __main__\n", "-", "argument", stdin=script)


def test_module(launcher: Launcher) -> None:
    launcher.write("", "package/__init__.py")
    launcher.write(
        "import sys, torch\nprint(sys.argv[1:], sys.path[0], __name__, __package__, __spec__.name)\n",
        "package/train.py",
    )
    traced = launcher.record("-m", "package.train", "--epochs", "1", "-o", "x")
    found = f"['--epochs', '1', '-o', 'x'] {launcher.folder} __main__ package package.train\n"
    assert (traced.status, traced.out, traced.own_err) == (0, found, "")
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
    assert traced.said == WITHOUT_TORCH
    assert launcher.traces() == []


def test_traceback_through_the_import_of_torch(launcher: Launcher) -> None:
    launcher.write("def f():\n    raise ImportError('broken torch')\nf()\n", "torch/__init__.py")
    launcher.write("try:\n    import torch\nexcept ImportError as e:\n    print(e)\nimport torch\n")
    traced = launcher.same("script.py", fresh=True)
    assert "ImportError: broken torch" in traced.err
    assert "import_hook" not in traced.err
    launcher.write("1 / 0\n", "torch/__init__.py")
    assert "import_hook" not in launcher.same("script.py", fresh=True).err


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


@pytest.mark.fresh
def test_without_a_locale(launcher: Launcher) -> None:
    """In a container: Python is in UTF-8 mode, unless another Python has set LC_CTYPE for it."""
    launcher.write(
        "import locale, os, sys, torch\n"
        "print(sys.flags.utf8_mode, open(__file__).encoding, locale.getpreferredencoding())\n"
        "print(os.environ.get('LC_CTYPE'), sys.stdout.errors)\n"
    )
    run = launcher.same("script.py", without=("LANG", "LC_ALL", "LC_CTYPE"), fresh=True)
    assert run.out.startswith("1 utf-8 ")


def test_without_torch(launcher: Launcher) -> None:
    launcher.write("print('hello')\n")
    traced = launcher.same("script.py")
    assert traced.said == WITHOUT_TORCH
    assert launcher.traces() == []


@pytest.mark.promise("record", "docs/record.md")
def test_summary(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH)
    traced = launcher.record("-o", "a run.trace", "script.py")
    first, *rest = traced.err.splitlines()
    assert first == "tracer: a run.trace"
    assert re.search(r"[\d,]+ op calls?, [\d,]+ hops?, \d+ threads?, 1 process, ", traced.err)
    assert re.search(r"at least \d+ ns per hop", traced.err)
    assert "complete: nothing dropped" in traced.err
    assert any("tracer tree 'a run.trace'" in line for line in rest[-2:])
    assert "\x1b" not in traced.err
    assert max(len(line.replace(sys.executable, "python")) for line in rest) <= 80


# ---- children ------------------------------------------------------------------------------------


# ---- inside a recording --------------------------------------------------------------------------


# ---- output and bad input ------------------------------------------------------------------------


def test_numbering(launcher: Launcher) -> None:
    launcher.fresh = False  # it is the launcher that is asked, not the interpreter
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
    launcher.fresh = False  # it is the launcher that is asked, not the interpreter
    launcher.write(WITH_TORCH)
    trace = launcher.folder / "run.trace"
    trace.write_text("precious")
    assert_refused(launcher.record("-o", "run.trace", "script.py"), "run.trace already exists", "--force")
    assert_refused(launcher.record("--force", "-o", "run.trace", "script.py"), "run.trace is not a trace")
    assert trace.read_text() == "precious"
    trace.write_bytes(MAGIC + b"precious")
    launcher.write("import sys; sys.exit(1)\n")
    launcher.record("--force", "-o", "run.trace", "script.py")
    assert trace.read_bytes() == MAGIC + b"precious", "a recording that never began must not overwrite"
    launcher.write(WITH_TORCH)
    assert "complete" in launcher.record("--force", "-o", "run.trace", "script.py").err
    assert trace.read_bytes() != MAGIC + b"precious"
    assert launcher.traces() == ["run.trace"]


def test_refused_scripts(launcher: Launcher) -> None:
    (launcher.folder / "folder").mkdir()
    assert_refused(launcher.record("missing.py"), "no script missing.py here; check its name")
    assert_refused(launcher.record("folder"), "folder is a folder without __main__.py")
    assert_refused(launcher.record(), "give a script to run")
    assert_refused(launcher.record("-m"), "give a module to run")
    assert launcher.traces() == []


def test_refused_outputs(launcher: Launcher) -> None:
    launcher.fresh = False  # it is the launcher that is asked, not the interpreter
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


@pytest.mark.promise("docs/versions.md")
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


@pytest.mark.promise("docs/limits.md#where-it-runs")
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
    traced = launcher.same("script.py", fresh=True)
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
        + "import sys\n"
        + "heavy = {'polars', 'rich', 'typer', 'jinja2'}\n"
        + "print(sorted(heavy & set(sys.modules)))\n"
    )
    launcher.says("[]\n", "script.py")


def test_a_current_folder_that_was_deleted_is_one_line(launcher: Launcher) -> None:
    launcher.write("print('hi')\n")
    (launcher.folder / "gone").mkdir()
    record = f"cd gone && rmdir ../gone && exec {launcher.tracer} record {launcher.folder}/script.py"
    run = launcher.run(["sh", "-c", record])
    assert (run.status, run.out) == (2, "")
    assert run.err.startswith("tracer: the current folder was deleted; ")
    assert run.err.count("\n") == 1


def test_a_recording_from_python_in_a_folder_that_was_deleted_is_one_error(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch, tracer\n"  # torch cannot be imported there
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        "for path in ('x.trace', None):\n"
        "    try: tracer.start(path)\n"
        "    except tracer.RecordingError as error: print(error)\n"
    )
    run = launcher.python("script.py")
    assert (run.status, run.err) == (0, "")
    lines = run.out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("the current folder was deleted; ") for line in lines), lines


def test_the_interpreter_has_the_options_that_were_given(launcher: Launcher) -> None:
    """A variable sets its option in the script's interpreter too, without a word on the command line."""
    launcher.write("import sys\nprint(sys.orig_argv[1:], sys.flags.dont_write_bytecode)\n")
    launcher.environment["PYTHONDONTWRITEBYTECODE"] = "1"
    assert launcher.python("script.py").out == "['script.py'] 1\n"
    assert launcher.record("script.py").out == "['script.py'] 1\n"
    module = launcher.python("-u", "-W", "ignore", "-m", "tracer", "record", "script.py")
    assert module.out == "['-u', '-W', 'ignore', 'script.py'] 1\n"


def test_a_recording_of_nothing_suggests_no_next_command(launcher: Launcher) -> None:
    launcher.fresh = False  # it is the launcher that is asked, not the interpreter
    launcher.write("import torch\n")
    assert "next:" not in launcher.record("script.py").said
    launcher.write("import torch\ntorch.ones(1)\n")
    assert "next:" in launcher.record("script.py").said
