"""What was not recorded is not taken for what did not run: with --ops, with --steps, and in a window."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launching import Launcher, Run

_MODEL = """
import torch, tracer
from torch import nn
model = nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(32, 32), nn.ReLU())])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_TRAINING = """
for _ in range(9):
    model(torch.ones(8, 32)).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""
_SUMMED = """
losses = []
for _ in range(9):
    losses.append(model(torch.ones(8, 32)).sum()); tracer.step()
"""
_LATER = "sum(losses).backward(); optimizer.step()"
_PENALTY = """
weights = list(model.parameters())
for _ in range(9):
    loss = model(torch.ones(8, 32)).square().mean()
    gradients = torch.autograd.grad(loss, weights); tracer.step()
"""
_WINDOW = f"""
with tracer.record("run.trace"):{_SUMMED.replace(chr(10), chr(10) + "    ")}
{_LATER}
"""
CASES = {
    "training": (_TRAINING, ["--ops", "aten::addmm", "--ops", "aten::relu"]),
    "autograd.grad": (_PENALTY, ["--ops", "aten::addmm"]),
    "later": (_SUMMED + _LATER, ["--ops", "aten::relu"]),
    "steps": (_SUMMED + _LATER, ["--steps", "0:8"]),
    "window": (_WINDOW, None),
}
FILTERED = [name for name, (_, options) in CASES.items() if options and options[0] == "--ops"]


@pytest.fixture(scope="module")
def launchers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Launcher, Run]]:
    made = {}
    for name, (text, options) in CASES.items():
        launcher = Launcher(tmp_path_factory.mktemp(name))
        launcher.write(_MODEL + text)
        run = (
            launcher.python("script.py")
            if options is None
            else launcher.record(*options, "-o", "run.trace", "script.py")
        )
        assert run.status == 0, run.err
        made[name] = launcher, run
    return made


def command(launcher: Launcher, *words: str) -> Run:
    return launcher.run([str(launcher.tracer), words[0], "run.trace", *words[1:]])


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_called_never_differentiated(
    launchers: dict[str, tuple[Launcher, Run]], case: str
) -> None:
    for words in (("advise",), ("report",)):
        said = command(launchers[case][0], *words)
        assert "inference_mode" not in said.out + said.err


@pytest.mark.parametrize("case", FILTERED)
def test_the_verdict_names_the_filter(launchers: dict[str, tuple[Launcher, Run]], case: str) -> None:
    launcher, recorded = launchers[case]
    of = "complete of the ops that match --ops " + ", ".join(CASES[case][1][1::2])  # type: ignore[index]
    assert of in " ".join(recorded.err.split())
    assert of in command(launcher, "certificate").out
    assert of in command(launcher, "report").out


@pytest.mark.parametrize("case", FILTERED)
def test_a_sum_of_all_layers_and_advice_are_refused(
    launchers: dict[str, tuple[Launcher, Run]], case: str
) -> None:
    for name in ("ledger", "advise"):
        said = command(launchers[case][0], name)
        assert (said.status, said.out) == (1, "")
        assert said.err.count("\n") == 1
        assert said.err.endswith("so the time of the others is unknown; record without --ops\n")


@pytest.mark.parametrize("case", FILTERED)
def test_time_of_other_ops_is_not_called_outside_ops(
    launchers: dict[str, tuple[Launcher, Run]], case: str
) -> None:
    for name in ("steps", "report"):
        said = command(launchers[case][0], name)
        assert "Outside ops, or in ops that --ops left out: " in said.out
        assert "others count as Python, as outside ops, or as no op" in said.err
    found = json.loads(command(launchers[case][0], "steps", "--json").out)
    assert found["only_ops"] == CASES[case][1][1::2]  # type: ignore[index]


def test_memory_of_other_ops_is_not_called_memory_of_no_op(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.write("import torch\nkept = [torch.ones(1000, 100).relu() for _ in range(3)]\n")
    assert launcher.record("--memory", "--ops", "aten::relu", "-o", "run.trace", "script.py").status == 0
    for name in ("memory", "report"):
        said = command(launcher, name).out
        assert "no op, or left out by --ops" in said


def test_a_redacted_trace_still_says_that_ops_were_left_out(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.write(_MODEL + _TRAINING)
    assert launcher.record("--ops", "aten::addmm", "-o", "whole.trace", "script.py").status == 0
    packed = launcher.run([str(launcher.tracer), "pack", "--redact", "whole.trace", "-o", "run.trace"])
    assert packed.status == 0, packed.err
    said = command(launcher, "advise")
    assert (said.status, "record without --ops" in said.err, "addmm" in said.err) == (1, True, False)
