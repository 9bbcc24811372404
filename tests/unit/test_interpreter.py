"""The options of an interpreter, as they were given."""

from __future__ import annotations

import pytest

from tracer.base.interpreter import options


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
