"""`tracer sql`: queries over the tables of a trace."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.base.visible import visible, visible_lines
from tracer.cli.common import USAGE, analysing, chosen_trace, exclusive, fail, say, writing
from tracer.cli.completion import traces
from tracer.cli.documents import print_json
from tracer.cli.lines import print_cells

if TYPE_CHECKING:
    import polars as pl

SCHEMA = ".schema"
_WIDEST = 60
"""Characters of a cell"""
_ON_GPU = "record on a machine with a GPU, without --cuda off"
_RECORDED_BY = {
    "gpu_activities": _ON_GPU,
    "api_calls": _ON_GPU,
    "library_calls": _ON_GPU,
    "devices": _ON_GPU,
    "stacks": _ON_GPU,
    "memory": "tracer record --memory",
    "thread_keys": "tracer record --why",
    "key_sets": "tracer record --why",
    "python_stacks": "tracer record --stack N",
    "steps": "let the script call tracer.step(), step an optimizer, or call an nn.Module",
    "compiled_calls": "let the script call a function of torch.compile",
    "compiled_kernels": "let the script call a function of torch.compile",
    "compile_phases": "let the script compile a function with torch.compile",
    "module_calls": "let the script call an nn.Module",
    "imports": "let the script import a module after its first op",
    "ranges": "let the script use torch.profiler.record_function",
}


def sql(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[FILE] QUERY",
            help="A trace (default: the newest *.trace here), and a query. .schema: the tables and columns; "
            "-: a query from stdin.",
            autocompletion=traces,
        ),
    ],
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=0, help="Show at most N rows; 0: all.")
    ] = 100,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows as one JSON document.")] = False,
    allow_files: Annotated[
        bool,
        typer.Option("--allow-files", help="Let the query open files and addresses: read_csv, read_parquet."),
    ] = False,
) -> None:
    """Run an SQL query over the tables of a trace.

    The tables are those of tracer.load(FILE): hops, signatures, api_calls and more.
    Times are in nanoseconds since the recording began. The dialect is that of
    polars' SQL. docs/api.md answers ten questions that are often asked.

    \b
    Examples:
      tracer sql .schema
      tracer sql "select op, count(*) as n from hops group by op order by n desc"
      tracer sql run.trace "select * from steps" --csv > steps.csv
      tracer sql run.trace - < query.sql
    """
    exclusive(csv=as_csv, json=as_json)
    file, text = _file_and_query(given)
    if text == "-":
        text = sys.stdin.read()
    from tracer.analysis.sql import QueryError, query, tables_of

    with analysing(file) as trace:
        if text.strip() == SCHEMA:
            with writing():
                _show_schema(tables_of(trace), as_json=as_json)
            return
        try:
            found = query(trace, text, allow_files=allow_files)
        except QueryError as error:
            fail(str(error), USAGE)
        if found.is_empty():
            for why in _why_empty(text, tables_of(trace)):
                say(why)
    with writing(pages=not as_csv):
        if as_csv:
            print(visible_lines(_flat(found).write_csv()), end="")
        elif as_json:
            print_json({"rows": found.to_dicts()}, default=str)
        else:
            _show(found, rows)


def _file_and_query(given: list[str]) -> tuple[Path, str]:
    """The trace, by default the newest one here, and the query, which is the last word."""
    *files, text = given
    if len(files) > 1:
        fail(f"{text}: give one query, in quotation marks, after the trace", USAGE)
    if not files and (text.endswith((".trace", ".xz")) or Path(text).is_file()):
        fail(f'give a query for {text}, e.g. tracer sql {text} ".schema"', USAGE)
    return chosen_trace(Path(files[0]) if files else None), text


def _why_empty(text: str, tables: dict[str, pl.DataFrame]) -> list[str]:
    """What records the empty tables of a query."""
    words = set(re.findall(r"\w+", text.lower()))
    return [
        f"{name} is empty in this trace; to fill it: {how}"
        for name, how in _RECORDED_BY.items()
        if name in words and name in tables and tables[name].is_empty()
    ]


def _show_schema(tables: dict[str, pl.DataFrame], *, as_json: bool) -> None:
    described: dict[str, Any] = {
        name: {
            "rows": len(table),
            "columns": {column: _type(dtype) for column, dtype in table.schema.items()},
        }
        for name, table in tables.items()
    }
    if as_json:
        print_json(described)
        return
    for name, table in described.items():
        print(f"{name}: {table['rows']:,} row{'s' * (table['rows'] != 1)}")
        line = " "
        for column, dtype in table["columns"].items():
            word = f" {column} {dtype},"
            if len(line) + len(word) > 100:
                print(line)
                line = " "
            line += word
        print(line.rstrip(","))


def _type(dtype: Any) -> str:
    name = str(dtype).partition("(")[0]
    short = {"Categorical": "text", "String": "text", "Boolean": "bool"}
    return short.get(name, name.lower())


def _flat(table: pl.DataFrame) -> pl.DataFrame:
    """Lists and structs as JSON, which CSV has no form for."""
    import polars as pl

    nested = [
        name for name, dtype in table.schema.items() if isinstance(dtype, (pl.List, pl.Struct, pl.Array))
    ]
    return table.with_columns(
        pl.Series(
            name, [None if value is None else json.dumps(value) for value in table[name].to_list()], pl.String
        )
        for name in nested
    )


def _show(table: pl.DataFrame, rows: int) -> None:
    """A table, numbers to the right, long cells cut."""
    from tracer.report.text import count

    shown = table.head(rows) if rows else table
    titles = [f"{name}:" if dtype.is_numeric() else name for name, dtype in table.schema.items()]
    cells = [[visible(_cell(value), _WIDEST) for value in row] for row in shown.iter_rows()]
    print_cells(titles, cells, as_given=True)
    if len(shown) < len(table):
        print(f"{count(len(table) - len(shown), 'more row')}; to see all: --rows 0")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    return str(value)
