"""`tracer sql`: each query of docs/api.md, and what goes wrong."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher, Run
from stored import recorded_once

import tracer
from tracer.analysis.sql import QueryError, query
from tracer.trace import Trace

ROOT = Path(__file__).parents[2]
QUERIES = re.findall(
    r"^### ([^\n]*)\n(?:(?!^#).)*?```sql\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.M | re.S
)
SCRIPT = """\
import torch, torch.nn as nn
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def make(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    assert launcher.record("--memory", "-o", "run.trace", "script.py").status == 0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return recorded_once(tmp_path_factory.mktemp("sql"), make)


@pytest.fixture(scope="module")
def trace(recorded: Launcher) -> Trace:
    return tracer.load(recorded.folder / "run.trace")


@pytest.fixture(scope="module")
def gpu() -> Trace:
    return tracer.load(ROOT / "tests/data/gpu.trace.xz")


def sql(launcher: Launcher, text: str, *options: str, file: str = "run.trace") -> Run:
    return launcher.run([str(launcher.tracer), "sql", file, text, *options])


def answer(title: str, trace: Trace) -> pl.DataFrame:
    return query(trace, next(text for name, text in QUERIES if name == title))


def test_there_are_the_ten_questions() -> None:
    assert len(QUERIES) >= 10


@pytest.mark.promise("docs/api.md#sql-tracer-sql")
@pytest.mark.parametrize(("title", "text"), QUERIES)
def test_each_query_of_the_page_has_an_answer(title: str, text: str, trace: Trace, gpu: Trace) -> None:
    found = query(gpu if "GPU" in title else trace, text)
    assert len(found) > 0
    assert found.columns


def test_the_answers_are_right(trace: Trace, gpu: Trace) -> None:
    ops = answer("Which ops take most of the time?", trace)
    own = trace.hops.group_by("op").agg(pl.col("self_ns").sum()).sort("self_ns", descending=True)
    assert ops["op"][0] == own["op"][0]
    assert ops["self_ms"][0] == pytest.approx(own["self_ns"][0] / 1e6)
    steps = answer("How long is a step, and how much of it is in ops?", trace)
    assert steps["step"].to_list() == [0, 1, 2, 3]
    assert (steps["in_ops_ms"] < steps["step_ms"]).all()
    mm = answer("Which shapes did an op get?", trace)
    assert [8, 16] in mm["shape"].to_list()
    kernels = answer("Which kernels of the GPU take most of the time, and which op launched them?", gpu)
    busy = gpu.gpu_activities.filter(pl.col("kind").cast(pl.String) == "kernel")
    took = busy.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item() / 1e6
    assert 0.3 * took < kernels["gpu_ms"].sum() <= took * 1.000001


def test_a_table_and_the_rows_that_are_left_out(recorded: Launcher) -> None:
    run = sql(
        recorded, "select op, count(*) as calls from hops group by op order by calls desc, op", "--rows", "2"
    )
    lines = run.out.splitlines()
    assert lines[0].split() == ["op", "calls"]
    assert len(lines) == 4
    assert re.fullmatch(r"\d+ more rows; to see all: --rows 0", lines[3])
    assert len(sql(recorded, "select id from hops", "--rows", "0").out.splitlines()) > 101


@pytest.mark.promise("sql", "docs/api.md#sql-tracer-sql")
def test_csv_and_json(recorded: Launcher) -> None:
    text = "select id, shape, device from signatures order by id, position"
    rows = list(csv.DictReader(io.StringIO(sql(recorded, text, "--csv").out)))
    documents = json.loads(sql(recorded, text, "--json").out)["rows"]
    assert len(rows) == len(documents) > 3
    assert json.loads(rows[0]["shape"]) == documents[0]["shape"]
    both = sql(recorded, text, "--csv", "--json")
    assert (both.status, both.err) == (2, "tracer: give --csv or --json, not both\n")


def test_a_query_from_stdin(recorded: Launcher) -> None:
    run = recorded.run(
        [str(recorded.tracer), "sql", "run.trace", "-"], stdin="select count(*) as n from steps"
    )
    assert run.out.split() == ["n", "4"]


def test_the_schema_names_every_table(recorded: Launcher, trace: Trace) -> None:
    out = sql(recorded, ".schema").out
    tables = [name for name, value in vars(trace).items() if isinstance(value, pl.DataFrame)]
    assert re.findall(r"^(\w+): [\d,]+ rows?$", out, re.M) == tables
    assert f"hops: {len(trace.hops):,} rows\n  id uint32, op text, key text" in out
    assert max(map(len, out.splitlines())) <= 100
    document = json.loads(sql(recorded, ".schema", "--json").out)
    assert document["steps"] == {
        "rows": 4,
        "columns": {
            "process": "uint32",
            "step": "int64",
            "phase": "text",
            "start_ns": "int64",
            "end_ns": "int64",
            "module": "text",
            "cpu_ns": "int64",
            "preempted_ns": "int64",
        },
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select op from hopps", "no table hopps (did you mean hops?); to see the tables: .schema"),
        ("select opp from hops", "no column opp (did you mean op?); to see the columns: .schema"),
        ("select op from", "Expected"),
        ("choose op from hops", "only queries can be run; they begin with SELECT or WITH"),
        ("drop table hops", "only queries can be run; they begin with SELECT or WITH"),
        ("select 1; select 2", "one (and only one) statement can be parsed at a time"),
        (" ", "the query is empty; try: select op, count(*) from hops group by op"),
    ],
)
def test_a_wrong_query_is_one_line(recorded: Launcher, text: str, said: str) -> None:
    run = sql(recorded, text)
    assert (run.status, run.out) == (2, "")
    assert run.err.startswith("tracer: ")
    assert said in run.err
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "select * from {}",
        "FROM /* read */ {} as t(a)",
        "with q as (from {}) select * from q",
        "select * from hops where exists (select * from {})",
        "select (select count(*) from {}) from hops limit 1",
        "select 1 from hops union all select 2 from {}",
        "explain select * from {}",
    ],
)
@pytest.mark.parametrize("function", ["read_csv", "Read_CSV", '"read_csv"', "read_csv /* ( */ "])
def test_a_query_opens_no_file(recorded: Launcher, text: str, function: str) -> None:
    (recorded.folder / "own.csv").write_text("a\n17\n")
    query = text.format(f"{function}('own.csv')")
    run = sql(recorded, query)
    assert (run.status, run.out) == (2, "")
    name = function.partition(" ")[0].strip('"')
    assert run.err == f"tracer: {name} opens a file or an address; to allow that: --allow-files\n"
    assert sql(recorded, query, "--allow-files").status == 0


