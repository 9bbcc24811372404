"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """`name`: what was checked. A problem prevents recording, a note something else. `advice`: what to do."""

    state: State
    name: str
    text: str
    advice: str = ""
