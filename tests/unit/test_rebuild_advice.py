"""The command that rebuilds tracer is found without side effects on the script's process."""

from __future__ import annotations

import importlib.abc
import sys

import pytest

from tracer.base import extension


class Asked(importlib.abc.MetaPathFinder):
    """Notes what it is asked for, as a finder of setuptools does, which then changes itself."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        self.names.append(name)


def test_finders_of_the_script_are_not_asked_for_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    monkeypatch.setattr(sys, "meta_path", [asked, *sys.meta_path])
    assert "-m pip install" in extension.rebuild()
    assert "pip" not in asked.names
