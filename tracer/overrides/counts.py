"""Counts of the calls that an override computed, and of those that it handed over, with the reasons."""

from __future__ import annotations

from collections.abc import Iterable

from tracer.base.locks import counting
from tracer.base.say import say

Ran = dict[str, int]
"""operator -> calls that the override computed"""
HandedOver = dict[str, dict[str, int]]
"""operator -> reason -> calls that stock computed"""

_REASONS = 64
"""The most distinct reasons that are counted; all further ones count as one"""
_OTHER = "another reason"
BY_ITSELF = "called by the override itself"
"""The reason for calls that its own function makes; these print no line"""


class Counts:
    """How often one override ran at one operator, and what it handed over."""

    def __init__(self) -> None:
        self.ran = 0
        self.handed_over: dict[str, int] = {}

    def add(self) -> None:
        with counting:
            self.ran += 1

    def hand_over(self, reason: str) -> tuple[str, bool]:
        """Returns the reason that it is counted under, and whether that is new."""
        with counting:
            is_new = reason not in self.handed_over
            if is_new and len(self.handed_over) >= _REASONS:
                reason, is_new = _OTHER, _OTHER not in self.handed_over
            self.handed_over[reason] = self.handed_over.get(reason, 0) + 1
        return reason, is_new

    def reset(self) -> None:
        with counting:
            self.ran = 0
            self.handed_over = {}


_said: set[tuple[str, str, str]] = set()


def say_handed_over(name: str, operator: str, reasons: Iterable[str]) -> None:
    """Prints each reason on stderr, once per process."""
    for reason in reasons:
        if reason != BY_ITSELF and (name, operator, reason) not in _said:
            _said.add((name, operator, reason))
            say(f"override {name} handed {operator} over to stock: {reason}")
