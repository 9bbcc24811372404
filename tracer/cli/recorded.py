"""The options of what is recorded, which several commands take."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar

import typer

from tracer.cli.common import one_of
from tracer.recording.options import Option, options_of

Command = TypeVar("Command", bound=Callable[..., None])


def recording_options(who: str) -> Callable[[Command], Command]:
    """Gives a command, in the place of its `**given`, the options of the table that it takes."""

    def decorate(command: Command) -> Command:
        whole = signature(command, eval_str=True)
        own = [part for part in whole.parameters.values() if part.kind is not part.VAR_KEYWORD]
        made = [_parameter(option) for option in options_of(who)]
        command.__signature__ = whole.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
        return command

    return decorate


def _parameter(option: Option) -> Parameter:
    """The parameter that Typer makes the option of."""
    default, name = option.default, "--" + option.name.replace("_", "-")
    kind: Any = type(default)
    if default is None:
        kind = str | None
    elif default == ():
        default, kind = None, list[str] | None
    if kind is bool:
        said = typer.Option(f"{name}/--no-{name[2:]}", help=option.text)
    elif option.choices:
        said = one_of(name, option.choices, option.text)
    else:
        least, most, _ = option.span or (None, None, "")
        said = typer.Option(name, metavar=option.metavar, min=least, max=most, help=option.text)
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, said])
