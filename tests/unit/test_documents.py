"""Documents of `--json`: what they have, and that they agree with the text of the same command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from gpu_trace import PATH
from rank_traces import write_rank
from typer.main import get_command
from typer.testing import CliRunner

from tracer.report.chain import chain_nodes
from tracer.report.hot_paths import hottest_of
from tracer.report.reading import Reading
from tracer.trace import load

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
WITHOUT = {"record", "attach", "detach", "watch", "export", "pack", "gdb"}
"""Commands that record, or that write files"""


def document(*words: str) -> dict[str, Any]:
    from tracer.cli.app import app

    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_a_report_has_the_paths_that_its_text_has() -> None:
    found = document("report", str(PATH), "--paths", "4")
    paths = hottest_of(Reading(load(PATH), "gpu.trace", paths=4)).paths
    assert [path["op"] for path in found["paths"]] == [path.op for path in paths]
    assert [path["total_ns"] for path in found["paths"]] == [path.total_ns for path in paths]
    chains = [[(link["op"], link["key"]) for link in path["chain"]] for path in found["paths"]]
    assert chains == [[(node["op"], node["key"]) for node in chain_nodes(path.nodes)] for path in paths]
    assert [row["op"] for row in found["look"]] == [path.op for path in paths]
    assert found["paths_left_out"] > 0


@pytest.mark.parametrize(
    "others", [["--html"], ["-o", "report.md"], ["--only", "cuda"], ["--section", "ops"]]
)
def test_a_report_is_text_or_a_document(others: list[str]) -> None:
    from tracer.cli.app import app

    result = CliRunner().invoke(app, ["report", str(PATH), "--json", *others])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--json prints the hottest paths; remove" in result.stderr


def test_a_changed_path_is_in_the_document_of_a_lock(tmp_path: Path) -> None:
    from tracer.cli.app import app

    lock = tmp_path / "dispatch.lock"
    assert CliRunner().invoke(app, ["lock", str(PATH), "-o", str(lock)]).exit_code == 0
    assert document("lock", str(PATH), "--check", str(lock))["changes"] == []
    lock.write_text(lock.read_text().replace("[CUDA] wrapper_CUDA_addmm", "[CUDA] mine"))
    result = CliRunner().invoke(app, ["lock", str(PATH), "--check", str(lock), "--json"])
    found = json.loads(result.stdout)
    assert (result.exit_code, found["changes_left_out"]) == (1, 0)
    assert found["changes"]
    for change in found["changes"]:
        assert any("[CUDA] mine" in path["lock"] for path in change["paths"])
        assert any("[CUDA] wrapper_CUDA_addmm" in path["run"] for path in change["paths"])


def test_a_fleet_has_the_rows_of_its_tables(tmp_path: Path) -> None:
    for rank in range(3):
        write_rank(tmp_path / "job" / f"rank{rank}.trace", rank, 3, late=4_000 * (rank == 1))
    out = tmp_path / "out"
    found = document("fleet", str(tmp_path / "job"), "-o", str(out), "-j", "1", "--rows", "2")
    names = [
        *("ranks", "late", "outstanding", "mismatched", "unanswered"),
        *("messages", "stages", "collectives", "memory", "overlap", "ops", "kernels", "steps"),
    ]
    assert list(found) == [key for name in names for key in (name, f"{name}_left_out")]
    for name in names:
        table = pl.read_parquet(out / f"{name}.parquet", hive_partitioning=False)
        assert found[name] == table.head(2).to_dicts()
        assert found[f"{name}_left_out"] == max(0, len(table) - 2)
    assert (found["late"][0]["rank"], found["ranks_left_out"]) == (1, 1)


def test_each_command_that_reads_has_a_document_on_the_page() -> None:
    from tracer.cli.app import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    given = {
        name
        for name, command in commands.items()
        if any("--json" in option.opts for option in command.params)
    }
    assert given == commands.keys() - WITHOUT
    section = PAGE.read_text().partition("\n### JSON\n")[2].partition("\n### ")[0]
    assert set(re.findall(r"^\| `tracer (\w+)[^`]* --json`", section, re.MULTILINE)) == given
