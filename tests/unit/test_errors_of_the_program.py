"""What takes an error for tracer's own, in a thread of the program, asks whether it is the program's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "tracer" / "recording"
BEFORE_THE_PROGRAM = {"startup.py"}
"""What it runs comes before any line of the program"""


def handlers() -> Iterator[tuple[str, ast.ExceptHandler]]:
    for file in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ExceptHandler) and ast.unparse(node.type or ast.Name("")) in (
                "Exception",
                "BaseException",
                "",
            ):
                yield str(file.relative_to(FOLDER)), node


def test_each_asks_or_raises() -> None:
    every = list(handlers())
    assert len(every) > 10
    swallow = [
        f"{file}:{node.lineno}"
        for file, node in every
        if file not in BEFORE_THE_PROGRAM and not any(isinstance(one, ast.Raise) for one in ast.walk(node))
    ]
    assert swallow == []
