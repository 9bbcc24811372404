"""Names as a reader may see them: a trace may hold any text as a name."""

from __future__ import annotations

import re

LONGEST = 1000
"""Characters of a name in a line of a tree or a table"""

# Control characters, and what Unicode calls format characters: they change the direction of what follows, or
# have no width.
_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]"
)


def printable(text: str) -> str:
    """`text` with `\\udcff` for half a surrogate pair, as a file name that is not UTF-8 has.

    That can be written into no file and no table.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def visible(text: str, longest: int | None = None) -> str:
    """`text` in one line, with escapes such as `\\x1b` and `\\u202e` for what a terminal would obey or hide.

    What is longer than `longest` is cut.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}... ({len(text):,} characters)"
    return _HIDDEN.sub(_escape, text)


def visible_lines(text: str, longest: int | None = None) -> str:
    """The same of a text of several lines: of another process, or of a table."""
    return "\n".join(visible(line, longest) for line in text.split("\n"))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
