"""What a stranger's folder, trace or ranks may hold, and no reader follows or crashes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest
import typer
from one_op import one_op
from rank_traces import write_rank
from synthetic import TraceWriter

from tracer.analysis.fleet.in_memory import merged_tables
from tracer.analysis.fleet.merge import merge
from tracer.analysis.job.collectives import groups_of
from tracer.analysis.job.folder import load_job
from tracer.analysis.job.messages import _numbers
from tracer.analysis.memory_use import memory_use
from tracer.base.folder import Folder
from tracer.cli.output import write_output
from tracer.cli.report import _beside
from tracer.export.output import new_file
from tracer.fleet.gather import gather
from tracer.fleet.parts import Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.overrides import measured
from tracer.report.documents import fleet_document
from tracer.report.fleet_page import fleet_page
from tracer.report.html.job import render_job
from tracer.report.job_page import job_page
from tracer.trace import load


def planted(folder: Path, name: str) -> Path:
    """The file that a link leads to, which is where `name` is written before it is whole."""
    victim = folder / "victim"
    victim.write_text("precious")
    (folder / f".{name}.{os.getpid()}").symlink_to(victim)
    return victim


def test_no_output_is_written_through_a_link(tmp_path: Path) -> None:
    names = ["report.html", "out.json", "ranks.parquet", "measured.json"]
    victims = [planted(tmp_path, name) for name in names]
    write_output(tmp_path / names[0], "report")
    with new_file(tmp_path / names[1]) as file:
        file.write(b"export")
    with Folder(tmp_path) as folder:
        folder.write(names[2], b"table")
    measured.write(tmp_path / names[3], measured.Measurements(measured.Key("H200", "2.13", "build"), {}))
    assert {victim.read_text() for victim in victims} == {"precious"}
    assert not any((tmp_path / name).is_symlink() for name in names)
    assert (tmp_path / names[0]).read_text() == "report"
    assert (tmp_path / names[1]).read_bytes() == b"export"
    assert (tmp_path / names[2]).read_bytes() == b"table"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "victim"])


@pytest.mark.parametrize(
    "group",
    ['["0"]', '{"0": 1}', "0", "null", "[" * 900 + "]" * 900, "[" * 90_000, r'"\ud800"'],
    ids=["list", "object", "number", "null", "nested", "deep", "surrogate"],
)
def test_the_group_of_a_call_is_a_text(group: str) -> None:
    values = [f'{{"process_group": {group}}}', '{"process_group": "0"}', '{"process_groups": "0"}']
    scalars = pl.DataFrame({"id": [1, 2, 3], "value": values}, {"id": pl.UInt64, "value": pl.String})
    assert groups_of(scalars).rows() == [(2, "0")]


@pytest.mark.parametrize("number", ["9" * 5000, str(1 << 64), "\u0661"])
def test_a_peer_that_is_no_number_is_not_known(number: str) -> None:
    rows = {"id": [1, 1, 2], "position": [1, 2, 1], "value": ["3", number, number]}
    assert sorted(_numbers(pl.DataFrame(rows)).rows()) == [(1, 3, None), (2, None, None)]


@pytest.mark.parametrize("start_ns", [1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_start_that_no_clock_reaches_is_not_known(start_ns: int, tmp_path: Path) -> None:
    trace = load(one_op(tmp_path / "a.trace", header={"start_ns": start_ns, "last_ns": start_ns}))
    assert trace.began_ns == 0


def test_of_more_devices_than_a_machine_has_those_with_most_blocks(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    lane = writer.lane()
    for device in range(200):
        lane.memory(0x1000 + device * 4096, 1 << 20, device=device)
    lane.memory(0x9000_0000, 1 << 20, device=199)
    uses = memory_use(load(writer.write(tmp_path / "a.trace")))
    assert len(uses) == 64
    assert uses[0].peak_bytes == 2 << 20


def test_a_folder_without_a_name_has_no_page_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        _beside(Path("/"))
    said = capsys.readouterr().err
    assert said == "tracer: / has no name for a page beside it; give one with -o OUT.html\n"


@pytest.mark.parametrize(
    "name", [b"\x1b]0;x\x07\xff.rank1.trace", b"caf\xe9/rank1.trace"], ids=["file", "folder"]
)
@pytest.mark.parametrize("content", [None, b"junk"], ids=["a rank", "no trace"])
def test_a_name_that_is_no_text_does_not_lose_the_job(
    tmp_path: Path, name: bytes, content: bytes | None
) -> None:
    named = Path(os.fsdecode(os.fsencode(tmp_path / "job") + b"/" + name))
    for rank in range(3):
        write_rank(named.parent / f"rank{rank}.trace", rank, 3)
    named.parent.joinpath("rank1.trace").rename(named)
    if content is not None:
        named.write_bytes(content)
    shown = os.fsencode(named).decode(errors="backslashreplace").replace("\\x", "\\udc")
    ranks = [0, 2, None] if content else [0, 1, 2]
    said: list[str] = []
    gathered = gather(Parts(tmp_path / "out"), find([str(named.parent)]), Processes(1), say=said.append)
    assert (gathered.read, list(gathered.errors)) == (len(ranks) - bool(content), [shown][: bool(content)])
    job = load_job(named.parent)
    folder = fleet_page(merge(Parts(tmp_path / "out").all()), 20)
    for tables in (merge(Parts(tmp_path / "out").all()), merged_tables(job, named.parent.name)):
        rows = tables["ranks"]
        assert rows["rank"].to_list() == ranks
        assert rows.filter(trace=shown).height == 1
    for page in (folder, job_page(job, named.parent.name, None), render_job(job, named.parent.name, None)):
        assert "\x1b" not in page
        assert page.encode()
    assert json.dumps(fleet_document(merged_tables(job, named.parent.name), 20)).isascii()
    assert gather(Parts(tmp_path / "out"), find([str(named.parent)]), Processes(1)).known == len(
        ranks
    ) - bool(content)
