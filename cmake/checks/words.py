"""Finds retired words in the texts that a user meets: pages, and the string literals of the code.

`python cmake/checks/words.py [FILE ...]`: without files, all of the repository but those in NOT_YET_CLEAN.
A file that is named is checked in any case. Exit status 1: a retired word was found.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
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
CODE = ("tracer/**/*.py", "tracer/**/*.yml", "gdb/**/*.py", "csrc/**/*.h", "csrc/**/*.cpp")
NEVER = {"docs/decisions.md"}  # a diary, not rewritten
NOT_YET_CLEAN: tuple[str, ...] = ()

# A comment, a raw string, a string or a character: a comment may hold a quote, and a string may hold "//".
_CXX = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\((?P<raw>.*?)\)(?P=d)"|"(?P<s>(?:\\.|[^"\\\n])*)"|\'(?:\\.|[^\'\\\n])+\'',
    re.S,
)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what a user may read of this file."""
    source = path.read_text()
    if path.suffix == ".py":
        yield from _literals(ast.parse(source), with_help=path.parent.name == "cli")
    elif path.suffix in (".h", ".cpp"):
        for match in _CXX.finditer(source):
            text = match["raw"] if match["s"] is None else match["s"]
            if text:
                yield source.count("\n", 0, match.start()) + 1, text
    else:
        yield 1, source


def _literals(tree: ast.Module, with_help: bool) -> Iterator[tuple[int, str]]:
    """String literals but docstrings, which are comments; `with_help`: a function's is a command's help."""
    commented = (ast.Module, ast.ClassDef) if with_help else (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = (node for node in ast.walk(tree) if isinstance(node, commented))
    comments = {id(line.value) for node in nodes for line in node.body if isinstance(line, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in comments:
            yield node.lineno, node.value


def found(path: Path) -> list[tuple[int, str]]:
    """Line and word of each retired word."""
    hits = []
    for line, text in texts(path):
        for match in _FOUND.finditer(text):
            hits.append((line + text.count("\n", 0, match.start()), " ".join(match[0].split())))
    return hits


def files() -> list[str]:
    paths = (path for pattern in (*PAGES, *CODE) for path in ROOT.glob(pattern) if path.is_file())
    return sorted({path.relative_to(ROOT).as_posix() for path in paths} - NEVER)


def main() -> int:
    named = sys.argv[1:]
    bad = 0
    for name in named or [name for name in files() if name not in NOT_YET_CLEAN]:
        for line, word in found(Path(name) if named else ROOT / name):
            print(f"{name}:{line}: retired word: {word}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
