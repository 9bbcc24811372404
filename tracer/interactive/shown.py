"""Texts and tables that look right in a REPL and in a notebook."""

from __future__ import annotations

import html
from typing import Any

import polars as pl

_HEIGHT = 720  # pixels of the page in a cell


class Text(str):
    """Lines of fixed width."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f'<pre style="overflow-x:auto;white-space:pre">{html.escape(self)}</pre>'


class Markdown(str):
    """A report."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_markdown_(self) -> str:
        return str(self)


class Page(str):
    """An HTML page, in a frame of its own."""

    def __repr__(self) -> str:
        return f"<Page: {len(self):,} characters; write them to a file, or show it in a notebook>"

    def _repr_html_(self) -> str:
        page = html.escape(self)
        return f'<iframe srcdoc="{page}" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'


class Table(pl.DataFrame):
    """A polars table that is shown as `text`; a table that is made of it is polars' own."""

    text: Text | None = None

    @classmethod
    def of(cls, table: pl.DataFrame, text: str) -> Table:
        made = cls(table)
        made.text = Text(text)
        return made

    def __str__(self) -> str:  # polars' repr is that
        return super().__str__() if self.text is None else str(self.text)

    def _repr_html_(self, **how: Any) -> str:
        return super()._repr_html_(**how) if self.text is None else self.text._repr_html_()
