"""The rows of the fault matrix: what is done to a recording, and in which variants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from case import Case


class SkippedError(Exception):
    """The fault cannot be made here; one line."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    name      the fault
    promise   what has to hold, which docs/reliability.md says
    trial     makes the fault once, in a folder of its own; an exception says that the promise was not kept
    variants  by name, each handed to the trial
    times     how often a round tries each variant
    """

    name: str
    promise: str
    trial: Callable[[Case, Any], None]
    variants: dict[str, Any]
    times: int = 1


ROWS: list[Row] = []


def row(
    name: str, promise: str, variants: dict[str, Any] | Iterable[str], times: int = 1
) -> Callable[[Callable[[Case, Any], None]], Callable[[Case, Any], None]]:
    """Makes a row of the function below. Variants without values are their own values."""
    named = variants if isinstance(variants, dict) else {text: text for text in variants}

    def register(trial: Callable[[Case, Any], None]) -> Callable[[Case, Any], None]:
        ROWS.append(Row(name, promise, trial, named, times))
        return trial

    return register
