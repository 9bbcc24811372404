"""The settings of torch at the end of a recording."""

from __future__ import annotations

from typing import Any

import pytest
from launching import Launcher

import tracer
from tracer.report.page import Page
from tracer.report.reading import Reading
from tracer.report.sections import environment


def settings(launcher: Launcher, script: str, **extra: str) -> dict[str, Any] | None:
    launcher.write(f"import torch\n{script}\ntorch.ones(2)\n")
    launcher.record("-o", "run.trace", "script.py", extra=extra)
    return tracer.load(launcher.folder / "run.trace").environment.get("settings")


def test_settings_are_those_that_the_script_chose(launcher: Launcher) -> None:
    script = "torch.set_num_threads(3)\ntorch.set_float32_matmul_precision('medium')\n"
    script += "torch.use_deterministic_algorithms(True)\ntorch.backends.cudnn.benchmark = True"
    found = settings(launcher, script, OMP_NUM_THREADS="2")
    assert found is not None
    assert (found["threads"], found["float32_matmul_precision"]) == (3, "medium")
    assert (found["deterministic"], found["cudnn_benchmark"]) == (True, True)
    assert found["variables"]["OMP_NUM_THREADS"] == "2"
    reading = Reading(tracer.load(launcher.folder / "run.trace"), "run.trace")
    text = environment.markdown(environment.data(reading), Page.of(reading))
    for row in ("| threads ", "`OMP_NUM_THREADS=2`", "| medium", "deterministic, cudnn_benchmark"):
        assert row in text, text


def test_a_script_may_choose_as_without_tracer(launcher: Launcher) -> None:
    chosen = "torch.set_num_interop_threads(2)\nprint(torch.get_num_interop_threads())\n"
    launcher.write(f"import torch\ntorch.ones(2)\n{chosen}")
    assert launcher.same("script.py").out == "2\n"


@pytest.mark.parametrize("end", ["import os; os.kill(os.getpid(), 9)", "import os; os._exit(0)"])
def test_of_a_process_that_did_not_end_in_order_they_are_unknown(launcher: Launcher, end: str) -> None:
    launcher.write(f"import torch\ntorch.ones(2)\n{end}\n")
    launcher.record("-o", "run.trace", "script.py")
    assert "settings" not in tracer.load(launcher.folder / "run.trace").environment
