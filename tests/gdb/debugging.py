"""Running `tracer gdb` as a user does, and reading what it wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from launching import Launcher, Run


@dataclass(frozen=True)
class Debugged:
    """A finished `tracer gdb`: the process, its markdown and its stops."""

    run: Run
    markdown: str
    stops: list[dict[str, Any]]

    def functions(self) -> list[str]:
        return [stop["function"] for stop in self.stops]


def debug(launcher: Launcher, *arguments: str, **options: Any) -> Debugged:
    """`tracer gdb ARGUMENTS`, with both outputs."""
    run = launcher.run(
        [str(launcher.tracer), "gdb", "--force", "-o", "stops.md", "-o", "stops.jsonl", *arguments], **options
    )
    markdown, lines = launcher.folder / "stops.md", launcher.folder / "stops.jsonl"
    return Debugged(
        run,
        markdown.read_text() if markdown.exists() else "",
        [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else [],
    )
