"""Texts that look right in a REPL and in a notebook."""

from __future__ import annotations

import html


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
