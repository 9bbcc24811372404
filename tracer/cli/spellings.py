"""Spellings of the version before, which work once more and name the new one."""

from __future__ import annotations

from collections.abc import Sequence

from tracer.cli.common import say

_MOVED = {"--follow": "watch", "-f": "watch", "--steps": "steps", "--memory": "memory", "--flat": "top"}
"""Modes of `tracer tree` that are commands of their own; the first that is given decides"""
_SVG = "--svg"


def renamed(command: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """(command, arguments) as they are spelled now; a line on stderr says so where they were not.

    tree run.trace --flat --by op      top run.trace --by op
    tree run.trace --follow --flat     watch run.trace --table
    tree run.trace --svg mm.svg        export run.trace --to svg -o mm.svg
    """
    rest = list(arguments)
    if command != "tree":
        return command, rest
    for place, word in enumerate(rest):
        option, equals, value = word.partition("=")
        if option == _SVG:
            given = ["-o", value] if equals else ["-o"]
            rest[place : place + 1] = ["--to", "svg", *given]
            return _said("export", rest, "--svg OUT", "export --to svg -o OUT")
    for option, name in _MOVED.items():
        if option in rest:
            rest.remove(option)
            if name == "watch":
                rest = ["--table" if word == "--flat" else word for word in rest]
            return _said(name, rest, option, name)
    return command, rest


def _said(command: str, rest: list[str], old: str, new: str) -> tuple[str, list[str]]:
    say(f"tracer tree {old} is tracer {new} now")
    return command, rest
