"""The text of each Python line that a recording names, for its end: files change, and notebooks have none."""

from __future__ import annotations

import os
import stat
import sys
import tokenize
from collections.abc import Iterable

from tracer.base.interrupts import is_of_the_program

MOST_BYTES = 1 << 20
"""The most bytes of source lines that one process writes"""
_LONGEST_LINE = 300
_LONGEST_FILE = 16 << 20


def source_texts(lines: Iterable[tuple[str, int]], began: float) -> dict[str, dict[str, object]]:
    """{file: {"cell": "In[2]", "lines": {"3": text}}}; only a notebook's cell has "cell".

    `lines` are files and line numbers; `began` is when the recording did, in seconds since 1970. A file that
    was written after that may have another text than the program that runs, so it is left out.
    """
    numbers: dict[str, set[int]] = {}
    for file, number in lines:
        if number > 0:
            numbers.setdefault(file, set()).add(number)
    cells = _cells()
    left = MOST_BYTES
    texts: dict[str, dict[str, object]] = {}
    for file, wanted in sorted(numbers.items()):
        text = content(file, began)
        if not text:
            continue
        found = {str(n): text[n - 1].strip()[:_LONGEST_LINE] for n in sorted(wanted) if n <= len(text)}
        found = {number: text for number, text in found.items() if text}
        left -= len(file) + sum(len(text.encode("utf-8", "replace")) + 16 for text in found.values())
        if left < 0:
            break
        if found:
            texts[file] = {"lines": found, **({"cell": cells[file]} if file in cells else {})}
    return texts


def content(file: str, began: float) -> list[str]:
    """The lines of a file, or of code that only this process has, as linecache knows it; else none."""
    linecache = sys.modules.get("linecache")
    entry = getattr(linecache, "cache", {}).get(file)
    if isinstance(entry, tuple) and len(entry) == 4 and entry[1] is None:  # a cell, generated code
        return [line for line in entry[2] if isinstance(line, str)]
    if not os.path.isabs(file):
        return []
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_mtime > began or status.st_size > _LONGEST_FILE:
            return []
        with tokenize.open(file) as source:
            return source.readlines()
    except Exception as error:  # it is gone, is no text, or an audit hook refuses
        if is_of_the_program(error):
            raise
        return []


def _cells() -> dict[str, str]:
    """The name of each cell of a notebook, `In[2]`, by the file that its code pretends to be in."""
    try:
        shell = sys.modules["IPython"].get_ipython()
        return {file: f"In[{number}]" for file, number in shell.compile._filename_map.items()}
    except Exception as error:  # no notebook, or an IPython that keeps this elsewhere
        if is_of_the_program(error):
            raise
        return {}
