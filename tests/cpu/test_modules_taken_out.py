"""A script takes modules out of sys.modules: torch is not imported again, and nothing is lost."""

from __future__ import annotations

import polars as pl
import pytest
from launching import Launcher

import tracer

pytestmark = pytest.mark.fresh  # a child of the fork server has a torch that can be imported again

TRAINING = """\
model = torch.nn.Linear(2, 2)
optimizers = [torch.optim.SGD(model.parameters(), 0.1), torch.optim.Adam(model.parameters())]
def train(optimizer):
    optimizer.zero_grad()
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
"""
PATCHED = f"""\
import sys
from unittest.mock import patch
with patch.dict(sys.modules):
    import torch
    exec({TRAINING!r})
    train(optimizers[0])
print("torch" in sys.modules)
"""
PURGED = f"""\
import sys
before = set(sys.modules)
import torch
{TRAINING}
train(optimizers[0])
kept = dict(sys.modules)
for name in set(sys.modules) - before:
    if name.startswith("tracer."):
        del sys.modules[name]
train(optimizers[1])
for name in set(sys.modules) - before:
    del sys.modules[name]
print("torch" in sys.modules)
"""


@pytest.mark.parametrize("options", [(), ("--cuda", "off")], ids=["", "cuda off"])
@pytest.mark.parametrize("script", [PATCHED, PURGED], ids=["patched", "purged"])
def test_the_script_ends_as_without_tracer(launcher: Launcher, script: str, options: tuple[str, ...]) -> None:
    launcher.write(script)
    run = launcher.record("-o", "run.trace", *options, "script.py")
    assert (run.status, run.out, run.own_err) == (0, "False\n", "")
    trace = tracer.load(launcher.folder / "run.trace")
    assert trace.certificate["verdict"].startswith("complete: ")
    assert trace.environment["settings"]["threads"] >= 1
    classes = trace.optimizers["class"].cast(pl.String).str.split(".").list.last().to_list()
    assert classes == (["SGD"] if script is PATCHED else ["SGD", "Adam"])
    assert len(trace.steps) == 1


def test_an_override_that_was_enabled_is_said(launcher: Launcher) -> None:
    launcher.write(
        "import sys, torch, tracer\n"
        "tracer.overrides.register('aten::mm', 'CPU', name='mine')(lambda one, other: one * 2)\n"
        "with tracer.overrides.use('mine'):\n"
        "    for name in [name for name in sys.modules if name.startswith('tracer.')]:\n"
        "        del sys.modules[name]\n"
        "    print(torch.mm(torch.ones(1, 1), torch.ones(1, 1)).item())\n"
    )
    run = launcher.record("-o", "run.trace", "script.py")
    assert (run.status, run.out, run.own_err) == (0, "2.0\n", "")
    trace = tracer.load(launcher.folder / "run.trace")
    assert [(one["name"], one["ran"]) for one in trace.certificate["overrides"]] == [("mine", 1)]


def test_the_recording_that_a_script_began_is_the_one_that_it_ends(launcher: Launcher) -> None:
    launcher.write(
        "import sys\nfrom unittest.mock import patch\n"
        "with patch.dict(sys.modules):\n"
        "    import torch, tracer\n    tracer.start('run.trace')\n"
        "for _ in range(3):\n    torch.ones(2)\n    tracer.step()\n"
        "print(tracer.stop().hops)\nprint('torch' in sys.modules)\n"
    )
    run = launcher.python("script.py")
    assert (run.status, run.err) == (0, "")
    trace = tracer.load(launcher.folder / "run.trace")
    assert run.out == f"{len(trace.hops)}\nFalse\n"
    assert len(trace.steps) == 3


def test_a_recording_that_begins_too_late_is_refused(launcher: Launcher) -> None:
    launcher.write(
        "import sys, tracer\nfrom unittest.mock import patch\n"
        "with patch.dict(sys.modules):\n    import torch\n"
        "try:\n    tracer.start('run.trace')\nexcept tracer.RecordingError as error:\n    print(error)\n"
        "print(torch.ones(1).item())\n"
    )
    run = launcher.python("script.py")
    assert (run.status, run.err) == (0, "")
    assert run.out.startswith("the script has removed torch from sys.modules, ")
    assert run.out.endswith("\n1.0\n")
