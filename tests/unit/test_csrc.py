"""Files of the extension are of a size that can be read at once, and no two have the same name."""

import re
from collections import Counter
from pathlib import Path

CSRC = Path(__file__).parents[2] / "csrc"
FILES = [file for file in CSRC.rglob("*") if file.is_file()]


def test_no_file_is_long() -> None:
    assert len(FILES) > 100
    assert [file.name for file in FILES if len(file.read_text().splitlines()) > 500] == []


def test_no_name_is_there_twice() -> None:
    assert [name for name, count in Counter(file.name for file in FILES).items() if count > 1] == []


def test_only_mapping_h_asks_the_kernel_for_memory() -> None:
    """What it returns is nullptr if the kernel refuses, and the compiler warns if nobody looks."""
    calls = re.compile(r"\b(mmap|mmap64|mremap|MAP_FAILED)\b")
    sources = [file for file in FILES if file.suffix in (".cpp", ".h", ".cu", ".cuh")]
    assert [file.name for file in sources if calls.search(file.read_text())] == ["mapping.h"]
