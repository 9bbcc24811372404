"""The package has one name for pip, everywhere. `tracer` on PyPI is another project."""

from __future__ import annotations

import re
from pathlib import Path

from tracer.base.package import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tracer", "gdb", "csrc", "docs", "examples", "benchmarks", "cmake", "reports", ".github")
OTHERS_PACKAGE = re.compile(r"pip3? (?:un)?install (?:-\S+ )*['\"]?tracer\b|(?<![\w-])tracer\[[a-z]+\]")


def texts() -> list[Path]:
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    kinds = {".md", ".py", ".sh", ".cmake", ".h", ".cpp", ".yml", ".toml", ".txt", ""}
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile", ROOT / "CMakeLists.txt", *below]
    return [
        path for path in pages if path.is_file() and path.suffix in kinds and "__pycache__" not in path.parts
    ]


def test_the_project_has_the_name_that_hints_use() -> None:
    assert f'\nname = "{DISTRIBUTION}"' in (ROOT / "pyproject.toml").read_text()


def test_no_file_tells_people_to_install_the_other_project() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts()
        for match in OTHERS_PACKAGE.finditer(path.read_text(errors="replace"))
    ]
    assert wrong == []


def test_the_pattern_finds_the_other_project_and_not_this_one() -> None:
    for wrong in ("pip install tracer", "pip install -U 'tracer[gallery]'", "the extra tracer[perfetto]"):
        assert OTHERS_PACKAGE.search(wrong)
    for right in (
        "pip install 'dispatch-tracer[gallery]'",
        "pip install --target tracer_folder",
        "tracer record",
    ):
        assert not OTHERS_PACKAGE.search(right)
