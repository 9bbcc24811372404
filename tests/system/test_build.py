"""What the build refuses: `make` before it downloads anything, CMake before it looks for a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
TORCH = """\
__version__ = {version!r}
class version:
    cuda = None
def compiled_with_cxx11_abi():
    return True
"""
# What `python3.14t` says of itself.
FREE_THREADED = """\
import sysconfig
get = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else get(name)
"""


# Nothing that is installed is found.
NO_PACKAGES = """\
import sys
sys.path[:] = [folder for folder in sys.path if not folder.endswith("-packages")]
"""


def configure(folder: Path, *, torch: str | None, customize: str = "") -> tuple[int, str]:
    """Exit status and output, in one line, with a torch and a Python that are made up."""
    packages = folder / "packages"
    packages.mkdir()
    if torch is None:
        customize += NO_PACKAGES
    else:
        text = torch if torch.startswith("raise ") else TORCH.format(version=torch)
        (packages / "torch.py").write_text(text)
    (packages / "sitecustomize.py").write_text(customize)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [str(CMAKE), "-S", str(ROOT), "-B", str(folder / "build"), f"-DPython_EXECUTABLE={python}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


needs_cmake = pytest.mark.skipif(CMAKE is None, reason="cmake is not installed")


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_refuses_a_free_threaded_python(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FREE_THREADED)
    done = subprocess.run(
        ["make", "-C", str(ROOT), "check", f"PYTHON={sys.executable}", f"VENV={tmp_path / 'venv'}"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        f"{sys.executable} is free-threaded: tracer needs a Python with the GIL to record (make PYTHON=...)"
    )


@needs_cmake
def test_a_torch_that_cannot_be_imported_is_no_reason_to_read_traces_only(tmp_path: Path) -> None:
    status, said = configure(tmp_path, torch="raise ImportError('libbroken.so is missing')")
    assert status == 1
    assert f"torch is installed, but {tmp_path}/python cannot import it; repair or remove it first" in said
    assert "libbroken.so is missing" in said


@needs_cmake
def test_an_old_torch_is_refused(tmp_path: Path) -> None:
    status, said = configure(tmp_path, torch="2.9.1")
    assert status == 1
    assert "torch 2.9.1 is too old: tracer needs torch 2.10 or newer" in said


@needs_cmake
def test_a_free_threaded_python_is_refused(tmp_path: Path) -> None:
    status, said = configure(tmp_path, torch="2.13.0", customize=FREE_THREADED)
    assert status == 1
    assert "is a free-threaded Python, where tracer cannot record: use a Python with the GIL" in said
    assert "compiler" not in said


@needs_cmake
def test_a_free_threaded_python_without_torch_reads_traces(tmp_path: Path) -> None:
    status, said = configure(tmp_path, torch=None, customize=FREE_THREADED)
    assert status == 0, said
    assert "so this build can only read traces" in said
