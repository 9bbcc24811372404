"""Finds retired words in pages, and in the code: its texts, docstrings and comments.

`python cmake/checks/words.py [FILE ...]`: without files, all of the repository. Exit status 1: it found one.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

RETIRED = (
    r"stands?",
    r"stood",
    r"(?:is|are|be) told",
    r"told (?:from|apart)",
    r"of which",
    r"so many",
    r"alike",
    r"go(?:es)? by",
    r"what there is",
    r"where it can be done",
    r"is none of",
    r"with everything below",
    r"what is said of",
    r"the how many-th",
    r"what (?:is to gain|tells of)",
)
_FOUND = re.compile(r"\b(?:" + "|".join(word.replace(" ", r"\s+") for word in RETIRED) + r")\b", re.I)

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "examples/*.md",
    "docs/*.md",
    ".github/*",
)
CODE = (
    *("tracer/**/*.py", "tracer/**/*.yml", "gdb/**/*.py"),
    *("csrc/**/*.h", "csrc/**/*.cpp", "csrc/**/*.cu", "csrc/**/*.cuh"),
)
NEVER = {"docs/decisions.md"}  # a diary, not rewritten


def found(path: Path) -> list[tuple[int, str]]:
    """Line and word of each retired word."""
    hits = []
    text = path.read_text()
    for match in _FOUND.finditer(text):
        hits.append((1 + text.count("\n", 0, match.start()), " ".join(match[0].split())))
    return hits


def files() -> list[str]:
    paths = (path for pattern in (*PAGES, *CODE) for path in ROOT.glob(pattern) if path.is_file())
    return sorted({path.relative_to(ROOT).as_posix() for path in paths} - NEVER)


def main() -> int:
    named = sys.argv[1:]
    bad = 0
    for name in named or files():
        for line, word in found(Path(name) if named else ROOT / name):
            print(f"{name}:{line}: retired word: {word}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
