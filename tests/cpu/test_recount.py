"""Every figure of every table of five reports, against a count of the exported rows (recount.py).

Not counted: the number of a path, the speed of compiled kernels (from bytes that no table has by kernel), the
compiler's time by graph, and the sections that have no figures of time: environment, certificate. Of GPUs the
API functions are counted, from a stored trace.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from compiler_cache import use_cache
from gpu_trace import PATH
from launching import Launcher
from recount import Recount, Table

HEAD = "import torch\nfrom torch import nn\n"
PROGRAMS = {
    "training": HEAD
    + """from torch.profiler import record_function
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Sequential(nn.Linear(128, 128), nn.Tanh()))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    with record_function("batch"):
        x = torch.randn(32 if step % 2 else 64, 64)
        with record_function("load"):
            sum(range(1000))
    model(x).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    try:
        torch.ones(2) @ torch.ones(3)
    except RuntimeError:
        pass
""",
    "inference": HEAD
    + """model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
with torch.no_grad():
    for length in range(3, 9):
        model(torch.randn(2, length, 32)).argmax(-1).sum().item()
""",
    "closure": HEAD
    + """model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
x, y = torch.randn(64, 16), torch.randn(64, 1)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
def closure():
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    return loss
for _ in range(6):
    optimizer.step(closure)
