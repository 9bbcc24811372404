"""docs/tutorial.md: its programs and commands run in the order of the page, and print what the page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/tutorial.md"
# A file that the text before it names, a program without a name, or commands with their output.
FILE = re.compile(r"Write `(\S+)`:\n\n```python\n(.*?)```", re.S)
PROGRAM = re.compile(r"(?<!`:\n)\n```python\n(.*?)```", re.S)
TIME = re.compile(
    r"\d[\d,.]* (?:ns|us|ms|s|%|KiB)(?!\w)|(?<=self )[\d.]+|\d\.\d\d(?= |$)|\(\d\.\d\d to \d\.\d\d\)"
)


def commands(page: str) -> list[tuple[str, list[str]]]:
    """Each command of the page, and the lines that it prints there."""
    found: list[tuple[str, list[str]]] = []
    for line in re.sub(r"```python\n.*?```", "", page, flags=re.S).splitlines():
        if line.startswith("    $ "):
            found.append((line.removeprefix("    $ "), []))
        elif line.startswith("    "):
            found[-1][1].append(line)
    return found


def comparable(text: str, folder: Path) -> list[str]:
    """Its lines without times, sizes, this folder, and the width of columns."""
    lines = text.replace(f"{folder}/", "").splitlines()
    return [re.sub(r"[\s-]+", " ", TIME.sub("#", line)).strip() for line in lines]


def missing(expected: list[str], printed: list[str]) -> list[str]:
    """Lines that were not printed in this order. "..." stands for any."""
    left = iter(printed)
    return [line for line in expected if line != "..." and not any(line == other for other in left)]


def follow(page: str, folder: Path) -> int:
    """Write the programs of the page and run its commands, which print what it shows. Return how many."""
    for name, program in FILE.findall(page):
        (folder / name).write_text(program)
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"}
    terminal = commands(page)
    for command, lines in terminal:
        result = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        printed = comparable(result.stderr + result.stdout, folder)
        assert (command, result.returncode) == (command, 0), result.stderr
        assert (command, missing(comparable("\n".join(lines), folder), printed)) == (command, []), printed
    return len(terminal)


@pytest.mark.promise("record", "tree", "docs/tutorial.md#1-a-matrix-product", "docs/tree.md")
def test_the_first_part_does_what_it_says(tmp_path: Path):
    first, _, others = PAGE.read_text().partition("\n## 2. ")
    assert others
    assert follow(first, tmp_path) == 3


@pytest.mark.slow
@pytest.mark.gdb
def test_the_tutorial_does_what_it_says(tmp_path: Path):
    page = PAGE.read_text()
    assert follow(page, tmp_path) == 14
    last = PROGRAM.findall(page)[-1]
    output = subprocess.run(
        [sys.executable, "-c", last], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert "[128, 64]" in output
    assert "[0, 0]" in output


def test_what_is_compared():
    assert missing(["a", "...", "c"], ["a", "b", "c"]) == []
    assert missing(["a", "c", "b"], ["a", "b", "c"]) == ["b"]
    here = Path("/folder")
    assert comparable("a [CPU] (/folder/k.py:5) 3 x 1.2 us (self 0.9)", here) == [
        "a [CPU] (k.py:5) 3 x # (self #)"
    ]
    assert comparable("1 |  16.0 us | 0.55 (0.54 to 0.56) | 57 % -> 31 %", here) == ["1 | # | # # | # > #"]
