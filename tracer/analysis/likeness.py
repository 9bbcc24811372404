"""How similar two texts of source lines are: the line was edited, or it is another one."""

from __future__ import annotations

from difflib import SequenceMatcher

EDITED = 0.6
"""Of the characters of both, how many at least are the same in a line that was edited"""
_LONGEST = 300
_MOST_WORK, _A_PAIR = 30_000_000, 64
"""Pairs of characters that may be compared, about 3 s; what a pair of texts takes besides"""


class Likeness:
    """Compares texts until its work is used up: from then on only equal ones are similar.

    A file that was written anew has no edited lines; to compare each of n lines with n others takes n * n.
    """

    def __init__(self) -> None:
        self._left = _MOST_WORK

    def may(self, work: int) -> bool:
        """Whether there is so much left, which is then taken away."""
        self._left -= min(work, self._left + 1)
        return self._left >= 0

    @property
    def spent(self) -> bool:
        return self._left < 0

    def of(self, one: str, other: str) -> float:
        """From 0, no character in common, to 1, equal; of long texts what they begin with decides."""
        if one == other:
            return 1.0
        one, other = one[:_LONGEST], other[:_LONGEST]
        if not self.may(_A_PAIR + len(one) + len(other)):
            return 0.0
        texts = SequenceMatcher(None, one, other, autojunk=False)
        if texts.real_quick_ratio() < EDITED or texts.quick_ratio() < EDITED:  # bounds from above
            return 0.0
        return texts.ratio() if self.may(len(one) * len(other)) else 0.0
