"""The checker of retired words finds them in pages, texts and comments."""

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
        (
            "code.py",
            '"""It stands."""\nx = "so many"  # it stood\n',
            [(1, "stands"), (2, "so many"), (2, "stood")],
        ),
        ("code.cpp", '// it\n// is\n/* told\nfrom */ f("alike");\n', [(3, "told from"), (4, "alike")]),
    ],
)
def test_retired_words_by_line(tmp_path: Path, name: str, text: str, expected: list) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert words.found(path) == expected


def test_pages_and_code_are_looked_at() -> None:
    assert {"README.md", "docs/record.md", "tracer/cli/record.py"} <= set(words.files())
    assert "docs/decisions.md" not in words.files()
