"""The rule of this folder: no unit test imports torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest


@pytest.fixture(autouse=True, scope="module")
def _imported_before() -> Iterator[None]:
    """As by a test of another folder in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", ModuleType("torch"))
        yield


def test_torch_is_refused_even_if_it_was_imported_before() -> None:
    with pytest.raises(pytest.fail.Exception, match="tests/unit starts no process and imports no torch"):
        import torch  # noqa: F401
