"""Where tracer is installed, and what a Python that finds it there can do with it."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest
from launching import Launcher, Run
from test_launcher import WITH_TORCH

import tracer
from tracer.base import extension

pytestmark = pytest.mark.fresh

PACKAGES = sysconfig.get_path("purelib")
RECORD = ("-m", "tracer", "record", "--force", "-o", "run.trace", "script.py")


class Environment:
    """A virtual environment without packages of its own."""

    def __init__(self, launcher: Launcher) -> None:
        self.folder = launcher.folder / "environment"
        self._launcher = launcher
        venv.create(self.folder, symlinks=True)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.packages = self.folder / "lib" / version / "site-packages"
        self.python = self.folder / "bin" / "python"

    def path_file(self, line: str) -> None:
        (self.packages / "more.pth").write_text(line + "\n")

    def run(self, *arguments: str, **extra: str) -> Run:
        return self._launcher.run([str(self.python), *arguments], extra=extra)


@pytest.fixture
def environment(launcher: Launcher) -> Environment:
    launcher.write(WITH_TORCH)
    return Environment(launcher)


@pytest.mark.promise("python -m tracer", "docs/install.md")
def test_python_m_tracer_is_the_command(launcher: Launcher) -> None:
    run = launcher.python("-m", "tracer", "--version")
    assert (run.status, run.out) == (0, f"tracer {tracer.__version__}\n")


@pytest.mark.parametrize("kind", ["tracer.py", "tracer/__init__.py"])
def test_a_module_of_the_same_name(launcher: Launcher, kind: str) -> None:
    """It is not run where the script does not import it, and nothing of tracer is a traceback."""
    launcher.write("print('the script runs its own tracer')\n", f"others/{kind}")
    launcher.write("import torch\nprint(torch.ones(2).sum().item())\n", "child.py")
    launcher.write(
        "import os, subprocess, sys, torch\n"
        "os.environ['PYTHONPATH'] = 'others'\n"
        "subprocess.run([sys.executable, 'child.py'])\n"
    )
    found = f"{launcher.folder}/others/{kind}"
    advice = f"{found} hides the package tracer; rename it, or remove its folder from PYTHONPATH"
    traced = launcher.same("script.py")
    assert traced.out == "2.0\n"
    assert re.search(rf"^tracer: process \d+ is not recorded: .*{kind} hides", traced.err, re.MULTILINE)
    for verb in (["record", "-o", "x.trace", "script.py"], ["tree", "both.trace"]):
        hidden = {"PYTHONPATH": str(launcher.folder / "others")}
        run = launcher.run([str(launcher.tracer), *verb], extra=hidden)
        assert (run.status, run.out, run.err) == (2, "", f"tracer: {advice}\n")
    assert launcher.traces() == ["both.trace"]


def test_a_site_folder_that_was_added_records(environment: Environment) -> None:
    environment.path_file(f"import site; site.addsitedir({PACKAGES!r})")
    run = environment.run(*RECORD)
    assert run.status == 0, run.err
    assert "complete: nothing dropped" in run.err


def test_a_folder_on_the_path_alone_gets_true_advice(environment: Environment, launcher: Launcher) -> None:
    environment.path_file(PACKAGES)
    run = environment.run(*RECORD)
    assert (run.status, run.out, launcher.traces()) == (2, "", [])
    assert re.fullmatch(
        rf"tracer: {environment.python} does not read {PACKAGES}/tracer_startup.pth, which begins a "
        r"recording: the folder is on sys\.path but is not a site folder; install it here.*: "
        rf"{environment.python} -m pip install scikit-build-core cmake ninja && "
        rf"{environment.python} -m pip install --no-build-isolation \S+\n",
        run.err,
    )


@pytest.mark.promise("docs/install.md")
def test_an_environment_without_torch_says_so(environment: Environment) -> None:
    shutil.copytree(Path(tracer.__file__).parent, environment.packages / "tracer")
    run = environment.run(
        "-c", "import tracer\ntry:\n tracer.start()\nexcept tracer.RecordingError as e:\n print(e)"
    )
    install = f"install it: {environment.python} -m pip install torch"
    assert run.out == f"torch is not installed in {environment.python}; {install}\n"


def installed(environment: Environment, **facts: str) -> None:
    """tracer as pip installs it, with another account of its making; everything else from here."""
    shutil.copytree(Path(tracer.__file__).parent, environment.packages / "tracer")
    shutil.copy(Path(PACKAGES, "tracer_startup.pth"), environment.packages)
    with (environment.packages / "tracer" / "_build_info.py").open("a") as file:
        file.writelines(f"{name} = {value!r}\n" for name, value in facts.items())
    environment.path_file(PACKAGES)


def test_the_first_recording_says_what_the_build_left_out(
    environment: Environment, launcher: Launcher
) -> None:
    installed(environment, TORCH_CUDA="13.0", OVERRIDES_MISSING="no working nvcc was found")
    cache = str(launcher.folder / "cache")
    first, second = (environment.run(*RECORD, XDG_CACHE_HOME=cache) for _ in range(2))
    line = (
        "tracer: this build has no built-in overrides (mm, gru, cat), but everything else: "
        "no working nvcc was found (shown once; tracer doctor shows it again)\n"
    )
    assert first.err.startswith(line)
    assert "built-in overrides" not in second.err
    assert second.status == 0


def test_a_stderr_that_takes_nothing_stops_no_first_recording(
    environment: Environment, launcher: Launcher
) -> None:
    installed(environment, TORCH_CUDA="13.0", OVERRIDES_MISSING="no working nvcc was found")
    command = f"{environment.python} {' '.join(RECORD)} 2>/dev/full"
    run = launcher.run(["sh", "-c", command], extra={"XDG_CACHE_HOME": str(launcher.folder / "cache")})
    assert run.status == 0
    assert len(tracer.load(launcher.folder / "run.trace").hops) > 0


def test_the_source_folder_hides_what_is_installed(environment: Environment, launcher: Launcher) -> None:
    installed(environment)
    shutil.copytree(Path(tracer.__file__).parent, launcher.folder / "tracer")
    (launcher.folder / "tracer" / "_build_info.py").unlink()
    run = environment.run(*RECORD)
    assert run.status == 2
    assert run.err == (
        f"tracer: {launcher.folder} is tracer's source and hides the tracer installed in "
        f"{environment.packages}; run the command tracer, or python -m tracer in another folder\n"
    )


@pytest.mark.parametrize("said", ["[]", "null", '{"url": null}', '{"url": "file://[/x"}', "{", ""])
def test_where_pip_installed_it_from_may_be_unknown(environment: Environment, said: str) -> None:
    installed(environment, TORCH_VERSION="2.10.9+other")
    about = environment.packages / "dispatch_tracer-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: dispatch-tracer\nVersion: 0.1.0\n")
    (about / "direct_url.json").write_text(said)
    run = environment.run(*RECORD)
    assert run.status == 2
    assert run.err.count("\n") == 1
    assert run.err.endswith(" --no-deps .\n")


def test_the_python_of_an_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, target in (("python", "/bin/true"), ("python3.11", sys.executable)):
        (tmp_path / name).symlink_to(target)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3.11"))
    assert f"{tmp_path}/python3.11 -m pip install" in extension.rebuild(), "python is another one"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert ": python -m pip install" in extension.rebuild()
    monkeypatch.setattr(extension, "PathFinder", SimpleNamespace(find_spec=lambda name: None))
    assert ": python -m ensurepip && python -m pip install" in extension.rebuild()


def test_a_build_without_torch_names_a_command_that_has_its_tools(environment: Environment) -> None:
    installed(environment)
    with (environment.packages / "tracer" / "_build_info.py").open("a") as file:
        file.write("TORCH_VERSION = None\n")
    run = environment.run(*RECORD)
    assert run.status == 2
    assert "tracer was built without torch, so it only reads traces; rebuild it" in run.err
    assert f"{environment.python} -m pip install scikit-build-core cmake ninja && " in run.err
    assert "--no-build-isolation --force-reinstall --no-deps" in run.err
