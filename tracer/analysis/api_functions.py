"""What functions of the CUDA runtime and driver do, in a sentence each."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from tracer.trace.names.roles import plain_name, role


def describe(name: str) -> str | None:
    """What a function does and when PyTorch calls it; else what functions of its role do."""
    of_role = role(name)
    return function_descriptions().get(plain_name(name)) or (
        role_descriptions()[of_role] if of_role else None
    )


def role_descriptions() -> dict[str, str]:
    """What functions of each role do, in the order of reports."""
    return _descriptions()["roles"]


def function_descriptions() -> dict[str, str]:
    """What functions do, by their plain names."""
    return _descriptions()["functions"]


@cache
def _descriptions() -> dict[str, dict[str, str]]:
    return yaml.safe_load(Path(__file__).with_suffix(".yml").read_text())
