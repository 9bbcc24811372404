"""`tracer memory` of a trace without blocks of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import one_hop
from typer.testing import CliRunner

from tracer.cli.app import app
from tracer.report.memory_tables import without_blocks


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
