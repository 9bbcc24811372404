"""How often something is in a step, in words."""

from __future__ import annotations


def often(number: float, noun: str) -> str:
    """`1 hop a step`, `1,234 hops a step`; `0.2 hops a step` of what few steps have."""
    said = f"{number:,.0f}" if number >= 1 else f"{number:.1g}"
    return f"{said} {noun}{'' if said == '1' else 's'} a step"
