"""`tracer memory` of a trace without blocks of memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from synthetic import one_hop
from typer.testing import CliRunner

from tracer.analysis.memory_use import MemoryUse
from tracer.cli.app import app
from tracer.report.memory_tables import lines_at_peak, without_blocks


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory": True}, "No block of memory was allocated or freed while tracer recorded."),
        ({"memory": False}, "Memory was not recorded. To see which lines use it: tracer record --memory"),
        (None, "Memory was not recorded."),
    ],
)
def test_why_there_is_no_memory_to_show(tmp_path: Path, options: dict[str, bool] | None, said: str) -> None:
    environment = {"options": options}
    assert without_blocks(environment).startswith(said)
    path = one_hop(environment=environment).write(tmp_path / "run.trace")
    run = CliRunner().invoke(app, ["memory", str(path)])
    assert run.exit_code == 1
    assert said in run.stderr


def test_the_line_that_holds_most_at_the_peak_may_be_that_of_no_first_row() -> None:
    """A reader who asked for the line took that of the first row, which is of a line and one op."""
    rows = [("a.py:14", 5 << 20), ("a.py:15", 4 << 20), ("a.py:15", 3 << 20), (None, 1 << 20), ("a.py:9", 0)]
    table = pl.DataFrame(rows, ["source", "peak_bytes"], orient="row")
    use = MemoryUse(0, "cpu", 13 << 20, 1, 0, 0, 0, 5, 0, table)

    def line(source: str | None) -> str:
        return source or "no Python line"

    said = "At the peak by line: a.py:15 7.0 MiB, a.py:14 5.0 MiB, no Python line 1.0 MiB."
    assert lines_at_peak(use, line) == said
    more = pl.concat([table, pl.DataFrame([("a.py:1", 1)], table.schema, orient="row")])
    assert lines_at_peak(replace(use, table=more), line) == said.replace("1.0 MiB.", "1.0 MiB, ...")
    assert lines_at_peak(replace(use, table=table.unique("source")), line) == ""
