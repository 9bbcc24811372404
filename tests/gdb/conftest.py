"""Sessions on real programs. gdb must be there: the build installs it.

A gdb older than the processor may be unable to write its registers; then tracer refuses to attach, and the
tests that attach are skipped. docs/attach.md says which gdb that is.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cpu"))

from launching import Launcher


@pytest.fixture
def launcher(tmp_path: Path, request: pytest.FixtureRequest) -> Launcher:
    return Launcher(tmp_path, fresh=request.node.get_closest_marker("fresh") is not None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not (shutil.which("gdb") or shutil.which("cuda-gdb")):
        for item in items:
            if item.get_closest_marker("gdb"):
                item.add_marker(pytest.mark.skip(reason="gdb is not installed: apt-get install gdb"))


@pytest.fixture(autouse=True)
def attachable(request: pytest.FixtureRequest) -> None:
    if request.path.name.startswith("test_attach") and registers_refused():
        pytest.skip("this gdb cannot write the registers of this CPU: install gdb 14 or newer")


@functools.cache
def registers_refused() -> bool:
    """Whether gdb itself cannot write a register of a process here: seen without tracer."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            write = ["-ex", "set var $mxcsr = $mxcsr ^ 0x20"]
            command = ["gdb", "-nx", "-batch", "-p", str(sleeper.pid), *write]
            said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        finally:
            sleeper.kill()
    return "Couldn't write extended state status" in said
