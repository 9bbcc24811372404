"""The table of benchmarks/kernels_report.py: rows end to end, rows that fail, a run that is ended early."""

import json
import sys
from types import SimpleNamespace

import pytest
from benchmark_modules import benchmark
from lazily import torch


@pytest.fixture(scope="module")
def module():
    return SimpleNamespace(report=benchmark("kernels_report"), end=benchmark("end_to_end"))


@pytest.fixture
def tiny(module):
    return module.end.Sizes(
        source=40, target=30, embedding=8, hidden=16, training_batch=4, decoding_batch=6, words=8, batches=2
    )


def row(module, what, sizes, names=()):
    work = module.end.EndToEnd(what, "force", sizes, "cpu", names)
    return module.report.Row(work, module.report.WALL, 0.01, 1000.0)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_training_step_is_a_row(module, tiny):
    measured = module.report.Measurement(4).of(row(module, module.end.TRAINING, tiny))
    line = cells(module.report.line_of(measured))
    assert line[0] == "end to end: seq2seq training step, all overrides, force"
    assert [line[1], *line[4:8], line[9], line[10]] == ["", "", "", "", "", "wall 0.01, 1000", "yes"]
    assert line[8] == "0.00"  # stock beside stock
    assert "the losses of 9 steps" in module.report.interval_of(measured)


def test_decoding_is_a_row(module, tiny):
    measured = module.report.Measurement(4).of(row(module, module.end.DECODING, tiny))
    assert cells(module.report.line_of(measured))[8:] == ["6 of 6", "wall 0.01, 1000", "yes"]


@pytest.mark.parametrize("what", ["TRAINING", "DECODING"])
def test_an_override_that_computes_something_else_is_wrong(module, tiny, what):
    from tracer import overrides

    def half(self, mat1, mat2, *, beta=1, alpha=1):
        return 0.5 * (self + mat1 @ mat2)

    overrides.register("aten::addmm", "CPU", half, name="half_of_addmm")
    try:
        found = module.report.Measurement(2).of(
            row(module, getattr(module.end, what), tiny, ("half_of_addmm",))
        )
    finally:
        overrides.unregister("half_of_addmm")
    assert found.met == "WRONG"
    assert "ran: aten::addmm" in found.result.note


def test_scores_count_until_a_word_differs(module):
    stock = torch.tensor([[7, 7], [3, 3], [9, 9]])
    override = torch.tensor([[7, 7], [3, 4], [9, 9]])
    ours = [torch.tensor([[1.0, 0.0], [1.0, 0.0]])] * 3
    theirs = [ours[0], ours[0], ours[0] + torch.tensor([[0.25], [8.0]])]
    assert module.end.agreement(stock, override, ours, theirs) == (1, 0.25)


def test_a_row_that_raises_says_why_and_the_next_one_goes_on(module, tiny, monkeypatch, tmp_path, capsys):
    report = module.report

    def raises(*_):
        raise RuntimeError("no | room\nsecond line")

    monkeypatch.setattr(report, "Switch", lambda names: SimpleNamespace(names=names))
    monkeypatch.setattr(report, "compare_one", raises)
    # Not torch.cuda.is_available: torch with CUDA would believe it too, and ask a driver that may be missing.
    monkeypatch.setattr(report, "gpu", lambda: "a GPU")
    monkeypatch.setattr(report, "ROWS", [report.ROWS[0], row(module, module.end.TRAINING, tiny)])
    page, data = tmp_path / "page.md", tmp_path / "data.json"
    monkeypatch.setattr(sys, "argv", ["kernels_report", "-o", str(page), "--json", str(data), "--pairs", "2"])
    with pytest.raises(SystemExit) as ended:
        report.main()
    assert ended.value.code == 1
    lines = page.read_text().splitlines()
    assert [line for line in lines if "failed: RuntimeError: no / room" in line and line.startswith("|")]
    assert "1 of 2 goals are met." in page.read_text()
    first, second = json.loads(data.read_text())
    assert first["met"] == "failed: RuntimeError: no / room"
    assert second["times"]["wall"]["stock"]["samples"] == 2


def test_a_run_that_is_ended_early_keeps_its_rows(module, tiny, monkeypatch, tmp_path):
    report = module.report
    measured = report.Measurement(2).of(row(module, module.end.DECODING, tiny))
    text = report.page([measured], 3, 2, "a GPU")
    assert "1 of 1 goals are met; 2 rows were not measured." in text
    assert text.count("end to end: seq2seq greedy") == 2  # the table and the intervals


def test_the_goals_end_to_end(module):
    rows = [each for each in module.report.ROWS if isinstance(each.case, module.end.EndToEnd)]
    assert {(each.case.what, each.least, each.aim) for each in rows} == {
        (module.end.TRAINING, 1.3, 2),
        (module.end.DECODING, 2, 3),
    }
    assert {each.case.mode for each in rows} == {"auto", "force"}
