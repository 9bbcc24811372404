"""The report of compiled code: op calls of the compiler are left out of the hottest paths."""

from __future__ import annotations

import re

import pytest
from compiler_cache import use_cache
from launching import Launcher

from tracer.analysis.compiling import of_compiler, without_compiler
from tracer.analysis.trees import Forest
from tracer.trace import load

pytestmark = pytest.mark.compiler

SCRIPT = """\
import torch

@torch.compile
def model(x, weight):
    return torch.nn.functional.gelu(x @ weight)

x, weight = torch.ones(64, 64), torch.ones(64, 64)
for _ in range(20):
    out = model(x, weight)
"""
FAKE = "pythonDispatcherFallback"


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_hottest_paths_are_of_the_program(launcher: Launcher) -> None:
    use_cache(launcher, launcher.folder / "inductor")
    launcher.write(SCRIPT)
    assert launcher.record("-o", "run.trace", "script.py").status == 0
    report = [str(launcher.tracer), "report", "run.trace"]
    text = launcher.run(report).out
    for title in ("In one look", "Hottest paths"):
        shown = section(text, title)
        assert FAKE not in shown
        assert "mm" in shown  # an op that compiled code calls is an outermost one
        said = re.search(
            r"Left out: ([\d,]+) outermost op calls \(([\d.]+) (m?s)\) that torch.compile made", shown
        )
        assert said, shown
    assert FAKE in section(launcher.run([*report, "--compiler"]).out, "In one look")
    assert "mm" in section(launcher.run([*report, "--op", "mm"]).out, "Hottest paths")
    assert launcher.run([*report, "--html"]).status == 0

    trace = load(launcher.folder / "run.trace")
    hops = Forest.of(trace.hops)
    fake = trace.hops["kernel"].cast(str).str.contains(FAKE).fill_null(False).to_numpy()
    assert of_compiler(trace.hops, trace.compile_phases)[fake].all()
    left = without_compiler(hops, trace.compile_phases)
    assert not left.hops["kernel"].cast(str).str.contains(FAKE).any()
    assert without_compiler(hops, trace.compile_phases.clear()) is hops
