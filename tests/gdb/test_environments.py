"""Scripts of another environment, where tracer is not installed: stripped and old torches."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from debugging import debug
from launching import Launcher
from lazily import torch

pytestmark = pytest.mark.gdb

SCRIPT = """
import sys, torch
assert "tracer" not in sys.modules
def product():
    return torch.mm(torch.ones(2, 3), torch.ones(3, 4).t().t())
print(torch.__version__, product().sum().item())
"""


@pytest.fixture
def stripped(tmp_path: Path) -> Path:
    """A folder with a torch whose libraries of kernels have only exported symbols; all else are links."""
    torch_folder = Path(torch.__file__).parent
    made = tmp_path / "stripped" / "torch"
    (made / "lib").mkdir(parents=True)
    for folder, into in ((torch_folder, made), (torch_folder / "lib", made / "lib")):
        for entry in folder.iterdir():
            if entry.name in ("libtorch_cpu.so", "libtorch_cuda.so"):
                subprocess.run(["strip", "-o", into / entry.name, entry], check=True)
            elif entry.name != "lib":
                (into / entry.name).symlink_to(entry)
    return made.parent


def test_a_stripped_torch(launcher: Launcher, stripped: Path) -> None:
    launcher.write(SCRIPT)
    launcher.environment["PYTHONPATH"] = str(stripped)
    found = debug(launcher, "script.py", "--break", "aten::mm", "-b", "at::native::matmul")
    assert found.run.status == 0, found.run.err
    assert "- level: exported symbols only: this torch is stripped" in found.markdown
    assert found.functions() == ["at::_ops::mm::call", "at::_ops::mm::redispatch"]
    assert found.stops[0]["arguments"][1]["value"]["shape"] == [3, 4]
    assert "aten::mm [CPU]" in found.markdown  # the key of the redispatch needs no name
    keyed = debug(launcher, "script.py", "--break", "aten::mm [CPU]")
    assert (keyed.run.status, keyed.run.err.count("\n")) == (1, 1)
    assert (
        "the kernel functions of aten::mm have no names in this torch; use --break aten::mm" in keyed.run.err
    )


def test_an_environment_without_tracer(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    python = _other_python()
    found = debug(launcher, "--python", python, "script.py", "--break", "aten::mm")
    assert found.run.status == 0, found.run.err
    assert found.functions()[0] == "at::_ops::mm::call"
    assert [frame[1:] for frame in found.stops[0]["python"]] == [["product", 5], ["<module>", 6]]
    assert found.stops[0]["arguments"][0]["value"] == {
        "defined": True,
        "shape": [2, 3],
        "stride": [3, 1],
        "dtype": "float32",
        "device": "cpu",
        "keys": ["AutocastCPU", "AutogradCPU", "ADInplaceOrView", "CPU"],
    }


def test_an_environment_without_torch(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    subprocess.run(["python3", "-m", "venv", "--without-pip", "empty"], cwd=launcher.folder, check=True)
    found = debug(launcher, "--python", "empty/bin/python", "script.py", "--break", "aten::mm")
    assert (found.run.status, found.run.err.count("\n")) == (1, 1)
    assert "has no torch; install it there, or give another Python with --python" in found.run.err


def _other_python() -> str:
    for name in ("/usr/bin/python3", "/usr/bin/python3.12", "/usr/bin/python3.13"):
        if (
            shutil.which(name)
            and subprocess.run([name, "-c", "import torch"], capture_output=True, check=False).returncode == 0
        ):
            return name
    pytest.skip("no other Python with torch (Debian: apt-get install python3-torch)")
