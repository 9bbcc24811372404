"""How many examples a property test tries."""

from __future__ import annotations

from hypothesis import settings

_WHOLE = 100  # hypothesis's own number, of the profile that is loaded unless unit tests run alone


def examples(number: int = _WHOLE) -> settings:
    """`number` of them, or a part in a quick profile; without a limit of time: the machine may be busy."""
    return settings(max_examples=max(number * settings().max_examples // _WHOLE, 1), deadline=None)
