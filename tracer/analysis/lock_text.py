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

import re
from dataclasses import dataclass, field

from tracer.analysis.lock import DEEPEST, Lock, Node, Section, chain_lines

VERSION = 1
_FIRST = re.compile(r"tracer dispatch lock (\d+)(?:, torch (\S+))?$")
_COUNT = re.compile(r"(\d+)(?:\.\.(\d+))? x (.+)$")
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
            lines += chain_lines(chain, 1)
    return "\n".join(lines) + "\n"


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
    open_nodes: list[_Draft] = []
    for number, line in enumerate(lines[top + 1 :], top + 2):
        line = line.rstrip()
        if not _counts(line):
            continue
        if line.startswith(_CONFLICT):
            raise LockError(f"line {number}: a merge conflict; resolve it, or write the lock again")
        level = _level(line, number)
        if level == 0:
            _finish(section, open_nodes)
            section = sections.setdefault(line, Section(line))
            continue
        if section is None:
            raise LockError(f"line {number}: a path without a heading; put its Python line above it")
        if level > len(open_nodes) + 1:
            raise LockError(f"line {number}: indented too far; two spaces for each level")
        if level == 1:
            _finish(section, open_nodes)
        draft = _draft(line.strip(), number)
        del open_nodes[level - 1 :]
        if open_nodes:
            open_nodes[-1].below.append(draft)
        open_nodes.append(draft)
    _finish(section, open_nodes)
    return Lock(first[2], sections)


def _counts(line: str) -> bool:
    """Not blank, and not a comment."""
    return bool(line.strip()) and not line.lstrip().startswith("#")


@dataclass
class _Draft:
    text: str
    least: int
    most: int
    below: list[_Draft] = field(default_factory=list)

    def node(self) -> Node:
        return Node(self.text, tuple(draft.node() for draft in self.below), self.least, self.most)


def _finish(section: Section | None, open_nodes: list[_Draft]) -> None:
    if section is not None and open_nodes:
        section.chains.append(open_nodes[0].node())
    open_nodes.clear()


def _level(line: str, number: int) -> int:
    indentation = line[: len(line) - len(line.lstrip())]
    if indentation.strip(" "):
        raise LockError(f"line {number}: indented by a tab; use two spaces for each level")
    if len(indentation) % 2:
        raise LockError(f"line {number}: indented by {len(indentation)} spaces; use two for each level")
    if len(indentation) // 2 > DEEPEST:  # below the heading
        raise LockError(f"line {number}: more than {DEEPEST} levels; write the lock again")
    return len(indentation) // 2


def _draft(text: str, number: int) -> _Draft:
    counted = _COUNT.match(text)
    if counted is None:
        return _Draft(text, 1, 1)
    least, most = int(counted[1]), int(counted[2] or counted[1])
    if not 1 <= least <= most:
        raise LockError(f"line {number}: {counted[0].split(' x ')[0]} x: give 2 x or 2..4 x")
    return _Draft(counted[3], least, most)
