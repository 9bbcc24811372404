"""`tracer compare --tune`: its cases, which of them mode auto then uses, and its table."""

import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from lazily import torch

from tracer.compare import tuning
from tracer.compare.accuracy import Check
from tracer.compare.measurement import Settings
from tracer.compare.model import CaseResult, Timing
from tracer.compare.timing import Samples
from tracer.compare.tuning_cases import row_of, tuning_cases
from tracer.overrides import measured

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("mm", "gru", "cat")


@pytest.fixture(scope="module")
def benchmarks():
    """The modules that write the built-in tables, as they are with an extension of kernels."""
    import tracer

    extension = ModuleType("tracer._overrides")
    patch = pytest.MonkeyPatch()
    patch.setitem(sys.modules, "tracer._overrides", extension)
    patch.setattr(tracer, "_overrides", extension, raising=False)
    patch.syspath_prepend(str(ROOT / "benchmarks"))
    import gru_tuning
    import override_tuning

    yield SimpleNamespace(gru=gru_tuning, others=override_tuning)
    patch.undo()
    for name in ("gru_tuning", "override_tuning"):
        del sys.modules[name]


def timing(stock, override, spread=0.0):
    return Timing.of(Samples([stock, stock + spread] * 5, [override + spread, override] * 5))


def result(wall=(20.0, 10.0), gpu=(20.0, 10.0), cold=None, **changes):
    found = CaseResult("case", ran={"aten::mm": 1}, wall=timing(*wall), gpu=timing(*gpu) if gpu else None)
    found.cold = timing(*cold) if cold else None
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def tried(*results, family="mm", number=0):
    return tuning.Tried(tuning_cases(family)[number], list(results))


def test_rows_of_the_built_in_tables_are_those_of_the_cases(benchmarks):
    made = [
        benchmarks.others.measured_line(case) for family in ("mm", "cat") for case in tuning_cases(family)
    ]
    made += map(benchmarks.gru.measured_row, tuning_cases("gru"))
    for file in ("measured.h", "ops/gru_measured.h"):
        text = (ROOT / "csrc/overrides" / file).read_text()
        rows = [line for line in text.splitlines() if line.startswith("    {")]
        assert rows
        assert [row for row in rows if row not in made] == []


def test_a_benchmark_fills_a_header(benchmarks, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA L4")
    header = tmp_path / "measured.h"
    header.write_text((ROOT / "csrc/overrides/measured.h").read_text())
    first, second = (benchmarks.others.Outcome(case) for case in tuning_cases("mm")[6:8])
    first.tried = tried(result(), number=6)
    second.tried = tried(result(gpu=(10.0, 20.0)), number=7)
    benchmarks.others.write_measured(header, [first, second])
    text = header.read_text()
    assert 'kMeasuredOn = "NVIDIA L4"' in text
    assert f"// {first.case.name}\n" in text
    assert f"// {second.case.name}\n" not in text
    count = re.search(r"std::array<MeasuredMm, (\d+)>", text)[1]
    assert text.count("{Element::") == int(count)


def test_no_two_cases_have_one_name_and_names_fit_the_file():
    names = [case.name for family in FAMILIES for case in tuning_cases(family)]
    assert len(names) == len(set(names)) > 100
    for family in FAMILIES:
        for case in tuning_cases(family):
            assert tuple(case.sizes) == measured.FIELDS[family]
            assert case.family == family


def test_a_case_is_among_the_sizes_that_it_decides_for():
    case = tuning_cases("mm", ["8X1536x5893 nt float32"])[0]
    assert row_of(case) == ("float32", False, True, (5, 8), (4167, 8333), (1087, 2172))
    assert [one.name for one in tuning_cases("gru", ["T32 B64"])] == [
        f"gru T32 B64 I256 H512 {precision}" for precision in ("tf32", "float32", "bfloat16", "float16")
    ]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (result(), ""),
        (result(gpu=(20.0, 20.0)), ""),  # as long as stock's
        (result(gpu=(20.0, 20.5)), "GPU"),
        (result(gpu=(20.0, 10.0), cold=(20.0, 21.0)), "GPU"),  # the cold one counts
        (result(gpu=(20.0, 21.0), cold=(20.0, 10.0)), ""),
        (result(wall=(20.0, 21.0)), "wall"),
        (result(wall=(20.0, 19.0, 9.0)), "wall"),  # its interval reaches below 1
        (result(gpu=None), "graph"),
        (result(wall=(20.0, 21.0), failed="traceback", raised="RuntimeError: no room"), "raised"),
        (result(broken="it changed an input"), "WRONG"),
        (result(repeats=False), "WRONG"),
        (result(checks=[Check("result", None, None, None, "relative error 1", None)]), "WRONG"),
        (result(ran={}), "stock"),
        (result(handed_over={"aten::mm": {"mixed dtypes": 1}}), "stock"),
    ],
)
def test_auto_uses_what_wins(found, why):
    assert tried(found).why_not == why


def test_both_passes_of_a_gru_must_win():
    forward, both = result(), result(gpu=(20.0, 30.0))
    assert tried(forward, both, family="gru").why_not == "GPU"
    assert tried(forward, forward, family="gru").why_not == ""


