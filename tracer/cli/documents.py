"""`--json`: one document on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from tracer.cli.common import writing

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def print_json(document: dict[str, Any], default: Callable[[Any], Any] | None = None) -> None:
    """One object, so that a field can be added. Numbers that are not finite, which JSON lacks, are null."""
    text = json.dumps(document, indent=1, default=default or _plain)
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(json.loads(text, parse_constant=lambda _: None), indent=1)
    with writing(pages=False):
        print(text)


@contextmanager
def prints_to_stderr(as_json: bool) -> Iterator[None]:
    """During the block what a user's module prints does not go into the document."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        yield


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
