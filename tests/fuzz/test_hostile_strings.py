"""Hostile strings in each place of a trace, through each command that reads traces: a part of `make fuzz`."""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import hostile_strings
import pytest
import typer
from calls import JOB, NOT_READING, TRACE, every_call, typed
from checks import VERBS, deed, faults_of, output_fault, own_folder, script_fault, watched
from every_text import FIELDS, WITHOUT, places
from hostile_strings import SCRIPTED, VALUES
from rank_traces import write_rank
from towers import towers
from typer.main import get_command
from typer.testing import CliRunner

from tracer.base.interpreter import bare_helper
from tracer.cli.app import app
from tracer.export.formats import FORMATS
from tracer.report.sections import NAMED
from tracer.trace.bytes import format as fmt
from tracer.trace.names.demangle import DEMANGLER

QUICK = random.Random(7).sample(VALUES, 16)
SLOW = ("report", "diff", "fleet", "explain", "replay")
WORDS = (".cache", ".direction", ".artifact", ".how", ".language", ".mode")
COMMANDS = vars(get_command(app))["commands"]


def faults(data: bytes, verbs: list[list[str]]) -> list[str]:
    # Where temporary files are: `report --html` writes beside the trace.
    with tempfile.TemporaryDirectory() as folder, own_folder():
        trace = Path(folder, "t.trace")
        trace.write_bytes(data)
        return list(faults_of(trace, verbs))


@pytest.mark.parametrize("number", range(len(QUICK)))
def test_a_value_everywhere(number: int) -> None:
    quick = [verb for verb in VERBS if verb[0] not in SLOW]
    verbs = random.Random(number).sample(quick, 2)
    assert faults(hostile_strings.everywhere(QUICK[number]), verbs) == []


def test_a_report_has_no_markup_of_a_word() -> None:
    """Texts that a table is made by: with all of them strange at once it would not be there."""
    words = [place for place in places(hostile_strings.base().data) if place.endswith(WORDS)]
    assert len(words) == len(WORDS)
    for word in words:
        data = hostile_strings.at(word, "<b>x\ufeff")
        assert faults(data, [["report", TRACE, "-o", "o.md", "--force"]]) == [], word


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_through_each_command(value: str) -> None:
    assert faults(hostile_strings.everywhere(value), list(VERBS)) == []


@pytest.mark.slow
def test_scripts_of_hostile_traces() -> None:
    verb = ["replay", TRACE, "--hop", "0", "--script", "o.py", "--force"]
    assert verb in VERBS
    found = [
        (where, value, fault)
        for where in SCRIPTED
        for value in VALUES
        for fault in faults(hostile_strings.at(where, value), [verb])
    ]
    assert found == []


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        (["true"], False),
        (bare_helper("print(1)"), False),
        ([*bare_helper(DEMANGLER), "_Z"], False),
        (bare_helper(DEMANGLER), True),
    ],
)
def test_programs_that_a_command_may_start(command: list[str], ours: bool) -> None:
    """Only one whose whole text is tracer's, whatever command needs it."""
    with watched() as seen:
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
    faults = [fault for event in seen if (fault := deed(event, ["top", TRACE], []))]
    assert bool(faults) != ours, faults


def test_the_same_case_by_its_number() -> None:
    assert [hostile_strings.case(3, number) for number in range(5)] == [
        hostile_strings.case(3, number) for number in range(5)
    ]


def test_each_command_is_called_or_said_why_not() -> None:
    called = {verb[0] for verb in every_call()}
    assert called.isdisjoint(NOT_READING)
    assert called | NOT_READING.keys() | {"explain", "replay"} == COMMANDS.keys()


def one_value_of_each_option() -> Iterable[list[str]]:
    calls = {(call[0], *(word for word in call if word.startswith("-"))): call for call in every_call()[::-1]}
    return reversed(calls.values())


def test_no_call_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    """Else what reads the trace would not be tried. `--hop 9` and the like are of traces with such hops."""
    alone = towers(3, modules=1).write(tmp_path / "t.trace")
    of_rank = write_rank(tmp_path / "0.trace", 0, host="node", boot="b5d5")
    refused = []
    with own_folder():
        for call in one_value_of_each_option():
            done = CliRunner().invoke(app, typed(call, of_rank if JOB in call else alone))
            if done.exit_code not in (0, 1):
                refused.append(call)
    depend = ("--hop", "--fail-over")
    assert [call for call in refused if not set(depend) & set(call)] == []


def test_each_exporter_and_section_is_called() -> None:
    words = {word for verb in every_call() for word in verb}
    assert set(FORMATS) <= words
    assert set(NAMED) <= words


def test_a_command_or_an_option_that_nobody_calls_fails() -> None:
    new = typer.Typer()

    @new.command()
    def reads(file: Path, how: int = 1) -> None: ...

    @new.command()
    def other(what: str) -> None: ...

    with pytest.raises(LookupError, match="how to call: reads --how; other what; other "):
        every_call(vars(get_command(new))["commands"])


def test_each_kind_of_definition_has_its_texts_changed() -> None:
    source = (Path(__file__).parents[2] / "csrc" / "trace" / "records.h").read_text()
    kinds = source.partition("enum Definition")[2].partition("};")[0].count(" = ")
    assert sorted([*FIELDS, *WITHOUT, fmt.JSON, fmt.SIGNATURE]) == [*range(1, kinds + 1)]


GOOD = """\
import time
import torch

def tensor(size, stride, dtype, device="cpu", below=2):
    flat = torch.randn(3)
    return flat.to(device, dtype).as_strided(size, stride)

# aten::relu of x, recorded with torch 2
torch.manual_seed(1)
arguments = [
    tensor((4,), (1,), torch.float32),  # self
]
result = torch.ops.aten.relu.default(*arguments)
print(f"{time.perf_counter()}")
"""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (GOOD, ""),
        (GOOD + "import os", "has import os"),
        (GOOD + "from os import system", "has from os import system"),
        (GOOD + "__import__('os')", "calls __import__"),
        (GOOD + "print(open('x'))", "calls open"),
        (GOOD + "torch.ops.load_library('x')", "calls torch.ops.load_library"),
        (GOOD + "torch.ops.aten.from_file('x')", "calls torch.ops.aten.from_file"),
        (GOOD + "torch.load('x')", "calls torch.load"),
        (GOOD + "(lambda: 1)()", "calls (lambda: 1)()"),
        (GOOD + "torch.randn.__globals__['os'].system('x')", "calls torch.randn.__globals__"),
        (GOOD + "x = (", "no Python"),
        ("# coding=unicode_escape \\nimport os\\n#\n" + GOOD, "has import os"),
        ("import time\n# coding=utf_7 +AAo-import os\n" + GOOD, ""),
        ("\n# coding=utf_7 +AAo-import os\n" + GOOD, "has import os"),
        ("# coding=latin-1\n" + GOOD, "is in iso-8859-1"),
        ("# coding=nosuch\n" + GOOD, "no Python"),
    ],
)
def test_what_a_script_may_do(text: str, fault: str) -> None:
    found = script_fault(text.encode())
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("o.lock", "a\x1b[2J", "raw"),
        ("o.chrome", "{", "no JSON"),
        ("o.json", '{"a": NaN}', "no JSON"),
        ("o.json", "[]", "a JSON list"),
        ("o.md", "# INJECTED", "a heading"),
        ("o.html", "<script>1</script>", "scripts in a page"),
        ("o.html", "<img src=x>", "an image"),
    ],
)
def test_what_an_output_may_have(tmp_path: Path, name: str, text: str, fault: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert output_fault(path).startswith(fault)
