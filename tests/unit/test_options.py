"""The table of recording options, and all that follows it: commands, `tracer.record` and the page."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest
from pages import DOCS
from typer.main import get_command
from typer.testing import CliRunner

from tracer.base.errors import RecordingError
from tracer.cli.app import app
from tracer.cli.recorded import reserved
from tracer.recording.options import TABLE, Option, Options, options_of
from tracer.trace.bytes import kept

PAGE = DOCS / "record.md"
COMMANDS = vars(get_command(app))["commands"]


def spelled(option: Option) -> list[str]:
    name = option.name.replace("_", "-")
    return [f"--{name}", *([f"--no-{name}"] if isinstance(option.default, bool) else [])]


def row(option: Option) -> str:
    """The line of the table in docs/record.md; `TRACER_UPDATE_GOLDEN=1` writes all of them."""
    names, default = spelled(option), option.default
    shown = [f"{names[0]} {option.metavar}".replace("|", r"\|")]
    if len(names) == 2:
        shown, default = [names[bool(default)]], None
    parts = [
        option.text.replace("*", r"\*"),
        f"Default: `{default}`." if default not in (None, ()) else "",
        option.more,
    ]
    return f"| {', '.join(f'`{name}`' for name in shown)} | {' '.join(filter(None, parts))} |"


def test_the_table_of_the_page_is_the_one_of_the_options() -> None:
    rows = [row(option) for option in options_of("record")]
    text = PAGE.read_text()
    begin = text.index("| `--no-shapes`")
    end = text.index("\n\n", begin)
    if os.environ.get("TRACER_UPDATE_GOLDEN"):
        PAGE.write_text(text[:begin] + "\n".join(rows) + text[end:])
    else:
        assert text[begin:end].splitlines() == rows


@pytest.mark.parametrize("command", ["record", "attach"])
def test_a_command_has_the_options_of_the_table(command: str) -> None:
    made = {part.name: part for part in COMMANDS[command].params}
    wanted = list(options_of(command))
    assert wanted
    assert [name for name in made if name in TABLE and made[name].default is not None] == [
        option.name for option in wanted if option.default not in (None, ())
    ]
    for option in wanted:
        part = made[option.name]
        assert [*part.opts, *part.secondary_opts] == spelled(option)
        assert part.help == option.text
        assert part.default == (option.default or (None if option.default == () else option.default))
        assert part.multiple == (option.default == ())
    wrong = CliRunner().invoke(app, [command, "--stack", "65", "1"])
    assert wrong.exit_code == 2
    assert "64" in wrong.stderr


def test_tracer_record_has_the_options_of_the_table() -> None:
    from tracer.recording.recording import record

    parts = inspect.signature(record).parameters
    wanted = {option.name: option.default for option in options_of("python")}
    assert {name: part.default for name, part in parts.items() if name not in ("path", "force")} == wanted
    fields = inspect.get_annotations(Options)
    for name in wanted.keys() - {"ops", "steps", "max_size"}:  # given otherwise than kept
        assert parts[name].annotation == fields[name]
    for option in options_of("python"):
        assert f"    {option.name:<13} {option.text[:30]}" in str(record.__doc__)


def test_tracer_record_gives_each_option_to_the_recording(tmp_path: Path) -> None:
    from tracer.recording.recording import record

    given = {
        option.name: option.choices[-1] if option.choices else not option.default
        for option in options_of("python")
        if option.choices or isinstance(option.default, bool)
    }
    given |= {
        "source": True,
        "stack": 3,
        "ops": ["aten::mm"],
        "steps": "3:6",
        "max_size": "64M",
        "max_dumps": 7,
    }
    options = record(tmp_path / "run.trace", **given)._options  # type: ignore[arg-type]
    made = {**given, "steps": (3, 6), "max_size": 64 << 20}
    assert options.document() == {**made, "override": []}
    assert Options.of(options.document()).document() == options.document()
    assert not (tmp_path / "run.trace").exists()


@pytest.mark.parametrize("option", [option for option in TABLE.values() if option.choices])
def test_a_choice_is_listed_and_checked(option: Option) -> None:
    *most, last = option.choices
    assert option.default in option.choices
    with pytest.raises(RecordingError, match=f"^{option.name}='nope': choose {', '.join(most)} or {last}$"):
        Options(**{option.name: "nope"})
    for command in ("record", "attach"):
        words = [command, f"--{option.name}", most[0] + "x", "4711"]
        result = CliRunner().invoke(app, words)
        said = f"--{option.name} {most[0]}x: choose {', '.join(most)} or {last} (did you mean {most[0]}?)"
        assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"tracer: {said}\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stack": 65}, "stack=65: give a number of lines from 1 to 64"),
        ({"stack": "4"}, "stack='4': give a number of lines"),
        ({"max_dumps": True}, "max_dumps=True: give a number from 1 to 1000, or 0 for all"),
        ({"ops": ["aten::mm", ""]}, "ops='': give a pattern of operator names"),
        ({"stack": 2, "source": False}, "--stack needs source lines"),
        ({"torch_frames": True}, "--torch-frames needs stacks"),
        ({"then_stop": True}, "then-stop needs a max-size"),
        ({"max_size": "8M"}, "max-size 8M is too small; give at least 16M"),
        ({"max_size": "3M", "then_stop": True}, "max-size 3M is too small; give at least 4M"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        Options(**given)


def test_the_ends_of_a_span_are_taken() -> None:
    for option in TABLE.values():
        for value in option.span[:2] if option.span else ():
            assert vars(Options(**{option.name: value}))[option.name] == value


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="no option stck"):
        Options(stck=4)


@pytest.mark.parametrize("option", TABLE.values(), ids=list(TABLE))
def test_a_redacted_trace_knows_each_option_and_keeps_its_choices(option: Option) -> None:
    stays = kept.DOCUMENTS["environment"]["options"]
    assert stays.keys() == TABLE.keys()
    for value in option.choices:
        assert stays[option.name](None, value) == value


def test_where_a_trace_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").mkdir()
    numbered = {"reserved": True, "force": False}
    there = {"path": str(tmp_path / "train.0001.trace"), "shown": "train.0001.trace"}
    assert reserved(None, "train", force=True) == there | numbered
    there = {"path": str(tmp_path / "job/train.0001.trace"), "shown": "job/train.0001.trace"}
    assert reserved("job/", "train", force=True) == there | numbered
    there = {"path": str(tmp_path / "x.trace"), "shown": "x.trace"}
    assert reserved("x.trace", "train", force=False) == there | {"reserved": True, "force": False}
    assert reserved("x.trace", "train", force=True) == there | {"reserved": False, "force": True}
    (tmp_path / "x.0002.trace").touch()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    with pytest.raises(RecordingError, match="already exists"):
        reserved("x.trace", "train", force=False)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    there = {"path": str(tmp_path / "x.0003.trace"), "shown": "x.0003.trace"}
    assert reserved("x.trace", "train", force=False) == there | numbered  # a rank of the job had died
    assert reserved("x.trace", "train", force=True)["shown"] == "x.trace"
    with pytest.raises(RecordingError, match="the output is not a file name; give one with -o FILE"):
        reserved("", "train", force=False)
