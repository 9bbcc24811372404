"""Every way to call what reads traces, out of the app's own tables: what is added later is tried too."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import bases  # noqa: F401 (so that helpers of tests/unit are found)
from rank_traces import write_rank
from typer.main import get_command

from tracer.cli.app import app
from tracer.export.formats import FORMATS
from tracer.report.sections import NAMED
from tracer.trace import Trace

TRACE = "TRACE"
"""In the place of the trace"""
OUTPUT = "o"
"""The begin of the names of outputs"""
COPY = f"{OUTPUT}.again.trace"
"""A second trace, since a comparison refuses the same file twice"""
JOB = f"{OUTPUT}.job"
"""A folder with the trace and a good one of another rank"""
OF_A_JOB: dict[str, tuple[list[str], ...]] = {
    "fleet": (["-o", f"{OUTPUT}.fleet"],),
    "report": ([], *(["-o", f"{OUTPUT}.{suffix}", "--force"] for suffix in ("html", "md"))),
    **{name: (["--rank", "0"], ["--rank", "1"]) for name in ("steps", "top", "tree")},
}
"""The commands that read such a folder, and with which options"""
NOT_READING = {
    "record": "runs a script",
    "attach": "records a process",
    "detach": "ends that",
    "doctor": "examines the machine",
    "compare": "runs kernels",
    "gdb": "runs the program again; --from is documented to do so",
}
NOT_TRIED = {
    "--help": "",
    "-h": "",
    "--force": "goes with each output",
    "--engine": "starts other programs",
    "-j": "how many processes",
    "--scratch": "a folder for copies",
    "--measure": "runs ops of the trace, as replay does, for two minutes",
    "--import": "imports what the user names",
    "--override": "runs the user's kernel",
    "--ncu": "needs a GPU; it writes the text of --script",
    "--tf32": "changes what torch computes",
    "--strides": "changes what torch computes",
    "--dtype": "changes what torch computes",
    "--pad": "changes what torch computes",
    "--to": "each format has calls of its own",
    "--before": "another spelling of the arguments",
    "--after": "another spelling of the arguments",
    "--rank": "goes with a job",
}
NEEDS_TORCH = ("explain", "replay")
PATTERNS = ("*", "aten::mm", "'; import os #")
OF_ARGUMENTS = {
    "file": [TRACE],
    "files": [TRACE, COPY],
    "paths": [TRACE],
    "operator": ["aten::mm"],
    "text": [],
    "given": [TRACE],
}
WRITES = ("--script",)
VALUES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("--op", "--key", "--source", "--module", "--exclude", "--line", "--path", "--case"), PATTERNS
    ),
    **dict.fromkeys(("--limit", "--paths", "--details", "--process"), ("0", "3")),
    **dict.fromkeys(("--rows", "--depth"), ("1", "3")),
    "--step": ("1",),
    "--steps": ("0-2",),
    "--min-time": ("1us",),
    "--thread": ("1000", "main"),
    "--section": tuple(NAMED),
    "--rule": ("optimizer",),
    "--peak-bandwidth": ("100",),
    "--peak-flops": ("100",),
    "--fail-over": ("10%",),
    "--job": ("job",),
    "--source-from": (".",),
    "--hop": ("1", "2", "9"),
    "--threads": ("1",),
    "--arg": ("dim=0", "x='; import os #"),
    "--from": (TRACE,),
    "--check": (f"{OUTPUT}.lock",),
    "--script": (f"{OUTPUT}.py",),
}
SUFFIXES = {"report": ("html", "md"), "diff": ("html", "md"), "export": ("svg",), "fleet": ("fleet",)}
"""Of the outputs of commands that write more than one kind of file, or another than text"""
BEGINS: dict[str, tuple[list[str], ...]] = {
    "explain": (["--from", TRACE], ["--from", TRACE, "--hop", "0"]),
    "replay": (["--hop", "0"],),
    "export": tuple(["--to", to, "-o", f"{OUTPUT}.{to}", "--force"] for to in ("svg", *FORMATS)),
    "fleet": (["-o", f"{OUTPUT}.fleet"],),
    "lock": (["-o", f"{OUTPUT}.lock", "--force"],),
    "pack": (["-o", f"{OUTPUT}.xz", "--force"],),
    "sql": tuple([f"select * from {field.name}"] for field in fields(Trace) if field.type == "pl.DataFrame"),
}
"""What a command has beside the trace; its options are tried with the first"""
BESIDE: dict[tuple[str, str], list[str]] = {
    ("watch", "--by"): ["--table"],
    ("watch", "--sort"): ["--table"],
    ("export", "--by"): ["--to", "speedscope", "-o", f"{OUTPUT}.speedscope", "--force"],
    ("ledger", "--path"): ["--op", "aten::mm"],
    ("lock", "--check"): [],
    ("lock", "--json"): ["--check", f"{OUTPUT}.lock"],
}
"""What an option is tried with in place of that, where it needs another option or refuses one"""
Commands = Mapping[str, Any]


def every_call(commands: Commands | None = None) -> list[list[str]]:
    """A call for each command that reads traces, and for each of its options and their values.

    Raises LookupError with the commands and options that nobody has said how to call.
    """
    calls: list[list[str]] = []
    unknown: list[str] = []
    for name, command in (commands or vars(get_command(app))["commands"]).items():
        if name in NOT_READING or (name in NEEDS_TORCH and not find_spec("torch")):
            continue
        arguments = [part.name for part in command.params if part.param_type_name == "argument"]
        unknown += [f"{name} {each}" for each in arguments if each not in OF_ARGUMENTS]
        given = [name, *(word for each in arguments for word in OF_ARGUMENTS.get(each, ()))]
        begins = [[*given, *more] for more in BEGINS.get(name, ([],))]
        if TRACE not in begins[0]:
            unknown.append(f"{name} (no argument is a trace)")
        calls += [*begins, *([name, JOB, *more] for more in OF_A_JOB.get(name, ()))]
        for option in command.params:
            if option.param_type_name == "option" and not NOT_TRIED.keys() & set(option.opts):
                found = _values(name, option, [each for part in command.params for each in part.opts])
                unknown += [f"{name} {option.opts[0]}"] * (found is None)
                beside = BESIDE.get((name, option.opts[0]))
                begin = begins[0] if beside is None else [*given, *beside]
                calls += [_with(begin, words) for words in found or ()]
    if unknown:
        raise LookupError(f"say in tests/fuzz/calls.py how to call: {'; '.join(unknown)}")
    return [list(call) for call in dict.fromkeys(map(tuple, calls))]


def typed(call: Sequence[str], trace: Path) -> list[str]:
    """The call with the names of files; makes the copy or the job, in the current folder."""
    if COPY in call:
        shutil.copyfile(trace, COPY)
    if JOB in call:
        # The host and the clock of the traces of every_kind.
        write_rank(Path(JOB, "r.rank1.trace"), 1, host="node", boot="b5d5")
        shutil.copyfile(trace, Path(JOB, "r.rank0.trace"))
    return [str(trace) if word == TRACE else word for word in call]


def _values(command: str, option: Any, every: list[str]) -> list[list[str]] | None:
    """The option with each of its values; None: they are not known. `every`: the options of the command."""
    if option.is_flag:
        return [[option.opts[0]]]
    if "-o" in option.opts:
        force = ["--force"] * ("--force" in every)
        return [["-o", f"{OUTPUT}.{suffix}", *force] for suffix in SUFFIXES.get(command, ("txt",))]
    choices = tuple(item.value for item in option.shell_complete(None, "")) or None
    known = next((VALUES[each] for each in option.opts if each in VALUES), choices)
    writes = ["--force"] * any(each in WRITES for each in option.opts)
    return None if known is None else [[option.opts[0], value, *writes] for value in known]


def _with(call: list[str], words: list[str]) -> list[str]:
    """The call with an option, once."""
    if words[0] in call:
        at = call.index(words[0])
        call = call[:at] + call[at + 2 :]
    return [*call, *(word for word in words if word != "--force" or word not in call)]