""",
    "loader": HEAD
    + """class Rows(torch.utils.data.Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return torch.full((16,), float(i)).exp().div(7)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
    model(batch).logsumexp(1).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "compiled": HEAD
    + """model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fast = torch.compile(model)
for _ in range(6):
    fast(torch.randn(8, 16)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
}
COUNTED = {
    ("Exceptions", "raised in"): (Recount.exceptions, ("raised in", "key")),
    ("In one look", "line"): (Recount.look, ("op and inputs", "calls")),
    ("Steps", "step"): (Recount.steps, ("process", "step")),
    ("Time outside ops", "line before -> line after"): (Recount.gaps, ("line before -> line after",)),
    ("Ranges", "range"): (Recount.range_paths, ("range",)),
    ("Compiled code", "kernel"): (Recount.compiled_kernels, ("kernel",)),
    ("Compiled code", "region"): (Recount.regions, ("region", "graph")),
    ("Compiled code", "phase"): (Recount.compiler_phases, ("phase",)),
    ("Hottest paths", "path"): (Recount.hottest, ("where the time goes", "calls", "hops")),
    ("Hottest paths", "op"): (Recount.once, ("op",)),
    ("Ops", "op"): (lambda count: count.by("op"), ("op",)),
    ("Dispatch keys", "key"): (lambda count: count.by("key"), ("key",)),
    ("Source lines", "line"): (lambda count: count.lines(), ("line",)),
    ("Modules", "module"): (lambda count: count.by("module", "no module"), ("module",)),
    ("Backward", "line"): (Recount.backward, ("line", "forward op", "node")),
    ("Memory", "line"): (Recount.memory, ("line", "op")),
    ("Threads", "name"): (Recount.threads, ("process", "thread")),
    ("API functions", "function"): (Recount.api_functions, ("function",)),
}
TABLES_LEFT = {
    *(("Environment", ""), ("Certificate", "captured or dropped"), ("Compiled code", "graph")),
    ("Worth doing", "#"),  # bounds, which tests/unit/test_advice.py counts
}
COLUMNS_LEFT = {"path", "speed", "warm-up step", "steady step"}
MISSING = float("nan")  # of a column that is not counted: agrees with nothing
UNITS = {"": 1, "x": 1, "%": 1, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "KiB": 2**10, "MiB": 2**20}


def tables(report: str) -> dict[tuple[str, str], list[dict[str, str]]]:
    """By heading and the title of the first column of texts: its rows; a column of figures ends in `:`."""
    found, heading, titles = {}, "", []
    for line in report.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and not titles:
            titles = cells
        elif cells and set("".join(cells)) <= set("-: "):
            titles = [name + ":" * cell.endswith(":") for name, cell in zip(titles, cells, strict=True)]
            named = next((title for title in titles if not title.endswith(":")), titles[0])
            rows = found.setdefault((heading, named), [])
        elif cells:
            rows.append(dict(zip(titles, cells, strict=True)))
        else:
            titles = []
    return found


def name(cell: str) -> str:
    """What names a row: the first code in a cell, if there is any, and how deep it is."""
    depth = re.match(r"(-> )*", cell)[0]
    code = re.search(r"`([^`]*)`", cell.partition("<br>")[0])
    return depth + code[1] if code else cell.partition("<br>")[0].replace(",", "")


def agrees(cell: str, expected: float | None) -> bool:
    """Whether a figure is what it says it is, as far as its digits go."""
    cell = cell.strip("*")
    if cell.startswith("< "):
        return expected < 0.06
    if not cell:
        return not expected
    digits, _, unit = cell.replace(",", "").partition(" ")
    off = abs(float(digits) * UNITS[unit] - expected) if expected is not None else MISSING
    last = 10 ** -len(digits.partition(".")[2]) * UNITS[unit]
    return off <= 0.51 * last + 0.6 * (unit not in ("%", "x"))  # a median was rounded to ns before


def compare(where: object, rows: list[dict[str, str]], counted: Table, keys: tuple[str, ...]) -> list[str]:
    """What differs. Of counted rows of the same name each is one row of the report."""
    wrong, left = [], list(counted)
    for row in rows:
        cells = {title.rstrip(":"): cell for title, cell in row.items()}
        named = tuple(name(cells.get(key, "0")) for key in keys)
        shown = {title[:-1] for title in row if title.endswith(":")} - COLUMNS_LEFT - {*keys}
        found = [
            ([title for title in shown if not agrees(cells[title], known.get(title, MISSING))], known, at)
            for at, (of, known) in enumerate(left)
            if of == named
        ]
        differs, known, at = min(found, key=lambda one: len(one[0]), default=(["no such row"], {}, None))
        wrong += [
            f"{where} {named} {title}: {cells.get(title)}, counted as {known.get(title)}" for title in differs
        ]
        if at is not None:
            del left[at]
    return wrong + [f"{where} {of}: not in the report" for of, _ in left]


def run(launcher: Launcher, *words: str) -> str:
    done = launcher.run([str(launcher.tracer), *words])
    assert done.status == 0, done.err
    return done.out


@pytest.mark.parametrize(
    "program",
    [pytest.param(name, marks=[pytest.mark.compiler] * (name == "compiled")) for name in PROGRAMS],
)
def test_the_tables_of_a_report_are_recounted(launcher: Launcher, program: str, tmp_path: Path) -> None:
    launcher.write(PROGRAMS[program])
    if program == "compiled":
        use_cache(launcher, tmp_path / "cache")
    done = launcher.record("--memory", "-o", "run.trace", "script.py")
    assert done.status == 0, done.err
    run(launcher, "export", "run.trace", "--to", "parquet", "-o", "tables")
    count = Recount(launcher.folder / "tables")
    every = ("--rows", "100000", "--paths", "100000", "--details", "0")
    shown = tables(run(launcher, "report", "run.trace", *every))
    assert shown.keys() - TABLES_LEFT <= COUNTED.keys(), "a table that nothing counts"
    assert {("Ops", "op"), ("Source lines", "line"), ("Hottest paths", "path")} < shown.keys()
    wrong = []
    for place in shown.keys() - TABLES_LEFT:
        counting, keys = COUNTED[place]
        wrong += compare(place, shown[place], counting(count), keys)
    for by in ("op", "key", "source", "module", "kernel", "range"):
        document = json.loads(run(launcher, "top", "run.trace", "--by", by, "--json", "--limit", "0"))
        wrong += exactly(by, {(row[by] or "",): row for row in document["rows"]}, count.by(by))
    steps = json.loads(run(launcher, "steps", "run.trace", "--json", "--limit", "0"))["steps"]
    wrong += exactly("steps", {(str(row["process"]), row["name"]): row for row in steps}, count.steps())
    assert not wrong, "\n".join(wrong)


def exactly(where: str, rows: dict[Any, dict[str, Any]], counted: Table) -> list[str]:
    """What differs in ns, of the columns that both have; each of `rows` must have been counted."""
    assert rows.keys() == {known for known, _ in counted}, where
    return [
        f"{where} {known} {title}: {row[column]}, and was counted as {expected[title]}"
        for known, expected in counted
        for row in [rows[known]]
        for column in row
        for title in [column.removesuffix("_ns")]
        if isinstance(row[column], int) and isinstance(expected.get(title), int | float)
        if title not in ("step", "process", "outside") and abs(row[column] - expected[title]) > 0.6
    ]


def test_the_api_functions_of_a_gpu_are_those_of_a_recount(launcher: Launcher) -> None:
    run(launcher, "export", str(PATH), "--to", "parquet", "-o", "tables")
    shown = tables(run(launcher, "report", str(PATH), "--only", "cuda", "--rows", "100000"))
    place = "API functions", "function"
    counting, keys = COUNTED[place]
    assert compare(place, shown[place], counting(Recount(launcher.folder / "tables")), keys) == []
    assert len(shown[place]) > 50


def test_the_comparison_sees_a_figure_that_is_wrong_missing_or_not_counted(tmp_path: Path) -> None:
    rows = tables("## Ops\n| op | total |\n| --- | ---: |\n| `a` | 1.50 us |\n| `b` | 0.1 ms |")["Ops", "op"]
    right: Table = [(("a",), {"total": 1502}), (("b",), {"total": 140_000})]
    assert compare("Ops", rows, right, ("op",)) == []
    assert len(compare("Ops", rows, [right[0]], ("op",))) == 1
    assert len(compare("Ops", rows, [*right, right[0]], ("op",))) == 1
    assert len(compare("Ops", rows, [(("a",), {"total": 1506}), right[1]], ("op",))) == 1
    assert len(compare("Ops", rows, [(("a",), {}), right[1]], ("op",))) == 1
