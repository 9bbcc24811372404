"""Writes what the tracer that Python finds says of traces, one file a table, tree and report.

    PYTHONPATH=TREE python -P cmake/checks/figures.py FOLDER TRACE...

same_figures.py runs this on two commits and compares the folders.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import traceback
from dataclasses import fields
from pathlib import Path

import polars as pl

import tracer
from tracer.cli.app import app

# Of one command the first spelling that this tracer knows: `top` was an option of `tree`.
COMMANDS: dict[str, tuple[list[str], ...]] = {
    "certificate.json": (["certificate", "--json"],),
    "ledger": (["ledger"],),
    "ledger.json": (["ledger", "--json"],),
    "lock": (["lock"],),
    "memory": (["memory"], ["tree", "--memory"]),
    "report.html": (["report", "--html"],),
    "report.json": (["report", "--json"],),
    "report.md": (["report"],),
    "speedscope.json": (["export", "--to", "speedscope"],),
    "steps": (["steps"], ["tree", "--steps"]),
    "steps.json": (["steps", "--json"], ["tree", "--steps", "--json"]),
    "top": (["top"], ["tree", "--flat"]),
    "top.module": (["top", "--by", "module"], ["tree", "--flat", "--by", "module"]),
    "top.source": (["top", "--by", "source"], ["tree", "--flat", "--by", "source"]),
    "trace.json": (["export", "--to", "chrome"],),
    "tree": (["tree"],),
    "tree.json": (["tree", "--json"],),
}
WRITES = {"lock", "report.html", "report.md", "speedscope.json", "trace.json"}  # a file, with -o
NO_SUCH = ("No such command", "No such option")


def write_tables(trace: tracer.Trace, folder: Path) -> None:
    """A line a column: its name, type, values that are not null, and a hash of all of them."""
    for field in fields(trace):
        table = getattr(trace, field.name)
        if isinstance(table, pl.DataFrame):
            lines = [f"{len(table)} rows", *(_column(table[name]) for name in table.columns)]
            (folder / f"table.{field.name}").write_text("\n".join(lines) + "\n")


def _column(column: pl.Series) -> str:
    digest = hashlib.sha256(repr(column.to_list()).encode()).hexdigest()[:16]
    return f"{column.name}: {column.dtype.base_type()}, {column.count()} values, {digest}"


def run(arguments: list[str]) -> tuple[int, str]:
    """The exit status of a command, and what it printed."""
    out = io.StringIO()
    status = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            app(arguments, prog_name="tracer")
        except SystemExit as asked:
            status = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
        except Exception:
            traceback.print_exc()
            status = -1
    return status, out.getvalue()


def write_command(name: str, trace: Path, folder: Path) -> None:
    written = folder / name
    for spelling in COMMANDS[name]:
        output = ["-o", str(written), "--force"] if name in WRITES else []
        status, said = run([spelling[0], str(trace), *spelling[1:], *output])
        if not any(words in said for words in NO_SUCH):
            break
    if name in WRITES and status == 0:
        said = written.read_text() + said
    said = said.replace(str(folder), "FOLDER").replace(str(trace), trace.name)
    written.write_text(f"{said}exit status {status}\n")


def main() -> None:
    to = Path(sys.argv[1])
    os.environ |= {"COLUMNS": "200", "NO_COLOR": "1"}
    for trace in map(Path, sys.argv[2:]):
        folder = to / trace.name.partition(".")[0]
        folder.mkdir(parents=True, exist_ok=True)
        write_tables(tracer.load(str(trace)), folder)
        for name in COMMANDS:
            write_command(name, trace, folder)
        print(".", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
