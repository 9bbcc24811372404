"""Sessions on real programs. gdb must be there: the build installs it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cpu"))

from launching import Launcher


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not (shutil.which("gdb") or shutil.which("cuda-gdb")):
        for item in items:
            if item.get_closest_marker("gdb"):
                item.add_marker(pytest.mark.skip(reason="gdb is not installed: apt-get install gdb"))
