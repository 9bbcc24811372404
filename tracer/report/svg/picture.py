"""How pictures are written, and where a report puts them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

WIDTH = 920  # pixels: less than the page of GitHub
LETTER = 7.3  # of the monospaced font, at 12 pixels
_STYLE = (
    "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#24292f}"
    ".page{fill:#fff}.quiet{fill:#57606a}.line{stroke:#8c959f;fill:none}.grid{stroke:#d0d7de}"
    "@media (prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.quiet{fill:#9198a1}"
    ".line{stroke:#7d8590}.grid{stroke:#30363d}}"
)


@dataclass
class Pictures:
    """The pictures of one report, beside it: `run.roofline.svg` of `run.md`.

    stem   the file name of the report without its suffix
    made   the text of each, by file name
    """

    stem: str
    made: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, says: str, svg: str) -> str:
        """Keeps a picture, and returns what shows it in markdown. `says` is for those who do not see it."""
        name = f"{self.stem}.{kind}.svg"
        self.made[name] = svg
        return f"![{says}]({name.replace(' ', '%20')})"


def drawn(template: str, **values: object) -> str:
    """The SVG of a template beside this file. What the values contain is text, never SVG."""
    return _templates().from_string(_source(template)).render(style=_STYLE, **values)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, StrictUndefined  # takes longer to import than most reports to write

    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


@cache
def _source(template: str) -> str:
    return (files(__package__) / template).read_text(encoding="utf-8")
