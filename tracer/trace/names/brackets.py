"""Brackets in the demangled names of C++ functions."""

from __future__ import annotations


def arguments(text: str, start: int) -> list[str]:
    """What the bracket that opens at `start` encloses, split at commas: `f<a<b, c>, d>` -> a<b, c>, d."""
    end = closing(text, start)
    found, begin, position = [], start + 1, start + 1
    while position < end:
        if text[position] in "<({[":
            position = closing(text, position)
        elif text[position] == ",":
            found.append(text[begin:position].strip())
            begin = position + 1
        position += 1
    found.append(text[begin:end].strip())
    return found


def closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` is closed; the end of the text if nowhere."""
    depth = 0
    for position in range(start, len(text)):
        character = text[position]
        if character in "<({[":
            depth += 1
        elif character in ">)}]" and text[position - 1] != "-":
            depth -= 1
            if depth == 0:
                return position
    return len(text)
