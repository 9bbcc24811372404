"""Spellings of `tracer tree` of the version before: which command they are now."""

from __future__ import annotations

import pytest
from typer.main import get_command

from tracer.cli.app import app
from tracer.cli.groups import GROUPS
from tracer.cli.spellings import renamed


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("tree run.trace --flat --by op", "top run.trace --by op"),
        ("tree --steps run.trace --json", "steps run.trace --json"),
        ("tree run.trace --memory", "memory run.trace"),
        ("tree -f run.trace", "watch run.trace"),
        ("tree run.trace --flat --follow --by op", "watch run.trace --table --by op"),
        (
            "tree run.trace --op mm --svg mm.svg --force",
            "export run.trace --op mm --to svg -o mm.svg --force",
        ),
        ("tree run.trace --svg=mm.svg", "export run.trace --to svg -o mm.svg"),
    ],
)
def test_the_old_spelling_works_and_names_the_new_one(
    before: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, rest = renamed(before.split()[0], before.split()[1:])
    assert [command, *rest] == now.split()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"is tracer {command}" in said


def test_what_is_spelled_as_now_stays(capsys: pytest.CaptureFixture[str]) -> None:
    assert renamed("tree", ["run.trace", "--op", "mm"]) == ("tree", ["run.trace", "--op", "mm"])
    assert renamed("record", ["--memory", "x.py"]) == ("record", ["--memory", "x.py"])
    assert capsys.readouterr().err == ""


def test_every_command_is_in_one_group() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(commands)


def test_a_tree_has_few_options() -> None:
    options = get_command(app).commands["tree"].params  # type: ignore[attr-defined]
    assert len(options) <= 18
