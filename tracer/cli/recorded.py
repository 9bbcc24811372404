"""What the commands share that begin a recording: their options, and where the trace goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar

import typer

from tracer.base.errors import RecordingError
from tracer.cli.common import one_of
from tracer.cli.help import MORE
from tracer.recording import naming
from tracer.recording.options import Option, options_of
from tracer.recording.ranks import restarts

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
    said.rich_help_panel = MORE if option.rare else None
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, said])


def reserved(output: str | None, stem: str, force: bool) -> dict[str, Any]:
    """Where a trace goes, as a request says it: the file is made. Raises RecordingError.

    Without an output, or in a folder, its name is numbered.
    """
    if output == "":
        raise RecordingError("the output is not a file name; give one with -o FILE")
    shown = output or ""
    path = naming.absolute(shown)
    if not shown or shown.endswith(os.sep):
        path = naming.reserve_numbered(path, stem)
        return {"path": path, "shown": shown + os.path.basename(path), "reserved": True, "force": False}
    if not force and restarts():  # the trace of the first start, of this rank, is there
        free = naming.reserve_free(path)
        named = os.path.join(os.path.dirname(shown), os.path.basename(free))
        return {"path": free, "shown": named, "reserved": True, "force": False}
    return {"path": path, "shown": shown, "reserved": naming.reserve_trace(shown, force), "force": force}
