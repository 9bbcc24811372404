"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """`name`: what was looked at. A problem stops recording, a note something else; `advice`: what to do."""

    state: State
    name: str
    text: str
    advice: str = ""
