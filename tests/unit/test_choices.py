"""Options that take one of some values: help lists them, shells complete them, another value is one line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import typer
from typer.main import get_command
from typer.models import OptionInfo
from typer.testing import CliRunner, Result

from tracer.analysis.groups import GROUPS, SORTS
from tracer.cli.app import app
from tracer.cli.common import fail
from tracer.cli.completion import traces
from tracer.cli.replay import DTYPES, STRIDES
from tracer.report.sections import NAMED

COMMANDS = vars(get_command(app))["commands"]
LISTED = {
    "record --values": ("none", "hash", "scalars", "all"),
    "record --cuda": ("auto", "on", "off"),
    "record --driver": ("launches", "all", "none"),
    "record --queries": ("all", "torch"),
    "attach --values": ("none", "hash", "scalars", "all"),
    "attach --cuda": ("auto", "on", "off"),
    "attach --driver": ("launches", "all", "none"),
    "attach --queries": ("all", "torch"),
    "tree --sort": ("order", "time"),
    "top --by": tuple(GROUPS),
    "top --sort": SORTS,
    "watch --by": tuple(GROUPS),
    "watch --sort": SORTS,
    "report --only": ("cuda", "kernels"),
    "diff --by": ("line", "op", "module"),
    "fleet --engine": ("processes", "ray"),
    "replay --tf32": ("on", "off"),
    "replay --strides": STRIDES,
    "replay --dtype": DTYPES,
    "export --to": ("perfetto", "chrome", "parquet", "speedscope", "svg"),
    "export --by": ("line", "module"),
}
NEEDED = {"attach": ["1"], "diff": ["a.trace", "b.trace"], "record": ["x.py"]}


def tracer(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def completed(command: str, option: str, begun: str = "") -> list[str]:
    made = COMMANDS[command]
    context = made.make_context(command, [], resilient_parsing=True)
    part = next(part for part in made.params if option in (*part.opts, part.metavar))
    return [item.value for item in part.shell_complete(context, begun)]


@pytest.mark.parametrize("name", LISTED)
def test_help_lists_the_values_and_shells_complete_them(name: str) -> None:
    command, option = name.split()
    values = LISTED[name]
    assert f"{option} {'|'.join(values)}" in tracer(command, "--help-all").stdout
    assert completed(command, option) == list(values)
    assert completed(command, option, values[0][:2]) == [v for v in values if v.startswith(values[0][:2])]


@pytest.mark.parametrize("name", LISTED)
def test_another_value_is_one_line_that_lists_them(name: str) -> None:
    command, option = name.split()
    *most, last = LISTED[name]
    result = tracer(command, option, f"{last}z", *NEEDED.get(command, []))
    said = f"tracer: {option} {last}z: choose {', '.join(most)} or {last} (did you mean {last}?)\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", said)


def test_no_value_of_a_list_of_words_is_checked_elsewhere() -> None:
    """Each option whose help shows `a|b` is one of these: a new one is made by `one_of`, and listed here."""
    shown = {
        f"{command} {part.opts[0]}"
        for command, made in COMMANDS.items()
        for part in made.params
        if part.opts[0].startswith("--") and "|" in (part.metavar or "")
    }
    assert shown == LISTED.keys()


def test_sections_are_completed_and_checked_without_being_in_help() -> None:
    assert completed("report", "--section") == list(NAMED)
    result = tracer("report", "--section", "paths", "--section", "pats", "run.trace")
    assert result.exit_code == 2
    assert result.stderr.startswith("tracer: --section pats: choose ")
    assert result.stderr.endswith(" (did you mean paths?)\n")
    assert result.stderr.count("\n") == 1


def test_a_shell_gets_the_values() -> None:
    asked = {"_TRACER_COMPLETE": "complete_bash", "COMP_WORDS": "tracer record --values ", "COMP_CWORD": "3"}
    result = CliRunner().invoke(app, [], env=asked, prog_name="tracer")
    assert result.stdout.split() == ["none", "hash", "scalars", "all"]
    asked |= {"COMP_WORDS": "tracer compare ", "COMP_CWORD": "2"}
    assert CliRunner().invoke(app, [], env=asked, prog_name="tracer").stdout.split() == ["mm", "gru", "cat"]


TAKE_TRACES = {
    *(f"{name} FILE" for name in ("tree", "top", "steps", "memory", "watch", "report", "ledger", "advise")),
    *(f"{name} FILE" for name in ("lock", "replay", "certificate", "pack", "export")),
    *(
        "sql [FILE] QUERY",
        "diff BEFORE AFTER",
        "diff --before",
        "diff --after",
        "explain --from",
        "gdb --from",
    ),
}


def test_a_shell_gets_traces_wherever_a_trace_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("old.trace", "odd.trace.xz", "other.py", "run.trace")):
        Path(name).touch()
        os.utime(name, (number, number))
    for name in ("job", ".hidden"):
        Path(name).mkdir()
    Path("job/rank0.trace").touch()
    assert traces("") == ["run.trace", "odd.trace.xz", "old.trace", "job/"]
    assert traces("o") == ["odd.trace.xz", "old.trace"]
    assert traces("job/") == ["job/rank0.trace"]
    assert traces("nowhere/r") == []
    for place in TAKE_TRACES:
        command, part = place.split(" ", 1)
        assert completed(command, part, "ru") == ["run.trace"], place


def test_every_place_of_a_trace_is_one_of_these() -> None:
    """An argument or option that takes a file which is read is in the list above, or not a trace."""
    others = {"lock --check", "gdb --preload", "gdb --gdb", "gdb --python", "fleet PATH..."}
    named = {
        f"{command} {part.metavar if part.param_type_name == 'argument' else part.opts[0]}"
        for command, made in COMMANDS.items()
        for part in made.params
        if (part.metavar or "").split(" ")[0] in ("FILE", "[FILE]", "TRACE", "BEFORE", "PATH...")
        and part.opts[0] != "--output"
    }
    assert named - others == TAKE_TRACES


@pytest.mark.parametrize(
    ("words", "both"),
    [
        (["tree", "--ids", "--json"], "--ids or --json"),
        (["diff", "a.trace", "b.trace", "--json", "-o", "x.md"], "--json or --output"),
        (["ledger", "--json", "-o", "x.md"], "--json or --output"),
        (["replay", "--hop", "0", "--json", "--script", "x.py"], "--json or --script"),
        (["replay", "--hop", "0", "--json", "--ncu", "x"], "--json or --ncu"),
        (["compare", "mm", "--json", "-o", "x.md"], "--json or --output"),
        (["compare", "mm", "--json", "--details", "0"], "--json or --details"),
        (["compare", "mm", "--json", "--tune"], "--json or --tune"),
        (["ledger", "--line", "a.py:1", "--op", "mm"], "--line or --op"),
        (["ledger", "--step", "0", "--steps", "0-1"], "--step or --steps"),
        (["sql", "a.trace", ".schema", "--csv", "--json"], "--csv or --json"),
        (["attach", "1", "--seconds", "1", "--steps", "1"], "--seconds or --steps"),
    ],
)
def test_of_two_options_that_exclude_each_other_one_is_asked_for(words: list[str], both: str) -> None:
    result = tracer(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"tracer: give {both}, not both\n"


def test_nothing_is_said_on_stdout_if_stderr_is_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with pytest.raises(typer.Exit):
        fail("--cuda maybe: choose auto, on or off", 2)
    assert capsys.readouterr().out == ""


def test_an_option_whose_value_is_called_as_itself_says_its_name() -> None:
    """Typer 0.27 calls one without `--thread` in its declaration `--THREAD`, for its metavar."""
    unnamed = []
    for command in app.registered_commands:
        assert command.callback is not None
        for name, hint in get_type_hints(command.callback, include_extras=True).items():
            options = [each for each in get_args(hint)[1:] if isinstance(each, OptionInfo)]
            unnamed += [name for each in options if each.metavar == name.upper() and not named(each)]
    assert unnamed == []


def named(option: OptionInfo) -> bool:
    """In an annotation Typer keeps the first name as the default."""
    return isinstance(option.default, str) and option.default.startswith("-")
