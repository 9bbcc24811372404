"""Options that take several values: `--before a b` is `--before a --before b`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tracer.cli.help import Command


class TakesSeveral(Command):
    """A command without arguments beside its options that may be given more than once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {
            name
            for parameter in self.params
            if getattr(parameter, "multiple", False)
            for name in parameter.opts
        }
        return super().parse_args(ctx, spread(args, names))


def spread(words: Sequence[str], options: Collection[str]) -> list[str]:
    """Repeats each of these options before every value that follows it, up to the next option.

    --before a b --json c  ->  --before a --before b --json c
    """
    found: list[str] = []
    option, values = "", 0
    for place, word in enumerate(words):
        if word == "--":
            return [*found, *words[place:]]
        name, equals, _ = word.partition("=")
        if word.startswith("-") and word != "-":
            option, values = (name if name in options else ""), int(bool(equals))
        elif option:
            found += [option] * (values > 0)
            values += 1
        found.append(word)
    return found
