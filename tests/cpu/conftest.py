"""These tests run on the installed tracer: its extension, its .pth file and its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from launching import Launcher, cache_folder

import tracer

if not (Path(tracer.__file__).parent / "_build_info.py").exists():
    raise pytest.UsageError(
        f"tests/cpu need the installed tracer and found its source in {Path(tracer.__file__).parent}: "
        "run `make test`, or `pytest` and not `python -m pytest`"
    )


@pytest.fixture(scope="session", autouse=True)
def _cache_of_all_tests() -> None:
    """Made before a test begins: one that makes its own launcher, and is the first, would leave it behind."""
    cache_folder()


@pytest.fixture
def launcher(request: pytest.FixtureRequest, tmp_path: Path) -> Launcher:
    return Launcher(tmp_path, fresh=request.node.get_closest_marker("fresh") is not None)
