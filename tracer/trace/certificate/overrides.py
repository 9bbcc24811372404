"""Overrides that were on and computed nothing."""

from __future__ import annotations

from typing import Any


def remarks_on(overrides: list[dict[str, Any]]) -> list[str]:
    """A sentence for each that was on and never computed a call."""
    return [
        f"override {one['name']} of {one['operator']} [{one['key']}] was on and never ran: {one['never_ran']}"
        for one in overrides
        if one["never_ran"]
    ]
