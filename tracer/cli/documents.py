"""`--json`: one document on stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tracer.cli.common import writing

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document. Times are in nanoseconds.")]


def print_json(document: dict[str, Any]) -> None:
    with writing():
        print(json.dumps(document, indent=1, default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
