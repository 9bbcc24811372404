"""Overrides that were enabled and computed nothing."""

from __future__ import annotations

from typing import Any


def remarks_on(overrides: list[dict[str, Any]]) -> list[str]:
    """One sentence per override that was enabled and never computed a call."""
    return [
        f"override {one['name']} of {one['operator']} [{one['key']}] was enabled but never ran: "
        f"{one['never_ran']}"
        for one in overrides
        if one["never_ran"]
    ]
