"""tracer installed by pip as users do it: without torch, with torch added later, from an sdist; removed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from launching import Launcher, Run
from test_launcher import WITH_TORCH

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(launcher: Launcher) -> Path:
    """What git knows of the repository, as a clone has it."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, text=True).split("\0"):
        if name and (ROOT / name).exists():
            (launcher.folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, launcher.folder / "source" / name)
    return launcher.folder / "source"


@pytest.fixture
def python(launcher: Launcher) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(launcher.folder / "environment")], check=True)
    return launcher.folder / "environment" / "bin" / "python"


def ran(launcher: Launcher, *command: object) -> Run:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=launcher.folder,
        env=launcher.environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def pip(launcher: Launcher, python: Path, *arguments: object) -> None:
    run = ran(launcher, python, "-m", "pip", "--disable-pip-version-check", *arguments)
    assert run.status == 0, run.out + run.err


def test_torch_comes_later(launcher: Launcher, source: Path, python: Path) -> None:
    launcher.write(WITH_TORCH)
    pip(launcher, python, "install", source)
    record = (python.parent / "tracer", "record", "--force", "-o", "run.trace", "script.py")
    assert "torch is not installed in" in ran(launcher, *record).err

    packages = next((python.parent.parent / "lib").glob("python3*/site-packages"))
    (packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    refused = ran(launcher, *record)
    assert refused.status == 2
    command = re.search(r"reads traces; rebuild it: (.*)\n", refused.err)
    assert command, refused.err
    rebuilt = ran(launcher, "bash", "-c", command[1])
    assert rebuilt.status == 0, rebuilt.out + rebuilt.err
    recorded = ran(launcher, *record)
    assert recorded.status == 0, recorded.err
    assert "complete: nothing dropped" in recorded.err

    pip(launcher, python, "uninstall", "-qy", "dispatch-tracer")
    left = [*packages.glob("*tracer*"), *python.parent.glob("tracer*")]
    assert left == []
    assert ran(launcher, python, "-c", "print(1)").err == ""


def test_an_sdist_has_all_that_a_build_needs(launcher: Launcher, source: Path, python: Path) -> None:
    pip(launcher, python, "install", "-q", "build")
    built = ran(launcher, python, "-m", "build", "-q", "--sdist", "-o", "dist", source)
    assert built.status == 0, built.err
    (sdist,) = (launcher.folder / "dist").glob("dispatch_tracer-*.tar.gz")
    packages = next((python.parent.parent / "lib").glob("python3*/site-packages"))
    (packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip(launcher, python, "install", "--no-build-isolation", "--no-deps", "--force-reinstall", sdist)
    launcher.write(WITH_TORCH)
    recorded = ran(launcher, python.parent / "tracer", "record", "-o", "run.trace", "script.py")
    assert "complete: nothing dropped" in recorded.err, recorded.err


def test_the_pure_wheel_reads_traces_without_torch(launcher: Launcher, source: Path, python: Path) -> None:
    pure = ("-C", "wheel.py-api=py3", "-C", "wheel.platlib=false")
    pip(launcher, python, "wheel", "-q", "--no-deps", *pure, "-w", "dist", source)
    (wheel,) = (launcher.folder / "dist").glob("dispatch_tracer-*-py3-none-any.whl")
    assert " ".join(pure) in (source / "Makefile").read_text()
    pip(launcher, python, "install", "-q", wheel)
    trace, command = ROOT / "tests/data/gpu.trace.xz", python.parent / "tracer"
    assert "aten::" in ran(launcher, command, "tree", trace).out
    assert ran(launcher, command, "report", trace, "-o", "report.md").status == 0
    assert ran(launcher, command, "export", trace, "--to", "chrome", "-o", "run.json").status == 0
    assert (launcher.folder / "report.md").stat().st_size > 1000
    launcher.write("print(1)")
    refused = ran(launcher, command, "record", "-o", "run.trace", "script.py")
    assert refused.status == 2
    assert refused.err.count("\n") == 1
    assert "torch is not installed in" in refused.err
