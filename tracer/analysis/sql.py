"""SQL over the tables of a trace, by polars."""

from __future__ import annotations

import difflib
import re

import polars as pl
import polars.selectors as columns

_QUERY = re.compile(
    r"\s*(?:(?:--[^\n]*\n|/\*.*?\*/)\s*)*\(*\s*(select|with|values|from|show|explain)\b", re.I | re.S
)
_TABLE = re.compile(r"relation '([^']*)' was not found")
_COUNTING = ("generate_series", "range")
"""Table functions that open nothing"""
_COLUMN = re.compile(r'unable to find column "([^"]*)"(?:; valid columns: \[(.*)\])?', re.S)


class QueryError(Exception):
    """What is wrong with a query, in one line."""


def tables_of(trace: object) -> dict[str, pl.DataFrame]:
    """The tables of a trace by their names, in the order of its fields."""
    return {name: table for name, table in vars(trace).items() if isinstance(table, pl.DataFrame)}


def query(trace: object, text: str, *, allow_files: bool = False) -> pl.DataFrame:
    """The rows that a query selects; the texts of categories are strings.

    It reads the tables of the trace and, with `allow_files`, what polars' table functions open.
    Raises QueryError.
    """
    if not text.strip():
        raise QueryError("the query is empty; try: select op, count(*) from hops group by op")
    if not _QUERY.match(text):
        raise QueryError("only queries can be run; they begin with SELECT or WITH")
    tables = tables_of(trace)
    context = pl.SQLContext(
        {
            name: table.lazy().with_columns(columns.by_dtype(pl.Categorical).cast(pl.String))
            for name, table in tables.items()
        }
    )
    try:
        if not allow_files:
            _refuse_table_functions(context, text)
        return context.execute(text).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise QueryError(_one_line(str(error), tables)) from None


def _refuse_table_functions(context: pl.SQLContext[pl.LazyFrame], text: str) -> None:
    """Raises QueryError: each of them opens a file or an address. Polars' own parser finds the names."""
    parser = getattr(context._ctxt, "table_identifiers", None)
    names = parser(text, False, False) if parser else re.findall(r"\w+", text)  # an old polars: every word
    for name in sorted(set(names) - set(context.tables())):
        if name.lower() not in _COUNTING and _is_table_function(name):
            raise QueryError(f"{name} opens a file or an address; to allow that: --allow-files")


def _is_table_function(name: str) -> bool:
    """Whether polars has such a function: called with nothing, it opens nothing."""
    quoted = name.replace('"', '""')
    try:
        pl.SQLContext().execute(f'select * from "{quoted}"()').collect()
    except pl.exceptions.PolarsError as error:
        return "not a supported table function" not in str(error)
    return True


def _one_line(said: str, tables: dict[str, pl.DataFrame]) -> str:
    if table := _TABLE.search(said):
        return f"no table {table[1]}{_near(table[1], list(tables))}; to see the tables: .schema"
    if column := _COLUMN.search(said):
        known = [name.strip(' "') for name in (column[2] or "").split(",")]
        return f"no column {column[1]}{_near(column[1], known)}; to see the columns: .schema"
    return said.splitlines()[0].removeprefix("sql parser error: ")


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""