def test_every_table_function_that_opens_something_is_refused(recorded: Launcher) -> None:
    for name in ("csv", "json", "ndjson", "parquet", "ipc"):
        assert "--allow-files" in sql(recorded, f"select * from read_{name}('http://127.0.0.1:9/x')").err
    assert sql(recorded, "select 'read_csv(1)' as op from hops limit 1").status == 0
    assert sql(recorded, "with scan_a as (select op from hops) select * from scan_a").status == 0


def test_a_file_that_is_not_there_is_not_the_fault_of_the_trace(recorded: Launcher) -> None:
    run = sql(recorded, "select * from read_csv('missing.csv')", "--allow-files")
    assert run.status == 2
    assert "missing.csv" in run.err
    assert "run.trace" not in run.err


def test_an_empty_table_says_what_fills_it(recorded: Launcher) -> None:
    run = sql(recorded, "select * from gpu_activities")
    assert run.status == 0
    assert run.err == (
        "tracer: gpu_activities is empty in this trace; to fill it: "
        "record on a machine with a GPU, without --cuda off\n"
    )
    assert "tracer record --why" in sql(recorded, "select * from key_sets").err
    assert sql(recorded, "select op from hops where op = 'nothing'").err == ""


def test_comments_and_parentheses_may_come_first(trace: Trace) -> None:
    assert query(trace, "-- how many\n/* of\nthem */ (select count(*) as n from steps)")["n"].to_list() == [4]
    with pytest.raises(QueryError, match="only queries"):
        query(trace, "-- select\ndelete from hops")
