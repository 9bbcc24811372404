"""The options that an interpreter was started with."""

from __future__ import annotations

from collections.abc import Sequence


def options(command: Sequence[str]) -> list[str]:
    """Those of `command`, a sys.orig_argv, before its script, -m or -c: as they were given.

    What a variable such as PYTHONDONTWRITEBYTECODE sets is not among them: a child gets the variable too.
    """
    found: list[str] = []
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):
            found += [word, *([next(words, "")] if word == "--check-hash-based-pycs" else [])]
            continue
        for place, letter in enumerate(word[1:], 1):
            if letter in "cm":  # -Bm tracer
                return [*found, word[:place]] if place > 1 else found
            if letter in "WX":
                found += [word] if word[place + 1 :] else [word, next(words, "")]
                break
        else:
            found.append(word)
    return found
