"""Words of a shell's command line."""

from __future__ import annotations


def quoted(name: str) -> str:
    """`name` as a word of a shell's command line."""
    # As shlex.quote, which a script might shadow and torch does not import.
    safe = all(character.isalnum() or character in "@%+=:,./-_" for character in name)
    return name if name and safe else "'" + name.replace("'", "'\"'\"'") + "'"
