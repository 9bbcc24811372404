"""`@tracer.record(...)`: each call of the function is recorded."""

from __future__ import annotations

import polars as pl
import pytest
from launching import Launcher

import tracer


@pytest.mark.promise("@tracer.record", "docs/api.md#record-one-function")
def test_each_call_has_a_file(launcher: Launcher) -> None:
    launcher.write(
        "import torch, tracer\n"
        "@tracer.record('step.trace', modules=False)\n"
        "def step(x, *, twice=False):\n    '''Doc.'''\n    return x * 2 if twice else torch.neg(x)\n"
        "print(step(torch.ones(1)).item(), step(torch.ones(1), twice=True).item())\n"
        "print(step.__name__, step.__doc__)\n"
    )
    run = launcher.python("script.py")
    assert run.out == "-1.0 2.0\nstep Doc.\n", run.err
    assert launcher.traces() == ["step.0002.trace", "step.trace"]
    found = [
        set(tracer.load(launcher.folder / name).hops["op"].cast(pl.String)) for name in launcher.traces()
    ]
    assert "aten::mul.Tensor" in found[0]
    assert "aten::neg" not in found[0]
    assert "aten::neg" in found[1]


def test_an_exception_ends_the_recording_and_goes_on(launcher: Launcher) -> None:
    launcher.write(
        "import torch, tracer\n"
        "@tracer.record('step.trace')\n"
        "def step():\n    torch.ones(1)\n    raise KeyError('lost')\n"
        "try:\n    step()\nexcept KeyError as error:\n    print(error)\n"
    )
    assert launcher.python("script.py").out == "'lost'\n"
    assert tracer.load(launcher.folder / "step.trace").certificate["complete"]
