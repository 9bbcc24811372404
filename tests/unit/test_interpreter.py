"""Command lines of interpreters: the options that were given, and helpers that tracer starts."""

from __future__ import annotations

import sys

import pytest

from tracer.base.interpreter import bare_helper, helper, options, script


@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("python tracer record x.py -B", ""),
        ("python -B -m tracer record x.py", "-B"),
        ("python -uBm tracer record -O x.py", "-uB"),
        ("python -c pass -B", ""),
        ("python -W error -Ximporttime -X dev tracer record x.py", "-W error -Ximporttime -X dev"),
        ("python -BW error tracer", "-BW error"),
        ("python --check-hash-based-pycs never -P tracer", "--check-hash-based-pycs never -P"),
        ("python -u - x", "-u"),
        ("python", ""),
    ],
)
def test_options(command: str, given: str) -> None:
    assert options(command.split()) == given.split()


def test_a_helper_does_not_begin_in_the_current_folder() -> None:
    command = helper("pass", "x", flags=["-B"])
    assert command[0] == sys.executable
    assert command[-1] == "x"
    assert "-B" in command
    assert ("-P" in command) == (sys.version_info >= (3, 11)), "Python 3.13 imports before the text runs"
    assert bare_helper("pass")[1:3] == ["-I", "-S"]
    assert script("train.py", flags=["-B"]) == [sys.executable, "-B", "train.py"], (
        "as the user would start it"
    )
