"""Names as words of a command line, and as a part of a line."""

from __future__ import annotations


def quoted(name: str) -> str:
    """`name` as a word of a shell's command line."""
    # As shlex.quote, which a script might shadow and torch does not import.
    safe = all(character.isalnum() or character in "@%+=:,./-_" for character in name)
    return name if name and safe else "'" + name.replace("'", "'\"'\"'") + "'"


def one_line(text: str) -> str:
    """`text` with escapes such as `\\x1b` for what a terminal obeys or hides, and for ends of lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
