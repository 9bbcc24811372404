"""The `tracer` command. Verbs import what they need when they run, so that help is quick."""

from __future__ import annotations

import os
import sys
from copy import copy
from typing import Annotated

import typer

from tracer.base.package import VERSION
from tracer.cli import compare, gdb, pager
from tracer.cli.advise import advise
from tracer.cli.attach import attach
from tracer.cli.certificate import certificate
from tracer.cli.common import open_closed_streams, say
from tracer.cli.detach import detach
from tracer.cli.diff import diff
from tracer.cli.doctor import doctor
from tracer.cli.explain import explain
from tracer.cli.export import export
from tracer.cli.fleet import fleet
from tracer.cli.groups import GROUPS, Grouped
from tracer.cli.help import Command
from tracer.cli.ledger import ledger
from tracer.cli.lock import lock
from tracer.cli.memory import memory
from tracer.cli.pack import pack
from tracer.cli.record import CONTEXT, record
from tracer.cli.replay import replay
from tracer.cli.report import report
from tracer.cli.several import TakesSeveral
from tracer.cli.spellings import renamed
from tracer.cli.sql import sql
from tracer.cli.steps import steps
from tracer.cli.top import top
from tracer.cli.tree import tree
from tracer.cli.watch import watch
from tracer.recording.startup import forget_the_switch

app = typer.Typer(
    name="tracer",
    cls=Grouped,
    help="Records every PyTorch dispatcher hop of a script and shows what really ran.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=Command, context_settings=CONTEXT)(record)
app.command(cls=Command)(attach)
app.command(cls=Command)(detach)
app.command(cls=Command)(tree)
app.command(cls=Command)(top)
app.command(cls=Command)(steps)
app.command(cls=Command)(memory)
app.command(cls=Command)(watch)
app.command(cls=Command)(report)
app.command(cls=TakesSeveral)(diff)
app.command(cls=Command)(fleet)
app.command(cls=Command)(ledger)
app.command(cls=Command)(advise)
app.command(cls=Command)(lock)
app.command(cls=Command)(replay)
app.command(cls=Command)(sql)
app.command(cls=Command)(certificate)
app.command(cls=Command)(pack)
app.command(cls=Command)(explain)
app.command(cls=Command)(doctor)
app.command(cls=Command)(export)
app.command(cls=Command, context_settings=compare.CONTEXT)(compare.compare)
app.command(cls=Command, context_settings=gdb.CONTEXT)(gdb.gdb)


_READ_TABLES = {*GROUPS["Look"], *GROUPS["Compare runs"], *GROUPS["Jobs"], "export"}
"""Commands that run no program of the user's"""
_TRACEBACK, _LONGEST_WHY = "TRACER_TRACEBACK", 200
_GIVE_BACK = "dirty_decay_ms:0,muzzy_decay_ms:0"


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show tracer's version.", is_eager=True)] = False,
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Print long tables without a pager.")] = False,
) -> None:
    pager.allow(not no_pager)
    if version:
        typer.echo(f"tracer {VERSION}")
        raise typer.Exit
    if context.invoked_subcommand in _READ_TABLES:  # polars' allocator keeps what was freed for ever
        os.environ.setdefault("_RJEM_MALLOC_CONF", _GIVE_BACK)


def main() -> None:
    """Run the command line.

    Exit status: 0 done; 1 it failed on the way, or the answer is no (nothing matches, the trace is not
    complete, recording does not work here); 2 it did not begin, because an option, a file or the
    installation is wrong. Under `tracer record`, once the script runs, the script's own.
    """
    forget_the_switch()
    first = 1 + (sys.argv[1:2] == ["--no-pager"])
    command, *rest = sys.argv[first:] or [""]
    if command != "record":  # its script has them as they are
        open_closed_streams()
    now, rest = renamed(command, rest)
    if now != command:
        sys.argv[first:] = [now, *rest]
    try:
        _app_of(now)(prog_name="tracer")
    except Exception as error:
        if now not in {*_READ_TABLES, "pack", "explain"} or os.environ.get(_TRACEBACK):
            raise
        why = " ".join(str(error).split())[:_LONGEST_WHY]
        say(
            f"{now} cannot show this: its trace is damaged, or tracer has a bug "
            f"({type(error).__name__}: {why}); {_TRACEBACK}=1 shows where"
        )
        sys.exit(1)


def _app_of(name: str) -> typer.Typer:
    """With that command alone, if it is one: making the options of all takes longer than a small trace."""
    found = [one for one in app.registered_commands if one.callback and one.callback.__name__ == name]
    alone = copy(app)
    alone.registered_commands = found
    return alone if found else app


if __name__ == "__main__":
    main()
