"""The list of commands in `tracer --help`: by what one wants to do."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from tracer.cli.spellings import renamed

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
    """Lists commands in groups, with their first sentence, and knows spellings of the version before."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            rows = [(name.ljust(width), _summary(self.commands[name])) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, *rest = args
        command, rest = renamed(name, rest)
        return super().resolve_command(ctx, [command, *rest])


def _summary(command: Any) -> str:
    """The first sentence of a command's help."""
    return " ".join((command.help or "").partition("\n\n")[0].split()).rstrip(".")
