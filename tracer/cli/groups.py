"""The list of commands in `tracer --help`: by what one wants to do."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

GROUPS = {
    "Record": ("record", "attach", "detach"),
    "Look": ("report", "tree", "top", "steps", "memory", "watch", "ledger", "advise", "certificate", "sql"),
    "Compare runs": ("diff", "lock"),
    "Kernels and dispatch": ("compare", "replay", "explain", "gdb"),
    "Jobs": ("fleet",),
    "Share": ("export", "pack"),
    "This machine": ("doctor",),
}


class Grouped(TyperGroup):
    """Lists commands in groups, with their first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            rows = [(name.ljust(width), _summary(self.commands[name])) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)


def _summary(command: Any) -> str:
    """The first sentence of a command's help."""
    return " ".join((command.help or "").partition("\n\n")[0].split()).rstrip(".")
