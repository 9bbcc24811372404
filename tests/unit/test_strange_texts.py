"""Texts of a stranger's trace of any length: reading takes time in proportion."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tracer.report.advice_text import _wrapped
from tracer.report.text import package_relative
from tracer.trace.bytes.documents import _option

LONG = 50_000


@pytest.mark.parametrize(
    "text", ["a" * LONG, "/" * LONG, "a/site-packages" * (LONG // 15), "-packages/" + "(" * LONG]
)
def test_paths_of_packages_in_a_long_text(text: str) -> None:
    begin = time.process_time()
    package_relative(text + "-packages/")
    assert time.process_time() - begin < 1


def test_paths_of_packages() -> None:
    text = "a /x/site-packages/torch/b.py(/y/lib/dist-packages/n/site-packages/z.py) /z/packages/c.py"
    assert package_relative(text) == "a torch/b.py(z.py) /z/packages/c.py"


def test_advice_of_a_long_text_is_cut() -> None:
    begin = time.process_time()
    lines = _wrapped("do: " + "x" * LONG, "", "  ")
    assert time.process_time() - begin < 1
    assert lines[-1].endswith("...")
    assert sum(map(len, lines)) < 3000


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (None, True),
        (True, True),
        (0.5, True),
        ("tensor", True),
        ("number", True),
        ("x" * 9, False),
        ([], False),
    ],
)
def test_an_option_of_an_optimizer(value: Any, known: bool) -> None:
    assert _option(value) is known
