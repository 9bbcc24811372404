"""Texts of lines as they are compared."""

from __future__ import annotations

import io
import tokenize


def without_comment(text: str) -> str:
    """A line of Python without the comment at its end."""
    if "#" not in text:
        return text
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                return text[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError):  # one line of several
        pass
    return text
