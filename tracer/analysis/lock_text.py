"""A dispatch lock as text, to be reviewed and kept with the sources.

    tracer dispatch lock 1, torch 2.13.0
    # a comment
    train.py: loss = model(batch).sum()
      aten::sum [AutogradCPU] torch::autograd::VariableType::sum
        -> aten::sum [CPU] wrapper_CPU_sum

Lines without indentation are headings of sections; two spaces a level below them are chains. Blank lines and
lines that begin with # do not count.
"""

from __future__ import annotations

import os
import re

from tracer.analysis.chain import Link
from tracer.analysis.lock import Lock, Section
from tracer.base.boundary import open_regular

VERSION = 1
_MOST = 64 << 20  # characters; a line of a script takes some 200
_FIRST = re.compile(r"tracer dispatch lock (\d{1,9})(?:, torch (\S+))?$")
_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")
_ABOUT = """\
# The dispatch paths of each Python line: op [key] kernel function, library calls, families of GPU kernels.
# To check a run: tracer lock --check THIS_FILE run.trace
# To accept changes: tracer lock run.trace -o THIS_FILE --force
"""


class LockError(ValueError):
    """A text that is not a lock: the line, and what is wrong with it."""


def written(lock: Lock) -> str:
    """The text of a lock."""
    lines = [f"tracer dispatch lock {VERSION}" + (f", torch {lock.torch}" if lock.torch else "")]
    lines += _ABOUT.splitlines()
    for section in lock.sections.values():
        lines += ["", section.heading]
        for chain in section.chains:
            lines += [f"  {link.line}" for link in chain]
    return "\n".join(lines) + "\n"


def load(path: str | os.PathLike[str]) -> Lock:
    """The lock of a file. Raises LockError, OSError and UnicodeDecodeError."""
    with open(open_regular(path), encoding="utf-8") as file:
        text = file.read(_MOST + 1)
    if len(text) > _MOST:
        raise LockError(f"it is larger than {_MOST >> 20} MiB, which no lock is")
    return read(text)


def read(text: str) -> Lock:
    """The lock of a text, which may have been edited. Raises LockError."""
    lines = text.removeprefix("\ufeff").splitlines()
    top = next((number for number, line in enumerate(lines) if _counts(line)), 0)
    first = _FIRST.match(lines[top].rstrip()) if lines else None
    if first is None:
        raise LockError(f"line {top + 1}: not a dispatch lock; it begins with `tracer dispatch lock 1`")
    if int(first[1]) != VERSION:
        raise LockError(
            f"line {top + 1}: version {first[1]} of the format; this tracer reads version {VERSION}"
        )
    sections: dict[str, Section] = {}
    section: Section | None = None
    links: list[Link] = []  # of the chain that is read
    for number, line in enumerate(lines[top + 1 :], top + 2):
        line = line.rstrip()
        if not _counts(line):
            continue
        if line.startswith(_CONFLICT):
            raise LockError(f"line {number}: a merge conflict; resolve it, or write the lock again")
        level = _level(line, number)
        if level == 0:
            _finish(section, links)
            section = sections.setdefault(line, Section(line))
            continue
        if section is None:
            raise LockError(f"line {number}: a path without a heading; put its Python line above it")
        if level == 1:
            _finish(section, links)
        if level > (links[-1].level + 2 if links else 1):
            raise LockError(f"line {number}: indented too far; two spaces for each level")
        try:
            links.append(Link.read(level - 1, line.strip()))
        except ValueError as error:
            raise LockError(f"line {number}: {error}") from None
    _finish(section, links)
    return Lock(first[2], sections)


def _counts(line: str) -> bool:
    """Not blank, and not a comment."""
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _finish(section: Section | None, links: list[Link]) -> None:
    if section is not None and links:
        section.chains.append(tuple(links))
    links.clear()


def _level(line: str, number: int) -> int:
    indentation = line[: len(line) - len(line.lstrip())]
    if indentation.strip(" "):
        raise LockError(f"line {number}: indented by a tab; use two spaces for each level")
    if len(indentation) % 2:
        raise LockError(f"line {number}: indented by {len(indentation)} spaces; use two for each level")
    return len(indentation) // 2
