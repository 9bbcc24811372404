"""Help: short, whole on request, nothing said twice."""

from __future__ import annotations

import re

import pytest
from test_choices import COMMANDS
from typer.testing import CliRunner

from tracer.cli.app import app
from tracer.cli.help import MORE

SCREEN = 40
NAMES = [name for name, command in COMMANDS.items() if not command.hidden]


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_a_screen_and_help_all_has_every_option(name: str) -> None:
    brief, whole = shown(name, "--help").splitlines(), shown(name, "--help-all").splitlines()
    assert len(brief) <= SCREEN
    assert max(map(len, brief + whole)) <= 80
    for part in COMMANDS[name].params:
        if part.param_type_name == "argument":
            continue
        named = {*part.opts, *part.secondary_opts}
        in_brief, in_whole = (any(named & _words(line) for line in text) for text in (brief, whole))
        assert in_whole, part.opts
        assert in_brief == (part.rich_help_panel != MORE), part.opts
    more = [line.strip() for line in brief if line.startswith("  --help-all")]
    assert len(more) == (brief != whole), "it is named where there is more"
    assert set(" ".join(brief).split()) <= set(" ".join(whole).split())


def _words(line: str) -> set[str]:
    """The names of the option that a line begins with."""
    names = re.match(r"  ((?:-[\w-]+(?:, )?)+)", line)
    return set(names[1].split(", ")) if names else set()


@pytest.mark.parametrize("name", NAMES)
def test_a_default_is_said_once_and_types_are_not(name: str) -> None:
    text = " ".join(shown(name, "--help-all").split())
    options = re.split(r" (?=--?[a-z]\w*)", text.partition(" Options: ")[2])
    assert [option for option in options if option.lower().count("default") > 1] == []
    assert re.findall(r"<(?:path|str|list|int)\b|\[required\]|x[<>]=|\[default: (?:-1|/)", text) == []


def test_a_default_that_is_no_flag_is_said() -> None:
    assert "0: all. [default: 200]" in shown("tree", "--help")
    assert "[default: auto]" in " ".join(shown("record", "--help").split())


def test_each_command_has_one_line() -> None:
    text = shown("--help")
    lines = [line for line in text.splitlines() if re.match(r"  [a-z]+ ", line)]
    assert [line.split()[0] for line in lines if line.split()[0] in NAMES] == sorted(
        NAMES, key=lambda name: text.index(f"\n  {name} ")
    )
    assert len(lines) == len(NAMES)
    assert not re.search(r"\.\.\.$|^ {10,}\S", text.partition("Record:")[2], flags=re.M)


def test_help_all_behind_a_script_is_the_scripts() -> None:
    context = COMMANDS["record"].make_context("record", ["train.py", "--help-all", "-h"])
    assert context.params["script"] == ["train.py", "--help-all", "-h"]