def test_the_file_has_winners_and_losers_and_nothing_that_was_not_measured():
    found = tuning.measurements(
        measured.Key("a GPU", "2", "0"),
        [
            tried(result(), number=0),
            tried(result(gpu=(1.0, 2.0)), number=1),
            tried(result(repeats=False), number=2),
            tried(result(gpu=None), number=3),
            tried(result(), result(), family="gru"),
        ],
    )
    names = [case.name for case in tuning_cases("mm")[:3]]
    rows = found.families["mm"]
    assert [(row["case"], row["faster"]) for row in rows] == list(
        zip(names, [True, False, False], strict=True)
    )
    assert rows[0]["gpu_ratios"] == [[2.0, 2.0, 2.0]]
    assert len(found.families["gru"][0]["wall_ratios"]) == 2
    assert "cat" not in found.families


def test_what_is_measured_can_be_read_again(tmp_path):
    every = [tried(result(), family=family, number=n) for family in FAMILIES for n in range(3)]
    found = tuning.measurements(measured.Key("a GPU", "2", "0"), every)
    measured.write(tmp_path / "file.json", found)
    assert measured.read(tmp_path / "file.json") == found


def test_the_table_fits_a_terminal():
    every = [
        tuning.Tried(case, [result((1e7, 1e6), (9.9e6, 1e5)) for _ in case.cases])
        for family in FAMILIES
        for case in tuning_cases(family)
    ]
    every.append(tried(result(gpu=(1e7, 2e7))))
    every.append(tried(result(gpu=None)))
    lines = tuning.table(every).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == "GPU us, caches cold stock override ratio wall auto".split()
    assert lines[1].split() == "mm 1x1536x5893 NT float32 9900.0 100.0 99.00 10.00 yes".split()
    assert lines[-2].endswith("no: GPU")
    assert "gru T32 B64 I256 H512 tf32 +bwd" in tuning.table(every)


def test_wrong_results_are_said():
    bad = tried(result(checks=[Check("result", None, None, None, "relative error 1", None)]))
    assert tuning.wrong([tried(result()), bad]) == (
        "wrong in 1 of 2 cases, which stay with stock; mm 1x1536x5893 NT float32: relative error 1"
    )
    assert tuning.wrong([tried(result())]) == ""


class Stock:
    """Stock beside itself, on the CPU."""

    device = "cpu"

    def __init__(self, names):
        self.names = names
        self.calls = 0

    def on(self):
        return nullcontext()

    def counts(self):
        self.calls += 1
        return SimpleNamespace(since=lambda before: ({"aten::mm": 1}, {}))


def test_cases_are_measured(monkeypatch):
    from tracer.base.progress import listening

    monkeypatch.setattr(tuning, "Switch", Stock)
    parts = []
    with listening(parts.append):
        found = tuning.tune(
            [*tuning_cases("cat", ["dim 0 64x512"]), *tuning_cases("mm", ["3200x512x1 NT float32"])],
            Settings(pairs=2, seconds=0.1),
        )
    assert [each.why_not for each in found] == ["graph", "graph"]  # on the CPU
    assert all(each.results[0].wall for each in found)
    assert parts == [0.0, 0.5, 1.0]


@pytest.fixture
def tune(tmp_path, monkeypatch):
    """`tracer compare --tune` where stock takes the place of the overrides, and a GPU's is the CPU's time."""
    from typer.testing import CliRunner

    from tracer.cli.app import app
    from tracer.overrides import builtin

    (tmp_path / "_overrides.so").write_bytes(b"")
    extension = SimpleNamespace(__file__=str(tmp_path / "_overrides.so"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(builtin, "native_module", lambda: extension)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a GPU")
    monkeypatch.setattr(tuning, "Switch", Stock)
    monkeypatch.setattr(tuning, "gpu_time", lambda result: result.wall)
    return lambda *arguments: CliRunner().invoke(app, ["compare", "--tune", *arguments, "--pairs", "2"])


def test_the_command_writes_the_file_and_adds_to_it(tune, tmp_path):
    run = tune("cat", "--case", "dim 0 64x512")
    assert run.exit_code == 0, run.output
    assert run.stdout.splitlines()[1].startswith("cat dim 0 64x512 64x512 float32")
    (path,) = (tmp_path / "tracer").glob("*.json")
    assert f"of 1 case: {path}" in run.stderr
    assert [row["case"] for row in measured.read(path).families["cat"]] == ["cat dim 0 64x512 64x512 float32"]
    assert tune("mm", "--case", "3200x512x1 NT float32").exit_code == 0
    found = measured.read(path).families
    assert (len(found["cat"]), len(found["mm"])) == (1, 1)
    path.write_text("{")
    run = tune("mm", "--case", "3200x512x1 NT float32")
    assert f"{path} is replaced: it is damaged: no JSON" in run.stderr.replace("\n", "")
    assert list(measured.read(path).families) == ["mm"]


def test_another_file_is_named_by_the_user(tune, tmp_path):
    file = tmp_path / "mine.json"
    run = tune("mm", "--case", "3200x512x1 NT float32", "-o", str(file))
    assert run.exit_code == 0, run.output
    assert f"with TRACER_MEASURED={file}" in run.stderr
    assert not (tmp_path / "tracer").exists()
    assert list(measured.read(file).families) == ["mm"]
