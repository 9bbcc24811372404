"""Help that fits one screen. `--help-all` has the rest: options in MORE, and the text after a form feed."""

from __future__ import annotations

from copy import copy
from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperCommand

MORE = "more"
"""The `rich_help_panel` of an option that only `--help-all` shows"""
_WHOLE = "tracer.help_all"
_LEFT = 24
"""Columns of names; what is longer has a line of its own"""
_REST = "\f"


class Command(TyperCommand):
    """A command whose help is short: no types, no ranges, no default said twice."""

    _help_all: Any = None

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, with `--help-all`, a copy of `--help`, before that."""
        *params, shown = super().get_params(ctx)
        if self._help_all is None:
            self._help_all = copy(shown)
            self._help_all.name, self._help_all.opts = "help_all", ["--help-all"]
            self._help_all.callback, self._help_all.help = _show_all, "Show all of the help and exit."
            self._help_all.hidden = _REST not in (self.help or "") and not any(map(_is_rare, params))
        return [*params, self._help_all, shown]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [part for part in self.params if part.param_type_name == "argument"]
        return ["[OPTIONS]", *map(_usage, arguments)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        first, _, rest = cleandoc(self.help or "").partition(_REST)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{first.rstrip()}\n\n{rest.lstrip()}" if ctx.meta.get(_WHOLE) else first)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for part in self.get_params(ctx):
            if part.param_type_name == "argument":
                rows["Arguments"] += [(part.metavar, part.help)] if part.help else []
            elif not part.hidden and (ctx.meta.get(_WHOLE) or not _is_rare(part)):
                rows["Options"].append((_names(part), _text(part)))
        for title, shown in rows.items():
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown, col_max=_LEFT)


def _show_all(context: typer.Context, option: Any, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[_WHOLE] = True
        typer.echo(context.get_help(), color=context.color)
        context.exit()


def _is_rare(part: Any) -> bool:
    return getattr(part, "rich_help_panel", None) == MORE


def _usage(argument: Any) -> str:
    name = str(argument.metavar)
    return name if argument.required or "[" in name else f"[{name}]"


def _names(option: Any) -> str:
    """`-o, --output FILE`; of a flag the form that is not the default."""
    names = option.secondary_opts if option.secondary_opts and option.default else option.opts
    text = ", ".join(sorted(names, key=len))
    return f"{text} {option.metavar}" if option.metavar and not option.is_flag else text


def _text(option: Any) -> str:
    """The help, with the default, unless it is a flag's or in the help already."""
    said, default = option.help or "", option.default
    if option.is_flag or not option.show_default or default in (None, (), []) or "default" in said:
        return said
    return f"{said} [default: {default:g}]" if isinstance(default, float) else f"{said} [default: {default}]"
