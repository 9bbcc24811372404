"""The checker of retired words finds them in what a user reads, and nowhere else."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake/checks"))
words = importlib.import_module("words")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("page.md", "one\nof\nwhich two\nit stood\n", [(2, "of which"), (4, "stood")]),
        ("page.md", "understand, standard, toldfrom, likewise", []),
        ("code.py", '"""It stands."""\nx = "it stands"  # it stood\n', [(2, "stands")]),
        (
            "code.py",
            'def f(a):\n    """It stands."""\n    raise ValueError(f"{a} is none of {a}")\n',
            [(3, "is none of")],
        ),
        ("cli/code.py", 'def verb():\n    """It stands."""\n', [(2, "stands")]),
        (
            "code.cpp",
            '// "it stands"\nauto q = \'"\'; /* it\nstood */ f("a // so many\\n");\n',
            [(3, "so many")],
        ),
        ("code.cpp", 'auto text = R"x(one\nare told)x";\n', [(2, "are told")]),
    ],
)
def test_retired_words_by_line(tmp_path: Path, name: str, text: str, expected: list) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert words.found(path) == expected


def test_every_file_of_the_allow_list_still_needs_it() -> None:
    assert [name for name in words.NOT_YET_CLEAN if not words.found(ROOT / name)] == []


def test_pages_and_code_are_looked_at() -> None:
    assert {"README.md", "docs/record.md", "tracer/cli/record.py"} <= set(words.files())
    assert "docs/decisions.md" not in words.files()
