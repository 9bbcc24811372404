"""A kernel function that another one replaced."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.chain import Link

Place = tuple[str, str, str]
"""(op, key, kernel function)"""


@dataclass(frozen=True)
class KernelChange:
    op: str
    key: str
    before: str
    after: str

    def text(self, registered: str) -> str:
        """`registered`: where the second one is, e.g. main.cpp:12; "" if that is unknown."""
        where = f" ({registered})" if registered else ""
        return f"kernel of {self.op} [{self.key}] {self.before} -> {self.after}{where}"

    def side(self, number: int) -> Place:
        return (self.op, self.key, (self.before, self.after)[number])


def place_of(link: Link) -> Place:
    return (link.op, link.key, link.kernel)
